"""The conformance kit on operators that the planner puts between others."""

from __future__ import annotations

import sqlite3
from typing import Any, ClassVar

from penstock.api.async_functions import NO_RETRY_STRATEGY, AsyncCall, AsyncFunction
from penstock.functions.expr import InputRef, PythonCall
from penstock.jobgraph import specs as s
from penstock.operators.window_functions import WindowCall
from penstock.plan import nodes as n
from penstock.state.descriptors import ValueStateDescriptor
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t
from tests.plan.outside.given import Given
from tests.plan.outside.test_built_in import (
    BIGINT,
    IN_ORDER,
    PAIR,
    PAIRS,
    ROW,
    SECOND_US,
    OneInput,
    Rows,
    keys_of,
    of_key,
)


class OfPairs(OperatorConformance):
    """One input of pairs."""

    def schemas(self) -> list[t.Schema]:
        return [PAIR]

    def rows(self) -> list[Rows]:
        return [PAIRS]


class TestFinalRows(OfPairs):
    """The rows that are left at the end of the input, by key."""

    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.FinalRowsSpec(keys=(0,)), schema=PAIR, keys=(0,))

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0]


class TestMaterialize(OfPairs):
    """The newest row of each key."""

    takes_updates = True
    upsert_key = (0,)

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.MaterializeSpec(keys=(0,)), schema=PAIR, keys=(0,), unique=(0,))

    def expected(self, rows: list[Rows]) -> Rows:
        return [of_key(rows[0], key)[-1] for key in keys_of(rows[0])]


class TestRowKindsAsColumn(OfPairs):
    """Each row with its kind, which is +I."""

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        schema = t.Schema((*PAIR.fields, t.Field("kind", t.TinyIntType(False))))
        return Given(inputs=inputs, spec=s.RowKindSpec(kind="append"), schema=schema)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(*row, 0) for row in rows[0]]


class TestRowKindsOfColumn(OperatorConformance):
    """Rows whose last column says that they come, or go again."""

    def schemas(self) -> list[t.Schema]:
        return [t.Schema((*PAIR.fields, t.Field("kind", t.TinyIntType(False))))]

    def rows(self) -> list[Rows]:
        return [[row for i, (k, v) in enumerate(PAIRS) for row in ([(k, v, 0)] + [(k, v, 3)] * (i % 3 == 0))]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.RowKindSpec(kind="take"), schema=PAIR, keys=(0,), updating=True)

    def expected(self, rows: list[Rows]) -> Rows:
        return [row for i, row in enumerate(PAIRS) if i % 3]


class TestRecordTime(OneInput):
    """Rows without the column that becomes the records' own event time."""

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.RecordTimeSpec(kind="assign", column=2, drop=True), schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(k, v) for k, v, _ in rows[0]]


class TestAssignWatermarks(OneInput):
    """All rows as they are."""

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.AssignWatermarksSpec(watermark=IN_ORDER), schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0]


async def _twice(v: int) -> int:
    return 2 * v


class TestAsyncCalc(OfPairs):
    """Each row with the answer of a coroutine."""

    functions: ClassVar[dict[str, Any]] = {"twice": _twice}

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        call = PythonCall("twice", (InputRef(1, BIGINT),), t.BigIntType(), asynchronous=True)
        schema = t.Schema((*PAIR.fields, t.Field("twice", t.BigIntType())))
        return n.AsyncCalc(input=inputs[0], calls=(call,), schema=schema)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(k, v, 2 * v) for k, v in rows[0]]


class _Answers(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [(value[0], value[1] + i) for i in range(value[1] % 3)]


class TestAsyncWait(OfPairs):
    """None to two rows for each row, as its answer says."""

    functions: ClassVar[dict[str, Any]] = {"ask": AsyncCall(_Answers(), 0, NO_RETRY_STRATEGY)}

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.AsyncWaitSpec(function="ask", capacity=3), schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(k, v + i) for k, v in rows[0] for i in range(v % 3)]


class TestLookupJoin(OfPairs):
    """Each row with the names of its value in a table of a database, or with none."""

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        file = self.folder / "names.db"
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS names (id INTEGER, name TEXT)")
            connection.execute("DELETE FROM names")
            connection.executemany("INSERT INTO names VALUES (?, ?)", NAMES)
        connection.close()
        table = t.Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
        spec = s.LookupJoinSpec(
            kind="left", connector="jdbc", options={"connector": "jdbc", "url": f"jdbc:sqlite:{file}", "table-name": "names"},
            schema=table, left_keys=(1,), right_keys=(0,), projection=(0, 1),
        )  # fmt: skip
        return Given(inputs=inputs, spec=spec, schema=t.Schema((*PAIR.fields, *table.fields)))

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (k, v, *found)
            for k, v in rows[0]
            for found in ([x for x in NAMES if x[0] == v] or [(None, None)])
        ]


NAMES = [(0, "none"), (2, "two"), (2, "a pair"), (3, None), (9, "nobody's")]


def _copies(row: Any) -> Any:
    return [(row[0], row[1] * 10 + i) for i in range(row[1] % 3)]


class TestPython(OfPairs):
    """None to two rows for each row."""

    functions: ClassVar[dict[str, Any]] = {"copies": _copies}

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.PythonSpec(kind="flat_map", function="copies"), schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return [(k, v * 10 + i) for k, v in rows[0] for i in range(v % 3)]


class _Running:
    """The sum of a key so far, with each record."""

    def open(self, context: Any) -> None:
        self.sum = context.get_state(ValueStateDescriptor("sum", t.BigIntType()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.sum.update((self.sum.value() or 0) + value[1])
        yield value[0], self.sum.value()


class TestKeyedProcess(OfPairs):
    """Sums of each key, by a function with keyed state."""

    functions: ClassVar[dict[str, Any]] = {"running": _Running()}

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(
            inputs=inputs, spec=s.KeyedProcessSpec(function="running", keys=((0,),)), schema=PAIR, keys=(0,)
        )

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (key, sum(v for _, v in mine[: i + 1]))
            for key in keys_of(rows[0])
            for mine in [of_key(rows[0], key)]
            for i in range(len(mine))
        ]


def _sum(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1], max(a[2], b[2])


class TestKeyedWindow(OneInput):
    """The sum of each key and window of ten seconds, by a function of the user's."""

    watermarks = (IN_ORDER,)
    times = (2,)
    functions: ClassVar[dict[str, Any]] = {"sum": WindowCall(_sum, None, t.RowType(ROW.fields))}

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        window = s.WindowSpec(kind="tumble", size_us=10 * SECOND_US)
        spec = s.KeyedWindowSpec(window=window, keys=(0,), function="sum", kind="reduce")
        return Given(inputs=inputs, spec=spec, schema=ROW, keys=(0,))

    def expected(self, rows: list[Rows]) -> Rows:
        groups: dict[Any, Rows] = {}
        for row in rows[0]:
            groups.setdefault((row[0], int(row[2].timestamp()) // 10), []).append(row)
        return [(key, sum(r[1] for r in mine), max(r[2] for r in mine)) for (key, _), mine in groups.items()]
