"""The conformance kit of operators on those that keep state and that Penstock brings along."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any, ClassVar

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import SortKey, WatermarkSpec, WindowSpec
from penstock.plan import nodes as n
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t

BIGINT, SUM = t.BigIntType(False), t.BigIntType()
TIME = t.TimestampType(3, False)
SECOND_US = 1_000_000
#: Key, a value that no two rows share, event time; in the order of time, several rows of a key within each window.
ROW = t.Schema.of(("k", t.VarCharType()), ("v", BIGINT), ("at", TIME))


def at(seconds: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(seconds=seconds)


ROWS = [(f"key {i * i % 7}", i * 37 % 101, at(i)) for i in range(26)]
PAIR = t.Schema.of(("k", t.VarCharType()), ("v", BIGINT))
PAIRS = [(f"key {i * i % 11}", i % 5) for i in range(32)]
IN_ORDER = WatermarkSpec(rowtime=2)

Rows = list[tuple[Any, ...]]


def keys_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row[0] for row in rows))


def of_key(rows: Rows, key: str) -> Rows:
    return [row for row in rows if row[0] == key]


class OneInput(OperatorConformance):
    def schemas(self) -> list[t.Schema]:
        return [ROW]

    def rows(self) -> list[Rows]:
        return [ROWS]


class TestTopN(OneInput):
    """The two largest values of each key, with their rank."""

    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        schema = t.Schema((*ROW.fields, t.Field("rank", BIGINT)))
        order = (SortKey(1, descending=True),)
        return n.TopN(input=inputs[0], partition=(0,), order=order, last=2, rank_column=True, schema=schema)

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (*row, rank)
            for key in keys_of(rows[0])
            for rank, row in enumerate(sorted(of_key(rows[0], key), key=lambda row: -row[1])[:2], 1)
        ]


class TestLargest(OneInput):
    """The row with the largest value of each key: its deduplication."""

    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        order = (SortKey(1, descending=True),)
        return n.TopN(input=inputs[0], partition=(0,), order=order, last=1, schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return [max(of_key(rows[0], key), key=lambda row: row[1]) for key in keys_of(rows[0])]


class TestNewest(OneInput):
    """The newest row of each key by event time."""

    watermarks = (IN_ORDER,)

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        order = (SortKey(2, descending=True),)
        return n.TopN(input=inputs[0], partition=(0,), order=order, last=1, schema=ROW)

    def expected(self, rows: list[Rows]) -> Rows:
        return [max(of_key(rows[0], key), key=lambda row: row[2]) for key in keys_of(rows[0])]


class TestOver(OneInput):
    """A sum over the row, and the two rows of its key before."""

    watermarks = (IN_ORDER,)

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Over(
            input=inputs[0], partition=(0,), order=(SortKey(2),), frame="rows", preceding=2,
            aggregates=(AggregateCall("SUM", (1,), SUM),), schema=t.Schema((*ROW.fields, t.Field("sum", SUM))),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (*row, sum(v for _, v, _ in mine[max(0, i - 2) : i + 1]))
            for key in keys_of(rows[0])
            for mine in [of_key(rows[0], key)]
            for i, row in enumerate(mine)
        ]


class Windowed(OneInput):
    """Sum, least and count in each window of a key."""

    watermarks = (IN_ORDER,)
    window: ClassVar[WindowSpec]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        calls = (
            AggregateCall("SUM", (1,), SUM), AggregateCall("MIN", (1,), SUM), AggregateCall("COUNT", (), BIGINT),
        )  # fmt: skip
        schema = t.Schema.of(
            ("k", t.VarCharType()),
            ("sum", SUM),
            ("least", SUM),
            ("n", BIGINT),
            ("start", TIME),
            ("end", TIME),
        )
        return n.WindowAggregate(
            input=inputs[0], window=self.window, keys=(0,), aggregates=calls, window_columns=("start", "end"),
            schema=schema,
        )  # fmt: skip

    def windows(self, rows: Rows) -> dict[tuple[int, int], Rows]:
        """(start, end) in seconds → the rows of one key within."""
        found: dict[tuple[int, int], Rows] = {}
        size, slide = (
            us // SECOND_US for us in (self.window.size_us, self.window.slide_us or self.window.size_us)
        )
        for row in rows:
            second = int((row[2] - at(0)).total_seconds())
            start = second // slide * slide
            while start > second - size:
                found.setdefault((start, start + size), []).append(row)
                start -= slide
        return found

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (key, sum(values), min(values), len(values), at(start), at(end))
            for key in keys_of(rows[0])
            for (start, end), mine in self.windows(of_key(rows[0], key)).items()
            for values in [[v for _, v, _ in mine]]
        ]


class TestTumbling(Windowed):
    window = WindowSpec(kind="tumble", time=2, size_us=10 * SECOND_US)


class TestHopping(Windowed):
    window = WindowSpec(kind="hop", time=2, size_us=10 * SECOND_US, slide_us=4 * SECOND_US)


class TestSessions(Windowed):
    window = WindowSpec(kind="session", time=2, gap_us=4 * SECOND_US)

    def windows(self, rows: Rows) -> dict[tuple[int, int], Rows]:
        sessions: list[Rows] = []
        for row in rows:
            # Sessions that touch are one, as Flink's are.
            near = sessions and row[2] - sessions[-1][-1][2] <= dt.timedelta(seconds=4)
            sessions[-1].append(row) if near else sessions.append([row])
        return {
            (
                int((mine[0][2] - at(0)).total_seconds()),
                int((mine[-1][2] - at(0)).total_seconds()) + 4,
            ): mine
            for mine in sessions
        }


class TwoInputs(OperatorConformance):
    config: ClassVar[dict[str, str]] = {"table.exec.join.unbounded-state": "allow"}

    def schemas(self) -> list[t.Schema]:
        return [PAIR, PAIR]

    def rows(self) -> list[Rows]:
        return [PAIRS[:20], PAIRS[14:30]]


class TestIntersectAll(TwoInputs):
    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.SetOperation(left=inputs[0], right=inputs[1], kind="intersect", all=True, schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return list((Counter(rows[0]) & Counter(rows[1])).elements())


class TestExcept(TwoInputs):
    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.SetOperation(left=inputs[0], right=inputs[1], kind="except", schema=PAIR)

    def expected(self, rows: list[Rows]) -> Rows:
        return list(set(rows[0]) - set(rows[1]))


class TestFullJoin(TwoInputs):
    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        fields = [(f"{side}{name}", type_.with_nullable(True)) for side in "ab" for name, type_ in
                  zip(PAIR.names, PAIR.types, strict=True)]  # fmt: skip
        return n.Join(
            left=inputs[0], right=inputs[1], kind="full", left_keys=(0, 1), right_keys=(0, 1),
            schema=t.Schema.of(*fields),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        left, right = rows
        return [
            *((*a, *b) for a in left for b in right if a == b),
            *((*a, None, None) for a in left if a not in right),
            *((None, None, *b) for b in right if b not in left),
        ]


class TestAntiJoin(TwoInputs):
    takes_updates = True

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return n.Join(
            left=inputs[0], right=inputs[1], kind="anti", left_keys=(0,), right_keys=(0,), schema=PAIR
        )

    def expected(self, rows: list[Rows]) -> Rows:
        there = set(keys_of(rows[1]))
        return [row for row in rows[0] if row[0] not in there]


class TestTemporalJoin(OperatorConformance):
    """Each row with the value of its key's newest version at its time."""

    watermarks = (IN_ORDER, IN_ORDER)

    def schemas(self) -> list[t.Schema]:
        return [ROW, ROW]

    def rows(self) -> list[Rows]:
        return [ROWS, [(f"key {i % 5}", i, at(3 * i)) for i in range(9)]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        fields = (*ROW.fields, *(t.Field(f"b{f.name}", f.type.with_nullable(True)) for f in ROW.fields))
        return n.TemporalJoin(
            left=inputs[0], right=inputs[1], kind="left", left_keys=(0,), right_keys=(0,), left_time=2,
            right_time=2, versions=True, schema=t.Schema(fields),
        )  # fmt: skip

    def expected(self, rows: list[Rows]) -> Rows:
        return [
            (*row, *([v for v in of_key(rows[1], row[0]) if v[2] <= row[2]] or [(None, None, None)])[-1])
            for row in rows[0]
        ]
