"""One chain of snapshots of each stateful operator, as an earlier version of the code wrote them.

``CASES``: how each operator is made, and the batches that it is given. ``written`` makes the two
objects of a chain; ``python -m tests.snapshots.operator_samples FOLDER`` writes those of all cases.
The files in ``samples/operators`` were written by the code of format 3 before the operators kept
their state in ``penstock.state.keyed``: they are never written anew, only added to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.functions.expr import AggregateCall
from penstock.jobgraph import specs
from penstock.operators.factory import make_operator
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.messages.slot import StateHandle

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6, False)
N = BIG.not_null
S = 1_000_000  # µs
ROWS = Schema.of(
    ("k", STR), ("v", BIG), ("s", STR), ("t", TIME), ("window_start", TIME), ("window_end", TIME)
)
KINDS = Schema.of(("k", STR), ("v", BIG))
COUNT = AggregateCall("COUNT", (), N)
SUM, MAX = AggregateCall("SUM", (1,), BIG), AggregateCall("MAX", (2,), STR)
DISTINCT = AggregateCall("COUNT", (1,), N, distinct=True)
LISTAGG = AggregateCall("LISTAGG", (2,), STR, constants=("|",))
CALLS = (COUNT, SUM, MAX, DISTINCT, LISTAGG)
FIELDS = (("n", N), ("sum", BIG), ("max", STR), ("distinct", N), ("list", STR))
BOUNDS = (("ws", TIME), ("we", TIME))
BY_V, BY_S = specs.SortKey(1), specs.SortKey(2, descending=True)


@dataclass(frozen=True)
class Case:
    """``retracts``: the batches take rows back. ``inputs``: how many the operator has."""

    spec: Any
    output: Schema
    retracts: bool = False
    inputs: int = 1

    def batches(self, step: int) -> list[tuple[int, Batch]]:
        """(input, rows) of one of three steps: before the whole snapshot, before the delta,
        after it was restored."""
        return [(i, self._batch(step, i)) for i in range(self.inputs)]

    def _batch(self, step: int, side: int) -> Batch:
        rows, kinds = [], []
        for n in range(40):
            number = 40 * step + n
            row = _row(number, side)
            if self.retracts and step and n % 4 == 3:
                row = _row(number - 40, side)
                kinds.append(3)
            else:
                kinds.append(0)
            rows.append(row)
        return Batch.of(ROWS, rows, kinds if any(kinds) else None)

    def subtask(self, restored: Any = None, **more: Any) -> Subtask:
        return Subtask(make_operator(self.spec), [ROWS] * self.inputs, self.output, restored=restored, **more)

    def run(self, subtask: Subtask, step: int) -> None:
        for side, batch in self.batches(step):
            subtask.process(batch, side)
        subtask.watermark(_WATERMARKS[step])


_WATERMARKS = (15 * S, 30 * S, 45 * S)


def _row(number: int, side: int) -> tuple[Any, ...]:
    time = (number * 7 + side) % 40 * S // 2 + number // 40 * 15 * S + 16 * S
    start = time // (10 * S) * 10 * S
    text = None if number % 11 == 0 else f"text {number % 5}"
    return f"key {number * 13 % 17}", number * 7 % 10, text, time, start, start + 10 * S


def _window(kind: str, **more: Any) -> specs.WindowSpec:
    return specs.WindowSpec(kind=kind, time=3, **more)


def _windows(window: specs.WindowSpec, **more: Any) -> Case:
    spec = specs.WindowAggregateSpec(
        window=window, keys=(0,), aggregates=CALLS, window_columns=("start", "end"), **more
    )
    return Case(spec, Schema.of(("k", STR), *FIELDS, *BOUNDS))


def _join(kind: str, *, retracts: bool = False, **more: Any) -> Case:
    output = ROWS if kind in ("semi", "anti") else TWICE
    spec = specs.JoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), **more)
    return Case(spec, output, retracts, inputs=2)


def _top(*, retracts: bool = False, **more: Any) -> Case:
    spec = specs.TopNSpec(partition=(0,), rank_column=True, retracts=retracts, last=3, **more)
    return Case(spec, Schema((*ROWS.fields, t.Field("rank", N))), retracts)


def _over(*calls: AggregateCall, **more: Any) -> Case:
    spec = specs.OverSpec(partition=(0,), aggregates=calls, **more)
    return Case(spec, Schema((*ROWS.fields, *(t.Field(f"a{i}", c.type) for i, c in enumerate(calls)))))


TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type) for f in ROWS.fields)))
ARRAY = AggregateCall("ARRAY_AGG", (1,), t.ArrayType(BIG))
CASES: dict[str, Case] = {
    "group-aggregate": Case(
        specs.GroupAggregateSpec(keys=(0,), aggregates=CALLS, ttl_ms=1000), Schema.of(("k", STR), *FIELDS)
    ),
    "group-aggregate-retracting": Case(
        specs.GroupAggregateSpec(keys=(0,), aggregates=CALLS, retracts=True),
        Schema.of(("k", STR), *FIELDS), retracts=True,
    ),
    "tumble": _windows(_window("tumble", size_us=10 * S)),
    "hop": _windows(_window("hop", size_us=12 * S, slide_us=4 * S), allowed_lateness_us=9 * S),
    "windowed-input": _windows(specs.WindowSpec(kind="tumble", size_us=10 * S), windowed_input=(4, 5)),
    "session": _windows(_window("session", gap_us=3 * S)),
    "join-inner": _join("inner"),
    "join-full-retracting": _join("full", retracts=True),
    "join-semi": _join("semi"),
    "interval-join": _join("left", interval=(3, 3, -5 * S, 5 * S)),
    "top-rows": _top(order=(BY_V,), fixed_order=True),
    "ranking": _top(order=(BY_V, BY_S), rank="rank", retracts=True),
    "ranking-fixed": _top(order=(specs.SortKey(1),)),
    "ranking-windowed": _top(order=(BY_V, BY_S), window=(4, 5)),
    "first-row": Case(specs.DeduplicateSpec(keys=(0,), keep="first"), ROWS),
    "last-row": Case(specs.DeduplicateSpec(keys=(0,), keep="last", time=3), ROWS),
    "last-row-windowed": Case(
        specs.DeduplicateSpec(keys=(0, 4, 5), keep="last", time=3, window=(4, 5)), ROWS
    ),
    "normalize": Case(specs.NormalizeSpec(keys=(0,)), ROWS, retracts=True),
    "materialize": Case(specs.MaterializeSpec(keys=(0,)), ROWS, retracts=True),
    "intersect": Case(specs.SetOperationSpec(kind="intersect", all=True), ROWS, retracts=True, inputs=2),
    "over-unbounded": _over(SUM, DISTINCT, LISTAGG, order=(specs.SortKey(3),)),
    "over-rows": _over(SUM, order=(specs.SortKey(3),), frame="rows", preceding=2),
    "over-range": _over(SUM, order=(specs.SortKey(3),), preceding=4 * S),
    "temporal-join": Case(
        specs.TemporalJoinSpec(kind="left", left_keys=(0,), right_keys=(0,), left_time=3, right_time=3),
        TWICE, inputs=2,
    ),
}  # fmt: skip


def written(case: Case) -> StateHandle:
    """A chain of a whole snapshot and a delta."""
    subtask = case.subtask()
    case.run(subtask, 0)
    subtask.checkpoint()
    case.run(subtask, 1)
    return subtask.checkpoint()


def main(folder: Path) -> None:
    for name, case in CASES.items():
        handle = written(case)
        assert handle.inline is not None
        assert handle.chain[0].inline is not None
        (folder / f"{name}-whole.snapshot").write_bytes(handle.chain[0].inline)
        (folder / f"{name}-delta.snapshot").write_bytes(handle.inline)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
