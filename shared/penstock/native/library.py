"""Finds, builds and loads the library of compiled kernels.

``python -m penstock.native`` builds it with the machine's C compiler: a plain shared library, which any Python loads by
ctypes. It is named after a digest of its sources, so that a library of other sources is never loaded. Without it
everything works, on slower ways that give the same rows: the kernels are twins, not the only ones that know.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from penstock.errors import ExternalError

_FOLDER = Path(__file__).parent
_FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-Wall", "-Wextra")


def sources() -> list[Path]:
    """The C files, in the order of their names."""
    return sorted(_FOLDER.glob("*.c"))


def file_name() -> str:
    """What the library of these sources is named on this kind of machine."""
    digest = hashlib.sha256()
    for path in sorted([*_FOLDER.glob("*.c"), *_FOLDER.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"kernels-{platform.machine()}-{digest.hexdigest()[:16]}.so"


def folders() -> list[Path]:
    """Where the library may lie: beside its sources, else in the user's cache."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [_FOLDER, cached / "penstock" / "native"]


def compiler() -> list[str] | None:
    """The C compiler of this machine and its first arguments; None: there is none."""
    words = shlex.split(os.environ.get("CC", "")) or ["cc"]
    return words if shutil.which(words[0]) else None


def build() -> Path:
    """Compile the library, unless it is there; gives its path. ExternalError without a compiler, or if it fails."""
    name = file_name()
    for folder in folders():
        if (folder / name).is_file():
            return folder / name
    found = compiler()
    if found is None:
        raise ExternalError(
            "the compiled kernels cannot be built",
            expected="a C compiler: cc, or what CC names",
            got="no such program",
            where="python -m penstock.native",
            remedy="install one (Debian: apt-get install gcc libc6-dev), or go on without: the results are the same",
        )
    target = _writable() / name
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        made = Path(work) / name
        done = subprocess.run(
            [*found, *_FLAGS, "-o", str(made), *map(str, sources())],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExternalError(
                "the compiled kernels cannot be built",
                expected=f"'{found[0]}' to compile C11",
                got=done.stderr[-500:],
                where="python -m penstock.native",
                remedy="try another compiler (CC=clang), or go on without: the results are the same",
            )
        made.rename(target)
    return target


def _writable() -> Path:
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise ExternalError(
        "the compiled kernels cannot be stored",
        expected=f"a folder that can be written: {' or '.join(map(str, folders()))}",
        got="neither can",
        where="python -m penstock.native",
        remedy="set XDG_CACHE_HOME to a folder of your own",
    )


@cache
def library() -> ctypes.CDLL | None:
    """The library, if it was built from these very sources; None: use the slower ways."""
    if os.environ.get("PENSTOCK_NATIVE") == "0":
        return None
    name = file_name()
    for folder in folders():
        if (folder / name).is_file():
            return ctypes.CDLL(str(folder / name))
    return None
