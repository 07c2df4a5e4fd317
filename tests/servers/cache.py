"""Where fetched servers lie, and how they get there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

#: Servers that Debian brings, by their package, and the program that shows that one is installed.
FROM_DEBIAN = {
    "postgresql": "/usr/lib/postgresql/*/bin/postgres",
    "mariadb-server": "/usr/sbin/mariadbd",
    "mosquitto": "/usr/sbin/mosquitto",
    "rabbitmq-server": "/usr/lib/rabbitmq/bin/rabbitmq-server",
}
#: Servers that Maven brings, by the folder of their ``pom.xml``, and what it does with them.
FROM_MAVEN = {"kafka": "copy-dependencies", "apicurio": "unpack", "opensearch": "copy-dependencies",
              "iceberg_rest": "copy-dependencies"}  # fmt: skip
#: Servers that only Debian's newest release brings: the package, and a program of it.
FROM_SID = {"mysql": ("mysql-server-core", "usr/sbin/mysqld")}


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


def unpack_from_debian(name: str, package: str, program: str) -> str:
    """Unpack a package of Debian's newest release, with all libraries that it needs, into the cache; says what was done.

    For a server that stable releases do not have. Nothing is installed, and it takes no root; ``program``: what
    shows that it is there, below the folder ``name``."""
    target = folder() / name
    if (target / program).exists():
        return f"{name}: is there, in {target}"
    mirror = _mirror()
    if mirror is None or shutil.which("dpkg-deb") is None:
        return f"{name}: not fetched, because that takes a Debian with apt-get"
    partly = target.with_suffix(".partly")
    shutil.rmtree(partly, ignore_errors=True)
    apt = partly / "apt"
    for made in ("lists/partial", "cache/archives/partial"):
        (apt / made).mkdir(parents=True)
    (apt / "sources.list").write_text(f"deb {mirror} sid main\n")
    (apt / "status").touch()  # of a machine that has no package: all that it needs is fetched
    options = [
        f"Dir::Etc::sourcelist={apt}/sources.list", "Dir::Etc::sourceparts=-", f"Dir::State::lists={apt}/lists",
        f"Dir::Cache={apt}/cache", f"Dir::State::status={apt}/status", "APT::Install-Recommends=false",
        "APT::Sandbox::User=", "Debug::NoLocking=true",
    ]  # fmt: skip
    command = ["apt-get", "-q", "-y", *(word for option in options for word in ("-o", option))]
    try:
        subprocess.run([*command, "update"], check=True)
        subprocess.run([*command, "--download-only", "install", package], check=True)
    except subprocess.CalledProcessError as err:
        # That release changes each day, and is not always whole.
        return f"{name}: not fetched, because apt-get ended with {err.returncode}"
    for found in (apt / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(found), str(partly)], check=True)
    shutil.rmtree(apt)
    partly.rename(target)
    return f"{name}: fetched into {target}"


def _mirror() -> str | None:
    """The mirror of this machine's own Debian; None: it is none."""
    folder_of_apt = Path("/etc/apt")
    for file in sorted([*folder_of_apt.glob("sources.list.d/*.sources"), *folder_of_apt.glob("*.list")]):
        found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s+(\S+)", file.read_text(), re.MULTILINE)
        if found is not None and shutil.which("apt-get") is not None:
            return found[1]
    return None


def install(package: str) -> str:
    """Install a server's Debian package, where that is possible, without starting the service; says what was done."""
    if any(Path("/").glob(FROM_DEBIAN[package].lstrip("/"))):
        return f"{package}: is installed"
    if shutil.which("apt-get") is None or os.getuid() != 0:
        return f"{package}: not installed, because that takes root and apt-get: apt-get install {package}"
    # Debian starts a service when it is installed, except in this runlevel.
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "-q", "update"], check=True, env=quietly)
    subprocess.run(
        ["apt-get", "-q", "-y", "install", "--no-install-recommends", package], check=True, env=quietly
    )
    return f"{package}: installed"
