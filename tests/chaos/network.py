"""Hosts of their own on one machine: network namespaces on a bridge, cut off by iptables.

A process in a host has its own private folder for local state (a small tmpfs), so that no
Unix socket leads around a cut, and so that its disk can be filled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

TMPFS_MB = 256


def why_not() -> str | None:
    """None when hosts can be made here; else why not."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "iptables", "mount"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    name = f"pcx{os.getpid() % 10000}"
    try:
        _run("ip", "netns", "add", name)
        try:
            _run("ip", "netns", "exec", name, "iptables", "-A", "INPUT", "-j", "DROP")
        finally:
            _run("ip", "netns", "del", name)
    except subprocess.CalledProcessError as err:
        return f"{' '.join(err.cmd)}: {err.stderr.strip()}"
    return None


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Host:
    """A network namespace; ``address`` is its own on the bridge."""

    name: str
    address: str

    def wrap(self, argv: list[str], private: Path) -> list[str]:
        """The command inside the host, with ``private`` a folder that nobody else sees."""
        script = f'mount -t tmpfs -o size={TMPFS_MB}m chaos "$0" && exec "$@"'
        return ["ip", "netns", "exec", self.name, "sh", "-c", script, str(private), *argv]

    def cut(self, direction: str = "both") -> None:
        """Every packet to (``in``) or from (``out``) it is dropped."""
        for chain, where in (("INPUT", "in"), ("OUTPUT", "out")):
            if direction in (where, "both"):
                self._iptables("-A", chain, "!", "-i" if where == "in" else "-o", "lo", "-j", "DROP")

    def mend(self) -> None:
        self._iptables("-F")

    def _iptables(self, *argv: str) -> None:
        _run("ip", "netns", "exec", self.name, "iptables", *argv)


class Network:
    """A bridge; this machine's own processes are at ``address``."""

    def __init__(self, hosts: int) -> None:
        number = os.getpid() % 65_000
        self._bridge = f"pc{number}"
        subnet = f"10.{100 + number // 250 % 100}.{number % 250}"
        self.address = f"{subnet}.1"
        self.hosts = [Host(f"pc{number}-{i}", f"{subnet}.{i + 2}") for i in range(hosts)]

    def make(self) -> None:
        if not self.hosts:
            return
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        try:
            _run("ip", "addr", "add", f"{self.address}/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for i, host in enumerate(self.hosts):
                outer, inner = f"{self._bridge}v{i}", f"{self._bridge}w{i}"
                _run("ip", "netns", "add", host.name)
                _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", host.name)
                _run("ip", "link", "set", outer, "master", self._bridge, "up")
                _run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", inner)
                _run("ip", "-n", host.name, "link", "set", inner, "up")
                _run("ip", "-n", host.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.remove()
            raise

    def remove(self) -> None:
        if not self.hosts:
            return
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
