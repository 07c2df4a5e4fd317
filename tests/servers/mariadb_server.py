"""A real MariaDB in a folder of its own, on a free port of the loopback: never a system service."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers.postgres_server import account

USER, PASSWORD = "penstock", "a-password-of-tests"
#: How long a server may take to start, and a statement to end: against hanging only.
_PATIENCE_S = 180


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def missing() -> str | None:
    """Why no MariaDB can run here, in words for a skipped test; None: it can."""
    if _program("mariadbd") is None or _program("mariadb-install-db") is None:
        return "MariaDB is not installed: apt-get install mariadb-server (make test-servers does it as root)"
    return None


class MariaDbServer:
    """A MariaDB.

    ``port`` stays the same over ``kill`` and ``start``. ``more``: options of the server beside its binary log's.
    Its time zone is not UTC, so that a value that depends on it shows."""

    #: Whether a server that root starts runs as Debian's user of such servers.
    own_user: ClassVar[bool] = True

    def __init__(self, *more: str) -> None:
        self._more = more
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
        self._as: dict[str, Any] = {}
        user = account("mysql") if self.own_user and os.getuid() == 0 else None
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(self._install(), check=True, capture_output=True, cwd=self._folder, **self._as)
        self._first = self._folder / "first.sql"
        self._first.write_text(
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
        )
        self._first.chmod(0o644)

    def _install(self) -> list[str]:
        """The command that makes the data folder."""
        install = _program("mariadb-install-db")
        assert install is not None
        return [
            install, "--no-defaults", f"--datadir={self._folder / 'data'}", "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]  # fmt: skip

    def _command(self) -> list[str]:
        """The command that runs the server, without the options that both products have."""
        program = _program("mariadbd")
        assert program is not None
        return [program, "--no-defaults"]

    def start(self) -> None:
        """Starts it and waits until it answers."""
        import pymysql

        log = (self._folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            [*self._command(), f"--datadir={self._folder / 'data'}", f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--socket={self._folder / 'socket'}", f"--pid-file={self._folder / 'pid'}", f"--init-file={self._first}",
             "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2", "--skip-name-resolve",
             "--log-bin=binlog", "--server-id=1", f"--lock-wait-timeout={_PATIENCE_S // 2}", "--binlog-format=ROW", "--default-time-zone=+05:30", *self._more],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, preexec_fn=die_with_parent_after_exec, **self._as,
        )  # fmt: skip
        log.close()
        until = time.monotonic() + _PATIENCE_S
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended: {(self._folder / 'server.log').read_text()[-2000:]}")
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError as err:
                if time.monotonic() > until:
                    said = (self._folder / "server.log").read_text()[-2000:]
                    raise RuntimeError(f"the server does not answer ({err}): {said}") from None
                time.sleep(0.05)

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._reserved.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, database: str | None = None) -> Any:
        """A connection in which each statement is a transaction."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database,
            autocommit=True,
            ssl_disabled=True,
            connect_timeout=10,
            read_timeout=_PATIENCE_S,
            write_timeout=_PATIENCE_S,
        )

    def execute(self, statement: str, *values: Any, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement; none when it gives none."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def database(self) -> str:
        """A new database; gives its name."""
        name = f"d{uuid.uuid4().hex[:10]}"
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        return name

    def drop(self, database: str) -> None:
        self.execute(f"DROP DATABASE {database}")
