"""A stream into a declared table: the casts that INSERT makes by itself, and no others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from penstock.api import StreamExecutionEnvironment, Types
from penstock.errors import SpecError
from penstock.testing import MemoryTable
from penstock.testing.harness import run_graph
from penstock.types import logical as t

NOON = dt.datetime(2024, 1, 2, 12, 0, 0, 123456)


def written(type_, declared, ddl, value, config=None):
    out = MemoryTable("out", t.Schema.of(("v", declared)))
    env = StreamExecutionEnvironment({"execution.engine": "streaming", **(config or {})})
    env.execute_sql(f"CREATE TABLE o (v {ddl}) WITH ('connector' = 'memory', 'name' = 'out')")
    env.from_collection([(value,), (None,)], Types.ROW_NAMED(["a"], [type_])).insert_into("o")
    run_graph(env.job_graph())
    (first,), (second,) = out.committed_rows()
    assert second is None
    return first


@pytest.mark.parametrize(
    ("type_", "declared", "value", "want"),
    [
        (Types.INT(), t.BigIntType(), 7, 7),
        (Types.LONG(), t.DoubleType(), 7, 7.0),
        (Types.INT(), t.DecimalType(12, 2), 7, Decimal("7.00")),
        (Types.BIG_DEC(4, 1), t.DecimalType(10, 2), Decimal("1.5"), Decimal("1.50")),
        (Types.CHAR(), t.VarCharType(), "x", "x"),
        (Types.SQL_TIMESTAMP(6), t.TimestampType(3), NOON, NOON.replace(microsecond=123000)),
        (Types.SQL_TIMESTAMP(3), t.DateType(), NOON, NOON.date()),
        (Types.LIST(Types.INT()), t.ArrayType(t.BigIntType()), [1, 2], [1, 2]),
    ],
    ids=str,
)
def test_a_column_becomes_the_declared_type_without_loss(type_, declared, value, want):
    assert written(type_, declared, declared.sql(), value) == want


def test_local_times_become_instants_in_the_session_zone():
    got = written(
        Types.SQL_TIMESTAMP(3), t.TimestampLtzType(3), "TIMESTAMP_LTZ(3)", NOON,
        {"table.local-time-zone": "Asia/Kolkata"},
    )  # fmt: skip
    assert got == dt.datetime(2024, 1, 2, 6, 30, 0, 123000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("type_", "ddl"),
    [
        (Types.LONG(), "INT"),
        (Types.DOUBLE(), "BIGINT"),
        (Types.DOUBLE(), "FLOAT"),
        (Types.LONG(), "STRING"),
        (Types.STRING(), "INT"),
        (Types.SQL_DATE(), "TIMESTAMP(3)"),
        (Types.PICKLED_BYTE_ARRAY(), "STRING"),
        (Types.LIST(Types.LONG()), "ARRAY<INT>"),
    ],
    ids=str,
)
def test_what_would_narrow_is_refused_with_its_column(type_, ddl):
    env = StreamExecutionEnvironment()
    env.execute_sql(f"CREATE TABLE o (k INT, v {ddl}) WITH ('connector' = 'blackhole')")
    stream = env.from_collection([(1, None)], Types.ROW_NAMED(["k", "a"], [Types.INT(), type_]))
    with pytest.raises(SpecError, match="does not fit the sink 'o': column 'v'") as caught:
        stream.insert_into("o")
    assert str(type_) in (caught.value.got or "")
    assert "map the records" in (caught.value.remedy or "")


def test_too_few_columns_are_refused():
    env = StreamExecutionEnvironment()
    env.execute_sql("CREATE TABLE o (k INT, v INT) WITH ('connector' = 'blackhole')")
    with pytest.raises(SpecError, match="does not fit") as caught:
        env.from_collection([1], Types.INT()).insert_into("o")
    assert (caught.value.expected or "").startswith("2 columns")
