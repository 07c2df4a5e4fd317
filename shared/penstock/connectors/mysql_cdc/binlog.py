"""The server's binary log over its replication protocol: events in, without waiting.

The connection and the login are pymysql's. The package mysql-replication is not used: it turns zero dates into NULL,
waits in its reads, and makes a Python object for each value.

Source: the MySQL manual, "Replication Protocol"; the MariaDB manual, "Replication Protocol".
"""

from __future__ import annotations

import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

from penstock.connectors.mysql_cdc.database import connect, failure, is_mariadb, place
from penstock.connectors.mysql_cdc.events import FORMAT
from penstock.connectors.mysql_cdc.position import Gtids, Place
from penstock.errors import ConnectorError, ExternalError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DUMP, _DUMP_GTID = 0x12, 0x1E
_BY_GTIDS = 0x04
_MOST = 0xFFFFFF
_BLOCK = 1 << 18
_OK, _ERROR, _EOF = 0x00, 0xFF, 0xFE
#: The algorithm of checksums that a file names.
_CRC32 = 1
#: The server's number for an error of the log's reader.
_LOG_ERROR = 1236
#: What it says when another reader came with the same number.
_TAKEN = ("server_uuid/server_id", "same server_id", "same server-id")
#: A heartbeat while the snapshot waits for the stream, in seconds: it says how far the server has read.
_SNAPSHOT_BEAT_S = 0.1
_YEAR_S = 31_536_000


class BinlogStream:
    """The events behind ``start``. Opening blocks. ``eager``: heartbeats come often."""

    def __init__(self, options: Mapping[str, Any], start: Place, server_id: int, *, eager: bool) -> None:
        import pymysql

        self._options, self._start = options, start
        self._buffer = bytearray()
        self._at = 0
        self._beat_s = min(_SNAPSHOT_BEAT_S if eager else 3600.0, options["heartbeat.interval"] / 1000)
        self._silent_s = 3 * options["heartbeat.interval"] / 1000
        self._heard_at = time.monotonic()
        self._connection = connect(options, timeout_s=max(1, options["connect.timeout"] / 1000))
        try:
            with self._connection.cursor() as cursor:
                self._prepare(cursor)
            self._ask(server_id)
            self._socket = self._connection._sock
            self._socket.setblocking(False)
        except (pymysql.Error, OSError) as err:
            self.close()
            raise failure(err, "the binary log cannot be read", options) from None
        except BaseException:
            self.close()
            raise

    def _prepare(self, cursor: Any) -> None:
        cursor.execute("SELECT @@GLOBAL.binlog_checksum")
        self._checksums = cursor.fetchone()[0] != "NONE"
        cursor.execute(
            "SET @master_binlog_checksum = @@GLOBAL.binlog_checksum, @source_binlog_checksum = @@GLOBAL.binlog_checksum"
        )
        beat_ns = int(self._beat_s * 1e9)
        cursor.execute(f"SET @master_heartbeat_period = {beat_ns}, @source_heartbeat_period = {beat_ns}")
        # The server drops a reader that takes nothing for this long; back-pressure may last.
        cursor.execute(f"SET SESSION net_write_timeout = {_YEAR_S}")
        if is_mariadb(self._connection):
            cursor.execute("SET @mariadb_slave_capability = 4")
            if self._start.gtids is not None:
                cursor.execute("SET @slave_connect_state = %s", (self._start.gtids,))
                # A state that the log does not have is an error, not a jump.
                cursor.execute("SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")

    def _ask(self, server_id: int) -> None:
        start = self._start
        if start.gtids is not None and not is_mariadb(self._connection):
            known = Gtids(start.gtids, mariadb=False).encoded()
            body = struct.pack("<HII", _BY_GTIDS, server_id, 0) + struct.pack("<QI", 4, len(known)) + known
            self._send(bytes([_DUMP_GTID]) + body)
            return
        file, pos = ("", 4) if start.gtids is not None else (start.file, start.pos)
        self._send(bytes([_DUMP]) + struct.pack("<IHI", pos, 0, server_id) + file.encode())

    def _send(self, payload: bytes) -> None:
        self._connection._write_bytes(len(payload).to_bytes(3, "little") + b"\0" + payload)

    def fileno(self) -> int:
        """The socket, for a selector."""
        return int(self._socket.fileno())

    def read(self) -> bytes | None:
        """The next event that has arrived; None: none has arrived. ExternalError when the connection is lost,
        ConnectorError when the server no longer has the log."""
        payload = self._packet()
        while payload is None:
            if not self._receive():
                if time.monotonic() - self._heard_at > self._silent_s:
                    raise self._lost(f"not a word for {self._silent_s:.0f} s")
                return None
            payload = self._packet()
        first = payload[0]
        if first == _OK:
            return self._checked(payload[1:])
        if first == _ERROR:
            raise log_failure(
                int.from_bytes(payload[1:3], "little"), payload[3:].decode(errors="replace"), self._options
            )
        raise self._lost("the server ended the log" if first == _EOF else "an unknown packet")

    def _checked(self, event: bytes) -> bytes:
        """The event without its checksum. Each file says in its first event whether its events have one."""
        if event[4] == FORMAT:
            self._checksums = event[-5] == _CRC32
            return event[:-4]
        if not self._checksums:
            return event
        if zlib.crc32(event[:-4]) != int.from_bytes(event[-4:], "little"):
            raise ConnectorError(
                "the binary log is damaged",
                expected="an event that fits its checksum",
                got=f"another one, in an event of type {event[4]}",
                where=place(self._options),
                remedy="check the server's disk; start without this source's state",
            )
        return event[:-4]

    def _lost(self, got: str) -> ExternalError:
        return ExternalError(
            "the binary log stopped",
            got=got,
            where=place(self._options),
            remedy="check that the server runs, and that no other reader has the same 'server-id'",
        )

    def _receive(self) -> bool:
        """Take what has arrived from the socket; False if nothing has."""
        import ssl

        try:
            block = self._socket.recv(_BLOCK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError as err:
            raise self._lost(str(err)) from None
        if not block:
            raise self._lost("the server closed the connection")
        self._heard_at = time.monotonic()
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += block
        return True

    def _packet(self) -> bytes | None:
        """The next whole payload in the buffer."""
        parts, at = [], self._at
        while True:
            if len(self._buffer) - at < 4:
                return None
            size = int.from_bytes(self._buffer[at : at + 3], "little")
            end = at + 4 + size
            if len(self._buffer) < end:
                return None
            parts.append(bytes(self._buffer[at + 4 : end]))
            at = end
            if size < _MOST:
                break
        self._at = at
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Closes the connection; the server ends its thread for it."""
        self._connection._force_close()


def log_failure(number: int, text: str, options: Mapping[str, Any]) -> PenstockError:
    """The error that the server sent instead of an event."""
    said = text.removeprefix("#").strip()
    if number == _LOG_ERROR and any(words in said for words in _TAKEN):
        return ExternalError(
            "another reader of the binary log has the same number",
            expected="a 'server-id' of its own for each reader and replica",
            got=said[:500],
            where=place(options),
            remedy="set another 'server-id'",
        )
    if number == _LOG_ERROR:
        return ConnectorError(
            "the server's binary log no longer has the changes behind this position",
            expected="a log that is kept longer than the job may stand still",
            got=said[:500],
            where=place(options),
            remedy="start the job without its state and with 'scan.startup.mode' = 'initial'; "
            "raise binlog_expire_logs_seconds",
        )
    return failure(_Told(number, said), "the binary log cannot be read", options)


class _Told(Exception):
    """An error of the server: its number and its text."""
