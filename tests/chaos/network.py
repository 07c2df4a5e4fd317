"""Hosts of their own on one machine: network namespaces on a bridge, cut off by iptables.

A process in a host has its own private folder for local state (a small tmpfs), so that no
Unix socket leads around a cut, and so that its disk can be filled.
"""

from __future__ import annotations

import os
import re
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


def sweep() -> None:
    """Remove the namespaces of runs that were killed."""
    listed = subprocess.run(["ip", "netns"], check=False, capture_output=True, text=True).stdout
    for name in re.findall(r"^pc\d+-\w+", listed, re.MULTILINE):
        if not Path(f"/proc/{name[2:].partition('-')[0]}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


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
    """Hosts on a bridge; this machine's own processes are at ``address``. The bridge is in a
    namespace too: no firewall of this machine filters what crosses it."""

    def __init__(self, hosts: int) -> None:
        self._name = f"pc{os.getpid()}"
        self._switch = f"{self._name}-switch"
        number = os.getpid() % 25_000
        subnet = f"10.{100 + number // 250}.{number % 250}"
        self.address = f"{subnet}.1"
        self.hosts = [Host(f"{self._name}-{i}", f"{subnet}.{i + 2}") for i in range(hosts)]

    def make(self) -> None:
        if not self.hosts:
            return
        sweep()
        try:
            _run("ip", "netns", "add", self._switch)
            _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            _run(
                "ip", "link", "add", self._name, "type", "veth", "peer", "name", "own", "netns", self._switch
            )
            _run("ip", "addr", "add", f"{self.address}/24", "dev", self._name)
            _run("ip", "link", "set", self._name, "up")
            self._plug("own")
            for i, host in enumerate(self.hosts):
                port = f"port{i}"
                _run("ip", "netns", "add", host.name)
                _run(
                    "ip", "-n", host.name, "link", "add", "net0", "type", "veth", "peer", "name", port,
                    "netns", self._switch,
                )  # fmt: skip
                self._plug(port)
                _run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", "net0")
                _run("ip", "-n", host.name, "link", "set", "net0", "up")
                _run("ip", "-n", host.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.remove()
            raise

    def _plug(self, port: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")

    def remove(self) -> None:
        if not self.hosts:
            return
        for name in (*(host.name for host in self.hosts), self._switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], check=False, capture_output=True)
