"""The stateless Nexmark queries as expressions over Flink's recorded rows."""

from __future__ import annotations

import csv
import gzip

import pyarrow.parquet as pq
import pytest

from penstock.functions.evaluate import compile_predicate, compile_projection
from penstock.functions.expr import Expr, InputRef, Literal
from penstock.functions.registry import field_access, make_call
from penstock.types.batch import Batch
from penstock.types.logical import (
    BigIntType,
    CharType,
    DecimalType,
    Field,
    IntType,
    RowType,
    Schema,
    TimestampType,
    VarCharType,
)  # fmt: skip
from tests.recorded import NEXMARK_EVENTS, nexmark_rows

BID = RowType(
    (
        Field("auction", BigIntType()), Field("bidder", BigIntType()), Field("price", BigIntType()),
        Field("channel", VarCharType()), Field("url", VarCharType()), Field("dateTime", TimestampType(3)),
        Field("extra", VarCharType()),
    )
)  # fmt: skip
SCHEMA = Schema.of(("event_type", IntType()), ("bid", BID))
EVENT_TYPE = InputRef(0, IntType())


def bid(name: str) -> Expr:
    return field_access(InputRef(1, BID), name)


def number(value: int) -> Literal:
    return Literal(value, IntType(nullable=False))


def text(expr: Expr) -> Expr:
    return make_call("CAST", [expr], type=VarCharType())


def split(index: int) -> Expr:
    return make_call("SPLIT_INDEX", [bid("url"), Literal("/", CharType(1, nullable=False)), number(index)])


EXTRA = make_call("SUBSTRING", [make_call("MD5", [bid("extra")]), number(1), number(8)])
IS_BID = make_call("=", [EVENT_TYPE, number(2)])
PRICE = make_call("*", [Literal(908, DecimalType(4, 3, nullable=False)), bid("price")])
QUERIES: dict[str, tuple[Expr, list[Expr]]] = {
    "q0": (IS_BID, [bid("auction"), bid("bidder"), bid("price"), bid("dateTime"), EXTRA]),
    "q1": (IS_BID, [bid("auction"), bid("bidder"), PRICE, bid("dateTime"), EXTRA]),
    "q2": (
        make_call(
            "AND", [IS_BID, make_call("=", [make_call("MOD", [bid("auction"), number(123)]), number(0)])]
        ),
        [bid("auction"), bid("price")],
    ),
    "q22": (
        IS_BID,
        [bid("auction"), bid("bidder"), bid("price"), bid("channel"), split(3), split(4), split(5)],
    ),
}


@pytest.mark.parametrize("query", [query for query in QUERIES if nexmark_rows(query).exists()])
def test_query(query: str) -> None:
    table = pq.read_table(NEXMARK_EVENTS, columns=["event_type", "bid"]).combine_chunks()
    batch = Batch.from_external_arrow(SCHEMA, table)
    condition, projection = QUERIES[query]
    kept = batch.filter(compile_predicate(condition)(batch))
    columns = compile_projection([text(e) for e in projection])(kept)
    rows = sorted(zip(*(c.to_pylist() for c in columns), strict=True))
    with gzip.open(nexmark_rows(query), "rt", newline="") as file:
        want = sorted(tuple(r) for r in list(csv.reader(file))[1:])
    assert rows == want
