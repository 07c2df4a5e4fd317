"""Checks that a standing Spark can be reached."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from penstock.errors import SparkUnreachableError

_CONNECT_S = 10.0


def reached(url: str) -> None:
    """Raises SparkUnreachableError if nothing listens at the URL of a standing Spark. Without this check
    Spark's client would try for minutes."""
    address = urlsplit(url)
    if address.scheme not in ("sc", "spark"):
        return
    default = 15002 if address.scheme == "sc" else 7077
    # spark://a:7077,b:7077 names standby masters: one that answers is enough.
    hosts = [urlsplit(f"//{part}") for part in address.netloc.split(",")]
    failures = []
    for host in hosts:
        try:
            socket.create_connection((host.hostname or "", host.port or default), _CONNECT_S).close()
            return
        except OSError as err:
            failures.append(f"{host.netloc}: {err.strerror or err}")
    raise SparkUnreachableError(
        f"no Spark answers at {url}",
        expected="a Spark Connect server" if address.scheme == "sc" else "a Spark master",
        got="; ".join(failures),
        where="spark.remote" if address.scheme == "sc" else "spark.master",
        remedy="check that it runs, its address and port, and that this host reaches it",
    )
