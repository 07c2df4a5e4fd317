"""Names of servers that can vanish: what happens to a container that dies takes its name along.

Every process of the cluster has a hosts file and a resolver of its own (bind mounts in a mount
namespace). The resolver never answers, so that a name which has vanished is looked up until the
caller's patience ends, as behind a cut-off DNS server.
"""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

_LOCAL = "127.0.0.1 localhost\n::1 localhost\n"


class Names:
    """``address``: where the named servers are, and where the silent resolver listens."""

    def __init__(self, folder: Path, address: str, names: tuple[str, ...]) -> None:
        self._address = address
        self._known = dict.fromkeys(names, True)
        self._hosts = folder / "hosts"
        self._resolver = folder / "resolv.conf"
        self._socket: socket.socket | None = None

    def start(self) -> None:
        self._hosts.parent.mkdir(parents=True, exist_ok=True)
        self._write()
        self._resolver.write_text(f"nameserver {self._address}\noptions timeout:3 attempts:1\n")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self._address, 53))  # queries are taken and not answered

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def wrap(self, argv: list[str]) -> list[str]:
        """The command with these names in place of the machine's."""
        mounts = " && ".join(
            f"mount --bind {shlex.quote(str(file))} /etc/{file.name}"
            for file in (self._hosts, self._resolver)
        )
        return ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$0" "$@"', *argv]

    def forget(self, name: str) -> None:
        self._known[name] = False
        self._write()

    def remember(self, name: str) -> None:
        self._known[name] = True
        self._write()

    def _write(self) -> None:
        lines = [f"{self._address} {name}\n" for name, known in self._known.items() if known]
        # In place: the processes see this very file.
        self._hosts.write_text(_LOCAL + "".join(lines))
