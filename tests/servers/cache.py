"""Where fetched servers lie, and how they get there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: Servers that Maven brings, by the folder of their ``pom.xml``, and what it does with them.
FROM_MAVEN = {"kafka": "copy-dependencies", "apicurio": "unpack"}


def folder() -> Path:
    """The cache: ``PENSTOCK_TEST_SERVERS``, else a folder in the user's cache."""
    given = os.environ.get("PENSTOCK_TEST_SERVERS")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "penstock" / "test-servers"


def jars(name: str) -> list[Path]:
    """The jars of a server; none when it was not fetched."""
    return sorted((folder() / name).glob("*.jar"))


def missing(name: str) -> str | None:
    """Why a server of jars cannot run here, in words for a skipped test; None: it can."""
    if not jars(name):
        return f"{name} is not there: make test-servers fetches it"
    if shutil.which("java") is None:
        return f"{name} needs Java, which is not installed"
    return None


def fetch(name: str) -> str:
    """Copy the jars of a server and what they need into the cache; says what was done."""
    if jars(name):
        return f"{name}: is there, in {folder() / name}"
    maven = shutil.which("mvn")
    if maven is None:
        return f"{name}: not fetched, because Maven (mvn) is not installed"
    target = folder() / name
    partly = target.with_suffix(".partly")
    shutil.rmtree(partly, ignore_errors=True)
    pom = Path(__file__).with_name(name) / "pom.xml"
    subprocess.run(
        [maven, "-q", "-B", "-f", str(pom), f"dependency:{FROM_MAVEN[name]}", f"-DoutputDirectory={partly}"],
        check=True,
    )
    partly.rename(target)
    return f"{name}: fetched into {target}"
