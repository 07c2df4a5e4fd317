"""The conformance kit on operators that take rows one by one, in an order, or by their number."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from penstock.functions.expr import AggregateCall, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import SortKey
from penstock.plan import nodes as n
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t
from tests.plan.outside.test_built_in import (
    BIGINT,
    IN_ORDER,
    PAIR,
    PAIRS,
    ROW,
    ROWS,
    OneInput,
    Rows,
    TwoInputs,
    keys_of,
    of_key,
)  # fmt: skip


class TestFilter(OneInput):
    """The rows with a large value."""

    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        condition = make_call(">", [InputRef(1, BIGINT), Literal(50, BIGINT)])
        return n.Filter(input=inputs[0], condition=condition, schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return [row for row in rows[0] if row[1] > 50]


class TestUnion(TwoInputs):
    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Union_(inputs=inputs, schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return [*rows[0], *rows[1]]


class TestExpand(OperatorConformance):
    """Each row twice: whole, and without its key."""

    takes_updates = True

    def schemas(self) -> list[t.Schema]:
        return [PAIR]

    def rows(self) -> list[Rows]:
        return [PAIRS]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        value = InputRef(1, BIGINT)
        lists = (
            (InputRef(0, t.VarCharType()), value, Literal(0, BIGINT)),
            (Literal(None, t.VarCharType()), value, Literal(1, BIGINT)),
        )
        return n.Expand(
            input=inputs[0], projections=lists, schema=t.Schema((*PAIR.fields, t.Field("set", BIGINT)))
        )

    def expected(self, rows: list[Rows]) -> Rows:
        return [made for k, v in rows[0] for made in ((k, v, 0), (None, v, 1))]


class TestCorrelate(OperatorConformance):
    """Each row with each element of its array, and without one if it has none."""

    takes_updates = True
    SCHEMA: ClassVar[t.Schema] = t.Schema.of(("k", BIGINT), ("xs", t.ArrayType(BIGINT)))

    def schemas(self) -> list[t.Schema]:
        return [self.SCHEMA]

    def rows(self) -> list[Rows]:
        return [[(i, None if i % 7 == 6 else list(range(i % 4))) for i in range(20)]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        schema = t.Schema((*self.SCHEMA.fields, t.Field("x", t.BigIntType())))
        args = (InputRef(1, self.SCHEMA.types[1]),)
        return n.Correlate(input=inputs[0], function="UNNEST", args=args, kind="left", schema=schema)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(k, xs, x) for k, xs in rows[0] for x in xs or [None]]


class TestLimit(OperatorConformance):
    """Any rows, of rows that are all equal: which ones does not show."""

    def schemas(self) -> list[t.Schema]:
        return [PAIR]

    def rows(self) -> list[Rows]:
        return [[("key", 1)] * 20]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Limit(input=inputs[0], offset=2, limit=7, schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0][2:9]


class TestSort(OneInput):
    """All rows in the order of event time."""

    watermarks = (IN_ORDER,)

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Sort(input=inputs[0], order=(SortKey(2), SortKey(1)), schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0]


class TestFirstRows(OneInput):
    """The first rows in the order of their value."""

    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Sort(input=inputs[0], order=(SortKey(1),), offset=1, limit=5, schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return sorted(rows[0], key=lambda row: row[1])[1:6]


class TestSortedAtTheEnd(OneInput):
    """All rows by their value, when all input has ended."""

    config: ClassVar[dict[str, str]] = {"execution.runtime-mode": "BATCH"}
    #: Jobs in batch mode take no checkpoints.
    test_a_job_killed_behind_every_checkpoint = None  # type: ignore[assignment]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Sort(input=inputs[0], order=(SortKey(1),), schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0]


class TestOverAtTheEnd(OneInput):
    """The sum of the row before, the row, and the row behind, when all input has ended."""

    config: ClassVar[dict[str, str]] = {"execution.runtime-mode": "BATCH"}
    test_a_job_killed_behind_every_checkpoint = None  # type: ignore[assignment]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        total = t.BigIntType()
        return n.Over(
            input=inputs[0], partition=(0,), order=(SortKey(2),), frame="rows", preceding=1, following=1,
            aggregates=(AggregateCall("SUM", (1,), total),), schema=t.Schema((*ROW.fields, t.Field("sum", total))),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (*row, sum(v for _, v, _ in mine[max(0, i - 1) : i + 2]))
            for key in keys_of(rows[0])
            for mine in [of_key(rows[0], key)]
            for i, row in enumerate(mine)
        ]


class TestNormalize(OneInput):
    """The newest row of each key, by arrival."""

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Normalize(input=inputs[0], keys=(0,), schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return [of_key(rows[0], key)[-1] for key in keys_of(rows[0])]


class TestLocalTime(OperatorConformance):
    """Each row with its time in a zone an hour ahead of UTC."""

    LTZ: ClassVar[t.Schema] = t.Schema.of(("k", t.VarCharType()), ("at", t.TimestampLtzType(3, False)))

    def schemas(self) -> list[t.Schema]:
        return [self.LTZ]

    def rows(self) -> list[Rows]:
        return [[(k, time.replace(tzinfo=dt.UTC)) for k, _, time in ROWS]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        schema = t.Schema((*self.LTZ.fields, t.Field("local", t.TimestampType(3, False))))
        return n.LocalTime(input=inputs[0], time=1, zone="Europe/Paris", schema=schema)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(*row, row[1].replace(tzinfo=None) + dt.timedelta(hours=1)) for row in rows[0]]
