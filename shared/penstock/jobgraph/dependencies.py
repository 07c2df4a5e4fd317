"""What a job's functions need beside the program: packages and archives, which travel with the job.

A program names them (``set_python_requirements``, ``add_python_archive``), or the configuration does. The planner reads the
files; the entry ``DEPENDENCIES`` of the job's function table holds them.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.config import PYTHON_ARCHIVES, PYTHON_REQUIREMENTS
from penstock.errors import SpecError
from penstock.jobgraph.graph import FunctionArtifact

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The entry of the function table with the packages and archives of a job.
DEPENDENCIES = "dependencies"
#: All files of a job together have at most so many bytes.
MAX_BYTES = 64 << 20
#: Endings of archives that are unpacked, as in PyFlink.
ENDINGS = (".zip", ".jar", ".tar.gz", ".tgz", ".tar")


class Archive(msgspec.Struct, frozen=True):
    """An archive whose content slots find in the folder ``target`` of the working folder. ``name``: of the file."""

    target: str
    name: str
    data: bytes


class Dependencies(msgspec.Struct, frozen=True):
    """``requirements``: text of a requirements file; empty: no packages. ``cached``: name of a file → its content; with
    any, packages come from these files and from nowhere else."""

    requirements: str = ""
    cached: dict[str, bytes] = {}
    archives: tuple[Archive, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of what decides the packages."""
        packages = self.requirements, self.cached
        return hashlib.sha256(msgspec.msgpack.encode(packages, order="deterministic")).hexdigest()


def entries(config: Mapping[str, str]) -> dict[str, FunctionArtifact]:
    """The entry for what ``config`` names. Empty if it names nothing.

    Raises:
        SpecError: A file is not there or cannot be read, is no archive, or all are too large; the requirements file is no
            text of UTF-8; a wheel is no zip archive.
    """
    asked = PYTHON_REQUIREMENTS.read(config), PYTHON_ARCHIVES.read(config)
    if not any(asked):
        return {}
    file, _, cache = asked[0].partition("#")
    text = _requirements(file) if file else ""
    cached = {path.name: _package(path) for path in _files(cache)} if cache else {}
    archives = tuple(_archive(given) for given in asked[1].split(",") if given)
    size = sum(map(len, cached.values())) + sum(len(archive.data) for archive in archives)
    if size > MAX_BYTES:
        raise SpecError(
            "the packages and archives of the job are too large to travel with it",
            expected=f"at most {MAX_BYTES >> 20} MiB",
            got=f"{-(-size >> 20)} MiB",
            where=f"configuration keys '{PYTHON_REQUIREMENTS.key}' and '{PYTHON_ARCHIVES.key}'",
            remedy="install large packages where task managers run, or let functions read large files from a store",
        )
    return {DEPENDENCIES: FunctionArtifact(data=msgspec.msgpack.encode(Dependencies(text, cached, archives)))}


def requirements_value(file: str, cache: str | None) -> str:
    """The value of ``python.requirements`` for a requirements file and a folder of wheels."""
    return file if cache is None else f"{file}#{cache}"


def archives_value(known: str, path: str, target: str | None) -> str:
    """The value ``known`` of ``python.archives`` with one archive more."""
    added = path if target is None else f"{path}#{target}"
    return f"{known},{added}" if known else added


def decode(artifact_data: bytes) -> Dependencies:
    """What ``entries`` has encoded."""
    return msgspec.msgpack.decode(artifact_data, type=Dependencies)


def _read(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise SpecError(
            f"a file of the job's functions cannot be read: {err.strerror}",
            expected="a file on the machine where the program is planned",
            got=path,
            where=f"configuration key '{key}'",
        ) from err


def _requirements(file: str) -> str:
    data = _read(file, PYTHON_REQUIREMENTS.key)
    try:
        return data.decode("utf-8-sig")  # editors of Windows begin a text with a mark
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise SpecError(
            "the requirements file is no text of UTF-8",
            expected="a text file of UTF-8, as `pip freeze` writes it",
            got=f"the byte 0x{data[err.start]:02x} in line {line} of {file}",
            where=f"configuration key '{PYTHON_REQUIREMENTS.key}'",
            remedy="save the file as UTF-8",
        ) from err


def _package(path: Path) -> bytes:
    data = _read(str(path), PYTHON_REQUIREMENTS.key)
    if path.suffix == ".whl" and not zipfile.is_zipfile(io.BytesIO(data)):
        raise SpecError(
            "a wheel that is no zip archive",
            expected="a wheel, as `pip download -d FOLDER -r requirements.txt` fetches it",
            got=f"{path}, {len(data)} bytes",
            where=f"configuration key '{PYTHON_REQUIREMENTS.key}'",
            remedy="fetch it again",
        )
    return data


def _files(folder: str) -> list[Path]:
    root = Path(folder)
    why = "is not there"
    try:
        if root.is_dir():
            return sorted(path for path in root.iterdir() if path.is_file())
    except OSError as err:
        why = f"cannot be read: {err.strerror}"
    raise SpecError(
        f"the folder of packages {why}",
        expected="a folder with wheels, as `pip download -d FOLDER -r requirements.txt` makes it",
        got=folder,
        where=f"configuration key '{PYTHON_REQUIREMENTS.key}'",
    )


def _archive(given: str) -> Archive:
    path, _, target = given.partition("#")
    name = Path(path).name
    target = target or name
    if not name.lower().endswith(ENDINGS):
        raise SpecError(
            "a file that is no archive",
            expected=f"a name with {', '.join(ENDINGS)}",
            got=name,
            where=f"configuration key '{PYTHON_ARCHIVES.key}'",
        )
    if Path(target).is_absolute() or ".." in Path(target).parts:
        raise SpecError(
            "an archive's folder outside of the working folder",
            expected="a name such as 'data'",
            got=target,
            where=f"configuration key '{PYTHON_ARCHIVES.key}'",
        )
    return Archive(target, name, _read(path, PYTHON_ARCHIVES.key))
