"""A real PostgreSQL in a folder of its own, on a free port of the loopback: never a system service."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port

_SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = {wal_level}
max_replication_slots = 60
max_wal_senders = 60
max_connections = 120
max_prepared_transactions = 40
shared_buffers = 32MB
fsync = off
log_min_messages = warning
"""
USER, PASSWORD = "penstock", "a-password-of-tests"
#: A password file of the format of pg_hba.conf: over TCP a password, so that a wrong one is refused.
_HBA = "host all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"


def binary(name: str) -> str | None:
    """The newest installed program of PostgreSQL of this name; Debian keeps them out of the PATH."""
    found = list(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    newest = max(found, key=lambda p: float(p.parent.parent.name), default=None)
    return str(newest) if newest is not None else shutil.which(name)


def missing() -> str | None:
    """Why no PostgreSQL can run here, in words for a skipped test; None: it can."""
    if binary("postgres") is None or binary("initdb") is None:
        return "PostgreSQL is not installed: apt-get install postgresql (make test-servers does it as root)"
    if os.getuid() == 0 and account() is None:
        return "PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'"
    return None


def account(*names: str) -> pwd.struct_passwd | None:
    """The account that a server runs as when the tests run as root, which it refuses: the first that there is."""
    for name in names or ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class PostgresServer:
    """``port`` stays the same over ``kill`` and ``start``. ``wal_level``: minimal, replica or logical."""

    def __init__(self, wal_level: str = "logical") -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        # Not under pytest's folder, which belongs to root alone when root runs it.
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            owner = account()
            assert owner is not None
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        data = self._folder / "data"
        initdb = binary("initdb")
        assert initdb is not None
        subprocess.run(
            [initdb, "-D", str(data), "-U", USER, f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8",
             "--locale=C.UTF-8", "--no-sync"],
            check=True, capture_output=True, cwd=self._folder, **self._as,
        )  # fmt: skip
        password.unlink()
        with (data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS.format(port=self.port, wal_level=wal_level))
            if wal_level == "minimal":
                file.write("max_wal_senders = 0\n")
        (data / "pg_hba.conf").write_text(_HBA)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        import psycopg

        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        program = binary("postgres")
        assert program is not None
        log = (self._folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            [program, "-D", str(self._folder / "data")], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=self._folder, preexec_fn=die_with_parent_after_exec, **self._as,
        )  # fmt: skip
        log.close()
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended: {(self._folder / 'server.log').read_text()[-2000:]}")
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would: the postmaster and all of its children."""
        assert self._process is not None
        children = _children(self._process.pid)
        for pid in (self._process.pid, *children):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        while any(Path(f"/proc/{pid}").exists() and not _zombie(pid) for pid in children):
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast: connections are ended
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reserved.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def connect(self, database: str = "postgres") -> Any:
        """A connection in which each statement is a transaction."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database, connect_timeout=10,
            autocommit=True,
        )  # fmt: skip

    def execute(self, statement: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of a statement; none when it gives none."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall()) if cursor.description is not None else []
        finally:
            connection.close()

    def database(self) -> str:
        """A new database; gives its name."""
        name = f"d{uuid.uuid4().hex[:10]}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def drop(self, database: str) -> None:
        """Drops the database's replication slots and the database."""
        slots = "FROM pg_replication_slots WHERE database = %s"
        self.execute(f"SELECT pg_terminate_backend(active_pid) {slots} AND active", database)
        while self.execute(f"SELECT 1 {slots} AND active", database):
            time.sleep(0.01)
        self.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}", database)
        self.execute(f"DROP DATABASE {database} WITH (FORCE)")


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
