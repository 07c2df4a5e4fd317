"""Installs the packages and unpacks the archives that came with a job."""

from __future__ import annotations

import fcntl
import importlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import FunctionError

if TYPE_CHECKING:
    from penstock.jobgraph.dependencies import Archive, Dependencies

#: Where PyFlink's functions find the folder of the packages.
INSTALLED = "_PYTHON_REQUIREMENTS_INSTALL_DIR"
_PACKAGES = "packages"


def use(dependencies: Dependencies, private: Path, shared: Path | None = None) -> None:
    """Let this process import the packages and, if there are archives, find them in its working folder.

    Packages are kept by the hash of what was asked for, so that processes that need the same install it once.

    Args:
        dependencies: What came with the job.
        private: Folder of this process alone, for the archives.
        shared: Folder of all jobs of a task manager, for the packages. None, or where a sandbox forbids to write
            there: ``private``.

    Raises:
        FunctionError: A package cannot be installed, or an archive is damaged.
    """
    if dependencies.requirements:
        usable = shared is not None and os.access(shared.parent, os.W_OK)
        packages = str(
            _packages(dependencies, shared if shared is not None and usable else private / "packages")
        )
        if packages not in sys.path:
            sys.path.insert(0, packages)
            importlib.invalidate_caches()
        os.environ[INSTALLED] = packages
    if dependencies.archives:
        folder = private / "python-archives"
        for archive in dependencies.archives:
            _unpack(archive, folder / archive.target)
        os.chdir(folder)


def _packages(dependencies: Dependencies, root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    folder = root / dependencies.digest[:32]
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another slot may build it: then it is there afterwards
        if not folder.exists():
            partial = root / f"{folder.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _install(dependencies, partial)
            partial.rename(folder)
    return folder / _PACKAGES


def _install(dependencies: Dependencies, folder: Path) -> None:
    (folder / "requirements.txt").write_text(dependencies.requirements)
    options: list[str] = []
    if dependencies.cached:
        cached = folder / "cached"
        cached.mkdir()
        for name, data in dependencies.cached.items():
            (cached / name).write_bytes(data)
        options = ["--no-index", "--find-links", str(cached)]
    command = [
        sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet",
        "--target", str(folder / _PACKAGES), *options, "-r", str(folder / "requirements.txt"),
    ]  # fmt: skip
    # A sandbox may leave no other place for temporary files.
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise FunctionError(
            "the packages that the job requires cannot be installed",
            expected="packages for this Python, in the folder that came with the job or in a reachable index",
            got=done.stderr.strip()[-2000:] or f"pip ended with {done.returncode}",
            where="python.requirements",
            remedy="pip download -d FOLDER -r FILE, and set_python_requirements(FILE, FOLDER)",
        )


def _unpack(archive: Archive, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO(archive.data)
    try:
        if archive.name.lower().endswith((".zip", ".jar")):
            with zipfile.ZipFile(content) as zipped:
                zipped.extractall(target)
                for entry in zipped.infolist():
                    mode = entry.external_attr >> 16
                    if mode and not entry.is_dir():
                        (target / entry.filename).chmod(mode & 0o777)  # programs in it can be run
        else:
            with tarfile.open(fileobj=content) as packed:
                packed.extractall(target, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, OSError) as err:
        raise FunctionError(
            f"the archive '{archive.name}' cannot be unpacked: {err}",
            expected="a whole zip or tar file",
            got=f"{len(archive.data)} bytes",
            where="python.archives",
        ) from err
