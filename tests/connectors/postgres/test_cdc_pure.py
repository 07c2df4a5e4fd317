"""The decoder of pgoutput, positions and types, without a server."""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.connectors.postgres_cdc import pgoutput
from penstock.connectors.postgres_cdc.position import Cursor, Position, View, Window, lsn_of, lsn_text
from penstock.connectors.postgres_cdc.replication import stream_failure
from penstock.connectors.postgres_cdc.values import DatabaseType, check_type, column_of, parse_array
from penstock.errors import ConnectorError, ExternalError, InternalError, RecordError
from penstock.types import logical as t
from penstock.types.batch import RowKind

INS, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
UNCHANGED = object()


def tuple_of(values):
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(value)) + value)
    return b"".join(parts)


def message(letter, *tuples):
    """``tuples``: pairs of a letter and values."""
    head = letter + struct.pack(">I", 4711)
    return head + b"".join(mark + tuple_of(values) for mark, values in tuples)


def decoded(messages, width):
    found = pgoutput.changes(messages, width)
    columns = [column.to_pylist() for column in found.columns]
    rows = [tuple(column[i] for column in columns) for i in range(len(found))]
    return [(RowKind(k), row) for k, row in zip(found.kinds.tolist(), rows, strict=True)], found


def test_inserts_updates_and_deletes_come_in_order_with_their_old_rows():
    rows, found = decoded(
        [
            message(b"I", (b"N", [b"1", b"a"])),
            message(b"U", (b"O", [b"1", b"a"]), (b"N", [b"1", None])),
            message(b"U", (b"N", [b"2", b""])),
            message(b"U", (b"K", [b"2", None]), (b"N", [b"3", "ü".encode()])),
            message(b"D", (b"O", [b"1", None])),
            message(b"D", (b"K", [b"3", None])),
        ],
        2,
    )
    assert rows == [
        (INS, (b"1", b"a")), (UB, (b"1", b"a")), (UA, (b"1", None)), (UA, (b"2", b"")), (UB, (b"2", None)),
        (UA, (b"3", "ü".encode())), (DEL, (b"1", None)), (DEL, (b"3", None)),
    ]  # fmt: skip
    assert found.message.tolist() == [0, 1, 1, 2, 3, 3, 4, 5]
    assert found.key_only.tolist() == [False] * 4 + [True, False, False, True]
    assert found.unchanged == [None, None]


def test_a_value_that_was_not_sent_comes_from_the_full_old_row_and_is_marked_without_one():
    rows, found = decoded(
        [
            message(b"U", (b"O", [b"1", b"long"]), (b"N", [b"1", UNCHANGED])),
            message(b"U", (b"N", [b"2", UNCHANGED])),
            message(b"U", (b"K", [b"3", None]), (b"N", [b"4", UNCHANGED])),
        ],
        2,
    )
    assert rows[1] == (UA, (b"1", b"long"))
    assert found.unchanged[0] is None
    assert found.unchanged[1].tolist() == [False, False, True, False, True]


@pytest.mark.parametrize("damaged", [
    message(b"I", (b"X", [b"1", b"a"])),
    message(b"I", (b"N", [b"1"])),
    message(b"I", (b"N", [b"1", b"a"])).replace(b"t", b"z"),
])  # fmt: skip
def test_bytes_that_are_no_row_are_an_error(damaged):
    with pytest.raises(InternalError):
        pgoutput.changes([damaged], 2)


def test_transactions_tables_and_truncates_are_read():
    assert pgoutput.begin(b"B" + struct.pack(">qqI", 500, 7, 9)) == (9, 7)
    assert pgoutput.commit_end(b"C" + struct.pack(">bqqq", 0, 500, 508, 7)) == 508
    column = b"\x01id\0" + struct.pack(">Ii", 20, -1)
    found = pgoutput.relation(b"R" + struct.pack(">I", 9) + b"public\0t\0d" + struct.pack(">H", 1) + column)
    assert found == pgoutput.Relation(9, "public", "t", "d", (pgoutput.RelationColumn("id", 20, -1, True),))
    assert pgoutput.truncated(b"T" + struct.pack(">IBII", 2, 0, 5, 6)) == [5, 6]


@pytest.mark.parametrize(
    ("xid", "seen"), [(9, True), (10, False), (11, True), (12, False), (13, False), (2**32 - 1, True)]
)
def test_a_view_sees_what_was_committed_before_it(xid, seen):
    assert View.parse("10:13:10,12").sees(xid) is seen


def test_transactions_are_compared_over_the_wrap_of_their_ids():
    view = View.parse(f"{2**32 + 2}:{2**32 + 5}:")
    assert view.sees(2**32 - 3)  # before the wrap
    assert view.sees(4)
    assert not view.sees(5)


def test_a_position_survives_its_json():
    window = Window(0, None, ("a", "1"), View(1, 5, (3,)), 77)
    position = Position(5, 2, Cursor(0, ("a", "1")), window)
    assert Position.from_json(position.to_json()) == position
    assert Position.from_json(Position(5).to_json()) == Position(5)
    assert lsn_of(lsn_text(0x16_B374D848)) == 0x16_B374D848


@pytest.mark.parametrize(("text", "items"), [
    ("{}", []), ("{1,2}", ["1", "2"]), ("{NULL,\"NULL\"}", [None, "NULL"]), ('{"a,b","c\\"d","e\\\\f",""}', ["a,b", 'c"d', "e\\f", ""]),
])  # fmt: skip
def test_arrays(text, items):
    assert parse_array(text) == items


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[2:3]={1,2}", "1,2", '{"a"b}'])
def test_arrays_that_are_no_lists_are_refused(text):
    with pytest.raises(ValueError, match="an array"):
        parse_array(text)


def texts(*values):
    return pa.array([None if v is None else v.encode() for v in values], pa.binary())


@pytest.mark.parametrize(("type_", "text"), [
    (t.DecimalType(10, 2), "1.234"), (t.DecimalType(10, 2), "NaN"), (t.DecimalType(3, 0), "1000"),
    (t.DateType(), "infinity"), (t.DateType(), "0044-03-15 BC"), (t.TimestampType(3), "2026-01-01 00:00:00.0001"),
    (t.TimestampLtzType(6), "infinity"), (t.TimeType(0), "24:00:00"), (t.IntType(), "x"), (t.BooleanType(), "yes"),
    (t.VarBinaryType(), "abc"), (t.ArrayType(t.IntType()), "{{1}}"),
])  # fmt: skip
def test_a_value_that_does_not_fit_exactly_is_refused_by_name(type_, text):
    with pytest.raises(RecordError) as err:
        column_of(t.Field("c", type_), texts(None, text))
    assert "column 'c'" in str(err.value)
    assert text in str(err.value)


def test_decimals_get_zeros_and_lose_nothing():
    column = column_of(t.Field("c", t.DecimalType(38, 9)), texts("1.5", None, "-0.000000001"))
    assert column.to_pylist() == [Decimal("1.500000000"), None, Decimal("-0.000000001")]


@pytest.mark.parametrize(("type_", "base", "modifier", "array"), [
    (t.IntType(), "int8", -1, False), (t.FloatType(), "float8", -1, False), (t.DecimalType(10, 1), "numeric", 655366, False),
    (t.TimestampType(6), "timestamptz", -1, False), (t.VarCharType(5), "varchar", 14, False), (t.IntType(), "int4", -1, True),
    (t.ArrayType(t.SmallIntType()), "int4", -1, True), (t.BigIntType(), "interval", -1, False),
])  # fmt: skip
def test_a_type_that_cannot_hold_every_value_is_refused(type_, base, modifier, array):
    with pytest.raises(ConnectorError) as err:
        check_type("c", type_, DatabaseType(base, "its name", modifier, array))
    assert "its name" in str(err.value)


@pytest.mark.parametrize(("type_", "base", "modifier", "array"), [
    (t.BigIntType(), "int4", -1, False), (t.DecimalType(12, 2), "numeric", 655366, False), (t.DecimalType(5, 1), "numeric", -1, False),
    (t.VarCharType(10), "varchar", 14, False), (t.VarCharType(), "interval", -1, False), (t.VarCharType(), "int4", -1, True),
    (t.ArrayType(t.BigIntType()), "int4", -1, True), (t.TimeType(6), "time", -1, False),
])  # fmt: skip
def test_a_type_that_holds_every_value_is_taken(type_, base, modifier, array):
    check_type("c", type_, DatabaseType(base, "its name", modifier, array))


@pytest.mark.parametrize(("code", "text", "kind"), [
    ("", "server closed the connection unexpectedly", ExternalError), ("57P03", "the database system is starting up", ExternalError),
    ("55006", "replication slot is active", ExternalError), ("42704", "slot does not exist", ConnectorError),
    ("", "password authentication failed for user", ConnectorError),
])  # fmt: skip
def test_a_stream_that_breaks_is_waited_for_and_a_wrong_one_is_refused(code, text, kind):
    options = {"hostname": "h", "port": 1, "database-name": "d", "slot.name": "s"}
    assert type(stream_failure("what", text, code, options)) is kind
