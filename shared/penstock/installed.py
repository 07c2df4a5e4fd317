"""Which code is the user's, and which was installed: decided by where its file lies.

Installed code is everywhere where Penstock is; the user's (the script, what lies beside it, a
project that is worked on) is sent along. Installed is what lies in a folder of the interpreter or in
any ``site-packages``, what stands in a distribution's list of files (``pip install --target`` on
``PYTHONPATH``), and Penstock itself, wherever it is: editable, zipped, on ``PYTHONPATH``.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

#: The package, not the folder around it: beside an editable Penstock may lie the user's files.
OURS = str(Path(__file__).resolve().parent)
#: Folders of these names hold what pip or a distribution of Linux installed.
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@lru_cache(maxsize=1)
def library_folders() -> tuple[str, ...]:
    """The interpreter's folders: of a virtual environment, of what it is based on, of the user."""
    found: set[str] = set()
    for base in {sys.prefix, sys.base_prefix}:
        variables = {"base": base, "platbase": base, "installed_base": sys.base_prefix}
        for name in ("stdlib", "platstdlib", "purelib", "platlib"):
            found.add(sysconfig.get_path(name, vars=variables))
    found.update(site.getsitepackages())
    if user := site.getusersitepackages():
        found.add(user)
    return tuple(sorted({*found, *(str(Path(x).resolve()) for x in found)}))


def is_installed(file: str) -> bool:
    """Whether a module's file is not the user's."""
    return _is_installed(file, library_folders(), OURS)


# Asked of every imported module whenever a function is pickled.
@lru_cache(maxsize=16_384)
def _is_installed(file: str, folders: tuple[str, ...], ours: str) -> bool:
    path = Path(file)
    if not path.is_absolute():
        return file.startswith("<frozen ")  # "<string>", "<stdin>": a program without a file
    for form in {path, path.resolve()}:
        if _within(form, ours) or any(_within(form, folder) for folder in folders):
            return True
        if any(part in _PACKAGE_FOLDERS for part in form.parts):
            return True
        for folder in form.parents:
            if str(form.relative_to(folder)).replace("\\", "/") in distributed_files(str(folder)):
                return True
    return False


def _within(path: Path, folder: str) -> bool:
    return path.is_relative_to(folder)


@lru_cache(maxsize=256)
def distributed_files(folder: str) -> frozenset[str]:
    """What the distributions that were installed into a folder list as theirs, relative to it."""
    found: set[str] = set()
    root = Path(folder)
    try:
        records = [*root.glob("*.dist-info/RECORD"), *root.glob("*.egg-info/installed-files.txt")]
    except OSError:
        return frozenset()
    for record in records:
        try:
            lines = record.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        found.update(line.split(",", 1)[0].strip('"') for line in lines if line)
    return frozenset(found)
