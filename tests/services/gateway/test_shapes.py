"""Types and rows as Flink 2.3's own classes write and read them."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from penstock.errors import UnsupportedError
from penstock.table.rows import result_row
from penstock.types import logical as t
from penstock_services.gateway.shapes import JSON, PLAIN_TEXT, columns_of, encoded, rows_of, type_of

STRING = t.VarCharType()
#: Written by Flink 2.3's LogicalTypeJsonSerializer.
TYPES = [
    (t.IntType(), {"type": "INTEGER", "nullable": True}),
    (t.BigIntType(False), {"type": "BIGINT", "nullable": False}),
    (t.CharType(3), {"type": "CHAR", "nullable": True, "length": 3}),
    (STRING, {"type": "VARCHAR", "nullable": True, "length": 2147483647}),
    (t.DecimalType(10, 2), {"type": "DECIMAL", "nullable": True, "precision": 10, "scale": 2}),
    (t.TimeType(3), {"type": "TIME_WITHOUT_TIME_ZONE", "nullable": True, "precision": 3}),
    (t.TimestampType(3), {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "nullable": True, "precision": 3}),
    (t.TimestampLtzType(6), {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": True, "precision": 6}),
    (t.VarBinaryType(5), {"type": "VARBINARY", "nullable": True, "length": 5}),
    (
        t.ArrayType(t.IntType()),
        {"type": "ARRAY", "nullable": True, "elementType": {"type": "INTEGER", "nullable": True}},
    ),
    (
        t.MapType(t.IntType(), t.BooleanType()),
        {
            "type": "MAP",
            "nullable": True,
            "keyType": {"type": "INTEGER", "nullable": True},
            "valueType": {"type": "BOOLEAN", "nullable": True},
        },
    ),
    (
        t.RowType((t.Field("x", t.IntType()),)),
        {
            "type": "ROW",
            "nullable": True,
            "fields": [{"name": "x", "fieldType": {"type": "INTEGER", "nullable": True}}],
        },
    ),
    (
        t.YearMonthIntervalType(),
        {"type": "INTERVAL_YEAR_MONTH", "nullable": True, "precision": 2, "resolution": "YEAR_TO_MONTH"},
    ),
    (
        t.DayTimeIntervalType(),
        {
            "type": "INTERVAL_DAY_TIME",
            "nullable": True,
            "precision": 2,
            "fractionalPrecision": 3,
            "resolution": "DAY_TO_SECOND",
        },
    ),
    (t.NullType(), {"type": "NULL"}),
]


@pytest.mark.parametrize(("type_", "written"), TYPES, ids=[str(x) for x, _ in TYPES])
def test_types_are_written_as_flink_writes_them(type_, written):
    assert type_of(type_) == written


#: (type, value, as Flink 2.3 writes it)
VALUES = [
    (t.IntType(), 1, "1"),
    (t.DecimalType(10, 2), Decimal("1.50"), "1.50"),
    (t.TimestampType(3), dt.datetime(2020, 1, 2, 3, 4, 5, 678_000), '"2020-01-02T03:04:05.678"'),
    (t.TimestampType(3), dt.datetime(2020, 1, 2, 3, 4), '"2020-01-02T03:04:00"'),
    (t.VarBinaryType(5), b"\x01\x02\x03", '"AQID"'),
    (t.DateType(), dt.date(2020, 1, 2), '"2020-01-02"'),
    (t.TimeType(3), dt.time(1, 2, 3, 4_000), '"01:02:03.004"'),
    (t.ArrayType(t.DateType()), [dt.date(2020, 1, 2), None], '["2020-01-02",null]'),
    (t.MapType(STRING, t.IntType()), {"k": 1, None: None}, '{"k":1,"null":null}'),
    (t.RowType((t.Field("x", t.DateType()), t.Field("y", t.IntType()))), (None, 7), '{"x":null,"y":7}'),
    (t.YearMonthIntervalType(), 14, "14"),
    (
        t.DayTimeIntervalType(),
        dt.timedelta(days=1, hours=1, minutes=1, seconds=1, milliseconds=1),
        "90061001",
    ),
    (t.DoubleType(), float("nan"), '"NaN"'),
    (t.DoubleType(), float("-inf"), '"-Infinity"'),
    (t.BooleanType(), True, "true"),
    (STRING, None, "null"),
]


@pytest.mark.parametrize(("type_", "value", "written"), VALUES, ids=[f"{x} {v}" for x, v, _ in VALUES])
def test_values_are_written_as_flink_writes_them(type_, value, written):
    schema = t.Schema((t.Field("c", type_),))
    [row] = rows_of(schema, [result_row(("c",), (value,), 2)], JSON, "UTC")
    assert encoded(row).decode() == f'{{"kind":"UPDATE_AFTER","fields":[{written}]}}'


def test_timestamps_with_local_time_zone_are_of_the_sessions_zone():
    schema = t.Schema((t.Field("c", t.TimestampLtzType(3)),))
    row = result_row(("c",), (dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),), 0)
    assert rows_of(schema, [row], JSON, "Asia/Tokyo")[0]["fields"] == ["2020-01-01T21:00:00Z"]


def test_plain_text_is_what_a_client_prints():
    schema = t.Schema(
        (t.Field("a", t.DecimalType(5, 2)), t.Field("b", t.ArrayType(t.IntType())), t.Field("c", STRING))
    )
    row = result_row(("a", "b", "c"), (Decimal("1.50"), [1, None], None), 3)
    assert rows_of(schema, [row], PLAIN_TEXT, "UTC") == [
        {"kind": "DELETE", "fields": ["1.50", "[1, NULL]", "<NULL>"]}
    ]


def test_two_columns_of_one_name_stay_two():
    schema = t.Schema((t.Field("a", t.IntType()), t.Field("a", STRING)))
    assert [c["name"] for c in columns_of(schema)] == ["a", "a"]
    assert json.loads(encoded(rows_of(schema, [result_row(("a", "a"), (1, "x"), 0)], JSON, "UTC")))[0][
        "fields"
    ] == [1, "x"]


def test_what_flinks_client_cannot_read_is_refused_by_name():
    schema = t.Schema((t.Field("m", t.MapType(t.IntType(), t.IntType())),))
    with pytest.raises(UnsupportedError, match="cast the keys to STRING"):
        rows_of(schema, [result_row(("m",), ({1: 2},), 0)], JSON, "UTC")
    with pytest.raises(UnsupportedError, match="cast the column"):
        type_of(t.RawType("pickle"))
