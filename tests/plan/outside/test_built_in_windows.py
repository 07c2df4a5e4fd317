"""The conformance kit on operators that pair or rank rows of one window, or of one interval of event time."""

from __future__ import annotations

import datetime as dt
from typing import Any

from penstock.jobgraph.specs import SortKey, WatermarkSpec, WindowSpec
from penstock.plan import nodes as n
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t
from tests.plan.outside.test_built_in import (
    BIGINT,
    IN_ORDER,
    ROW,
    ROWS,
    SECOND_US,
    TIME,
    OneInput,
    Rows,
    at,
)  # fmt: skip

#: Key, value, and the window of the row; windows follow each other in the order of arrival.
IN_WINDOW = t.Schema.of(("k", t.VarCharType()), ("v", BIGINT), ("start", TIME), ("end", TIME))
WINDOW_ROWS = [(f"key {i % 3}", i * 37 % 101, at(i // 8 * 10), at(i // 8 * 10 + 10)) for i in range(32)]
BY_START = WatermarkSpec(rowtime=2)
RIGHT_ROWS = [(f"key {i % 4}", i, at(i // 5 * 10), at(i // 5 * 10 + 10)) for i in range(20)]


class TestIntervalJoin(OperatorConformance):
    """Pairs of rows whose right one is from 2 s before the left one to 3 s after it."""

    watermarks = (IN_ORDER, IN_ORDER)

    def schemas(self) -> list[t.Schema]:
        return [ROW, ROW]

    def rows(self) -> list[Rows]:
        return [ROWS, [(f"key {i % 5}", i, at(i)) for i in range(24)]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        fields = [(f"{side}{f.name}", f.type) for side in "ab" for f in ROW.fields]
        return n.Join(
            left=inputs[0], right=inputs[1], kind="inner", left_keys=(0,), right_keys=(0,),
            interval=(2, 2, -2 * SECOND_US, 3 * SECOND_US), schema=t.Schema.of(*fields),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        low, high = dt.timedelta(seconds=-2), dt.timedelta(seconds=3)
        return [(*a, *b) for a in rows[0] for b in rows[1] if a[0] == b[0] and low <= b[2] - a[2] <= high]


class TestWindowJoin(OperatorConformance):
    """Pairs of rows of one key and one window, and the left rows that have no partner there."""

    watermarks = (BY_START, BY_START)

    def schemas(self) -> list[t.Schema]:
        return [IN_WINDOW, IN_WINDOW]

    def rows(self) -> list[Rows]:
        return [WINDOW_ROWS, RIGHT_ROWS]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        right = [(f"b{f.name}", f.type.with_nullable(True)) for f in IN_WINDOW.fields]
        left = [(f.name, f.type) for f in IN_WINDOW.fields]
        return n.Join(
            left=inputs[0], right=inputs[1], kind="left", left_keys=(0,), right_keys=(0,),
            window=((2, 3), (2, 3)), schema=t.Schema.of(*left, *right),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (*a, *b)
            for a in rows[0]
            for b in [b for b in rows[1] if (b[0], b[2]) == (a[0], a[2])] or [(None, None, None, None)]
        ]


class TestWindowTopN(OneInput):
    """The two largest values of each key in each window."""

    watermarks = (BY_START,)

    def schemas(self) -> list[t.Schema]:
        return [IN_WINDOW]

    def rows(self) -> list[Rows]:
        return [WINDOW_ROWS]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        order = (SortKey(1, descending=True),)
        return n.TopN(
            input=inputs[0], partition=(0, 2, 3), order=order, last=2, window=(2, 3), schema=IN_WINDOW
        )

    def expected(self, rows: list[Rows]) -> Rows:
        groups = dict.fromkeys((row[0], row[2]) for row in rows[0])
        return [
            row
            for group in groups
            for row in sorted((r for r in rows[0] if (r[0], r[2]) == group), key=lambda r: -r[1])[:2]
        ]


class TestWindowTable(OneInput):
    """Each row with the tumbling window that it falls into."""

    watermarks = (IN_ORDER,)

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        made = [t.Field(name, TIME) for name in ("window_start", "window_end", "window_time")]
        return n.WindowTable(
            input=inputs[0], window=WindowSpec(kind="tumble", time=2, size_us=10 * SECOND_US),
            schema=t.Schema((*ROW.fields, *made)),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        def window(row: tuple[Any, ...]) -> tuple[Any, ...]:
            second = int((row[2] - at(0)).total_seconds()) // 10 * 10
            return at(second), at(second + 10), at(second + 10) - dt.timedelta(milliseconds=1)

        return [(*row, *window(row)) for row in rows[0]]
