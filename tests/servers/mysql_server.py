"""A real MySQL in a folder of its own, on a free port of the loopback: Debian's package, unpacked into the cache."""

from __future__ import annotations

import os
from pathlib import Path

from tests.servers import cache
from tests.servers.mariadb_server import MariaDbServer


def missing() -> str | None:
    """Why no MySQL can run here, in words for a skipped test; None: it can."""
    if not (_root() / cache.FROM_SID["mysql"][1]).exists():
        return "MySQL is not there: make test-servers fetches it from Debian"
    return None


def _root() -> Path:
    return cache.folder() / "mysql"


class MySqlServer(MariaDbServer):
    """A MySQL, whose transactions have GTIDs unless ``more`` says otherwise."""

    #: The cache may lie in a folder that only root may read.
    own_user = False

    def _program(self) -> list[str]:
        # With the libraries that it was built for: the machine's may be older.
        libraries = _root() / "usr/lib/x86_64-linux-gnu"
        private = _root() / "usr/lib/mysql/private"
        return [
            str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{private}",
            str(_root() / "usr/sbin/mysqld"), "--no-defaults", f"--basedir={_root() / 'usr'}",
            *(["--user=root"] if os.getuid() == 0 else []),
        ]  # fmt: skip

    def _install(self) -> list[str]:
        return [*self._program(), "--initialize-insecure", f"--datadir={self._folder / 'data'}"]

    def _command(self) -> list[str]:
        return [
            *self._program(),
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--mysqlx=OFF",
            "--secure-file-priv=",
        ]
