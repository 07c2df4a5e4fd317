"""PostgreSQL's streaming replication protocol over libpq: messages in, feedback out.

psycopg's own interface has no replication, but its libpq functions suffice. (psycopg2 supports replication
but confirms by itself what the server has read; here the confirmed place must move with completed checkpoints
only.)

Source: the PostgreSQL manual, "Streaming Replication Protocol".
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres_cdc.database import connection_words, failure, literal, quoted
from penstock.connectors.postgres_cdc.position import lsn_text
from penstock.connectors.postgres_cdc.slot import publication_name
from penstock.errors import ExternalError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: ``w``: three int64 (start, end, time) precede the message of the plugin.
_DATA, _DATA_AT, _KEEPALIVE = ord("w"), 25, ord("k")
_ALIVE = struct.Struct(">qqB")
_FEEDBACK = struct.Struct(">cqqqqB")
_EPOCH_S = 946_684_800


class ReplicationStream:
    """The stream of changes after ``lsn``. Opening blocks, and raises ExternalError also while another reader
    has the slot."""

    def __init__(self, options: Mapping[str, Any], lsn: int) -> None:
        from psycopg import pq
        from psycopg.conninfo import make_conninfo

        self._options = options
        self._connection = pq.PGconn.connect(
            make_conninfo(**connection_words(options), replication="database").encode()
        )
        try:
            if self._connection.status != pq.ConnStatus.OK:
                raise self._failed("the database cannot be opened for replication")
            names = literal(quoted(publication_name(options))).removeprefix("E")
            started = self._connection.exec_(
                f"START_REPLICATION SLOT {quoted(options['slot.name'])} LOGICAL {lsn_text(lsn)} "
                f"(proto_version '1', publication_names {names})".encode()
            )
            if started.status != pq.ExecStatus.COPY_BOTH:
                code = (started.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                raise self._failed("the changes cannot be read", code)
            self._connection.nonblocking = 1
        except BaseException:
            self.close()
            raise
        #: The place up to which the server has read the log, as it last reported; all changes before it have
        #: arrived.
        self.looked = 0
        self._flushed = 0
        self._received = lsn

    def _failed(self, what: str, code: str = "") -> PenstockError:
        text = self._connection.error_message.decode(errors="replace").strip()
        return stream_failure(what, text or "the connection was closed", code, self._options)

    def fileno(self) -> int:
        """The socket, for a selector."""
        return int(self._connection.socket)

    def read(self) -> bytes | None:
        """The next message of the plugin that has arrived; None: none has arrived."""
        from psycopg import OperationalError

        try:
            while True:
                size, data = self._connection.get_copy_data(1)
                if size == 0:
                    self._connection.consume_input()
                    size, data = self._connection.get_copy_data(1)
                    if size == 0:
                        return None
                if size < 0:
                    raise self._failed("the server ended the stream of changes")
                if data[0] == _DATA:
                    return bytes(data[_DATA_AT:])
                if data[0] == _KEEPALIVE:
                    self.looked, _, asked = _ALIVE.unpack_from(data, 1)
                    if asked:
                        self.feedback()
        except OperationalError as err:
            raise failure(err, "the stream of changes ended", self._options) from None

    def confirm(self, lsn: int) -> None:
        """Tell the server that changes up to ``lsn`` will never be read again."""
        if lsn > self._flushed:
            self._flushed = lsn
            self.feedback()

    def feedback(self, *, answer: bool = False) -> None:
        """Tell the server that this reader is alive. ``answer``: also ask how far the server has read."""
        from psycopg import OperationalError

        now_us = int((time.time() - _EPOCH_S) * 1_000_000)
        self._received = max(self._received, self.looked)
        message = _FEEDBACK.pack(b"r", self._received, self._flushed, self._flushed, now_us, answer)
        try:
            self._connection.put_copy_data(message)
            self._connection.flush()
        except OperationalError as err:
            raise failure(err, "the stream of changes ended", self._options) from None

    def close(self) -> None:
        """Closes the connection; the server frees the slot."""
        self._connection.finish()


def stream_failure(what: str, text: str, code: str, options: Mapping[str, Any]) -> PenstockError:
    """The error for a message of the server or libpq. ``code``: SQLSTATE; empty when the connection broke."""
    from psycopg import OperationalError

    if code == "55006":  # the slot is active
        return ExternalError(
            what,
            got=text,
            where=f"replication slot '{options['slot.name']}'",
            remedy="end the job that reads the slot, or set another 'slot.name'",
        )
    return failure(_Told(text, code) if code else OperationalError(text), what, options)


class _Told(Exception):
    """An error of the server. ``sqlstate``: its code."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate
