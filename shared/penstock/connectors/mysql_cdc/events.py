"""The events of the binary log, decoded from their bytes.

Source: the MySQL manual, "The Binary Log" and "Replication Protocol"; the MariaDB manual, "Binlog Event Formats".
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import NamedTuple

from penstock.connectors.mysql_cdc.settings import OWNER
from penstock.errors import ConnectorError, InternalError

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT, INCIDENT = 2, 3, 4, 15, 16, 19, 27, 26
GTID, ANONYMOUS_GTID, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, GTID_TAGGED = 33, 34, 38, 39, 40, 42
MARIADB_GTID, MARIADB_GTID_LIST = 162, 163
#: Events of rows → 0 insert, 1 update, 2 delete.
WRITE, UPDATE, DELETE = 0, 1, 2
ROWS = {23: WRITE, 24: UPDATE, 25: DELETE, 30: WRITE, 31: UPDATE, 32: DELETE}
#: Events of rows whose header has a part of variable length.
_SECOND_VERSION = frozenset((30, 31, 32))
#: Events that hold rows in a form that is not read → what makes the server write them.
UNREADABLE = {
    PARTIAL_UPDATE: "binlog_row_value_options = PARTIAL_JSON",
    PAYLOAD: "binlog_transaction_compression = ON",
    165: "log_bin_compress = ON",
    **dict.fromkeys(range(166, 172), "log_bin_compress = ON"),
}
HEADER = struct.Struct("<IBIIIH")

#: Types of columns in a table map.
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR = 1, 2, 3, 4, 5, 8, 9, 10, 13
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2, JSON, DECIMAL = 15, 16, 17, 18, 19, 245, 246
ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 247, 248, 252, 253, 254, 255
_METADATA = {
    FLOAT: 1, DOUBLE: 1, VARCHAR: 2, BIT: 2, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1, JSON: 1, DECIMAL: 2, ENUM: 2, SET: 2,
    BLOB: 1, VAR_STRING: 2, STRING: 2, GEOMETRY: 1, 140: 1, 141: 2,
}  # fmt: skip


class Header(NamedTuple):
    """The head of an event. ``at_s``: its time, s since the epoch; ``end``: the place behind it in its file; 0: none."""

    at_s: int
    type: int
    end: int
    flags: int


def header(event: bytes) -> Header:
    """The head of an event."""
    at_s, type_, _, _, end, flags = HEADER.unpack_from(event)
    return Header(at_s, type_, end, flags)


@dataclass(frozen=True, slots=True)
class TableMap:
    """The description of a table for the rows that follow.

    Args:
        database: Its database.
        name: Its name.
        columns: Type and metadata of each column.
    """

    database: str
    name: str
    columns: tuple[tuple[int, int], ...]


def table_number(event: bytes) -> int:
    """The number by which rows name their table map."""
    return int.from_bytes(event[19:25], "little")


def table_map(event: bytes) -> TableMap:
    """Decode a table map. The server sends one before the rows of each statement, so those of a table are decoded once."""
    return _table_map(event[19 + 8 :])


@functools.lru_cache(maxsize=1024)
def _table_map(event: bytes) -> TableMap:
    database, at = _counted(event, 0)
    name, at = _counted(event, at)
    count, at = packed_int(event, at)
    types = event[at : at + count]
    _, at = packed_int(event, at + count)
    columns = []
    for type_ in types:
        size = _METADATA.get(type_, 0)
        raw = event[at : at + size]
        # These types have two bytes of their own; the others a number, the low byte first.
        big = type_ in (STRING, ENUM, SET, DECIMAL, VAR_STRING)
        columns.append((type_, int.from_bytes(raw, "big" if big else "little")))
        at += size
    return TableMap(database, name, tuple(columns))


def _counted(event: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + event[at]
    return event[at + 1 : end].decode(), end + 1


def packed_int(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise InternalError("the binary log: a number that cannot be read", got=str(first))
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def rows_body(event: bytes, type_: int) -> tuple[int, bytes, int]:
    """The number of columns of an event of rows, the bitmap of those that it has, and where its rows begin."""
    at = 19 + 8
    if type_ in _SECOND_VERSION:
        at += int.from_bytes(event[at : at + 2], "little")
    width, at = packed_int(event, at)
    size = (width + 7) // 8
    present, at = event[at : at + size], at + size
    if ROWS[type_] == UPDATE:
        if event[at : at + size] != present:
            raise ConnectorError(
                "the rows of an update in the binary log have other columns than one another",
                expected="binlog_row_image = FULL, in each session, too",
                got="a session with another binlog_row_image",
                where=OWNER,
                remedy="SET GLOBAL binlog_row_image = FULL, and start without this source's state",
            )
        at += size
    return width, present, at


def query(event: bytes) -> tuple[str, str]:
    """The database in use, and the statement."""
    size = event[19 + 8]
    status = int.from_bytes(event[19 + 11 : 19 + 13], "little")
    at = 19 + 13 + status
    return event[at : at + size].decode(), event[at + size + 1 :].decode(errors="replace")


def rotation(event: bytes) -> tuple[str, int]:
    """The next file, and the place in it."""
    return event[19 + 8 :].rstrip(b"\0").decode(), int.from_bytes(event[19 : 19 + 8], "little")


class MariaDbGtid(NamedTuple):
    """The begin of a group of events. ``alone``: the group is the next event; ``prepared``: an XA transaction
    that is not committed yet."""

    domain: int
    server: int
    sequence: int
    alone: bool
    prepared: bool


def mariadb_gtid(event: bytes) -> MariaDbGtid:
    """Decode MariaDB's event of a transaction's begin."""
    server = HEADER.unpack_from(event)[2]
    sequence, domain, flags = struct.unpack_from("<QIB", event, 19)
    return MariaDbGtid(domain, server, sequence, bool(flags & 1), bool(flags & 0x40))


def mysql_gtid(event: bytes) -> tuple[str, int]:
    """The source's UUID and the transaction's number of MySQL's event of a transaction's begin."""
    raw = event[20:36].hex()
    return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])), int.from_bytes(
        event[36:44], "little"
    )
