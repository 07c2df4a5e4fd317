"""Runtime mode BATCH: rows wait until every input has ended and are then processed in order of event time.

A process function or window so receives the rows of a key by their times, in whatever order they arrived, as in
Flink. Rows without event time come first, in order of arrival. Waiting rows go to disk when memory is short, and
are part of snapshots.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import stable_argsort
from penstock.errors import SpecError
from penstock.jobgraph.specs import SortKey
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows, due_together
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.operators.operator import Operator
    from penstock.snapshots.contract import RestoredState
    from penstock.types import Batch

_LONG = t.BigIntType(False)


def _times(rows: Batch) -> list[Column]:
    return [Column(_LONG, rows.times_or_none())]


_NAME = "batch-input-"


def function_state(restored: RestoredState, where: str, *, waits: bool) -> RestoredState:
    """The restored state without the rows that wait.

    Raises:
        SpecError: rows wait in the snapshot, but this job is not in mode BATCH (``waits`` is False).
    """
    waiting = [name for name in restored.keyed if name.startswith(_NAME)]
    if not waits and any(rows.num_rows for name in waiting for rows in restored.keyed[name]):
        raise SpecError(
            "the snapshot is of a job in mode BATCH: it holds rows that no function has seen yet",
            expected="execution.runtime-mode = BATCH",
            got="a job in mode STREAMING",
            where=where,
            remedy="restore it in mode BATCH",
        )
    return replace(restored, keyed={k: v for k, v in restored.keyed.items() if k not in waiting})


class BatchInputs:
    """The rows of an operator's bounded inputs. ``keys[i]`` are the key columns of input i (empty: no key)."""

    def __init__(
        self, operator: Operator, keys: Sequence[Sequence[int]], restored: RestoredState | None
    ) -> None:
        ctx, order = operator.ctx, WaitingOrder(_times, (SortKey(0),))
        self._logs = [
            operator.keep(
                WaitingRows(
                    ctx, f"{_NAME}{i}", schema, of, order, kind="batch-input", spills=bool(schema.fields)
                )
            )
            for i, (schema, of) in enumerate(zip(ctx.input_schemas, keys, strict=True))
        ]
        for log in self._logs:
            log.restore(restored)

    def add(self, index: int, batch: Batch) -> None:
        """Keep the rows of ``batch``, which came from input ``index``."""
        self._logs[index].add(batch)

    def drain(self, first: int | None = None) -> Iterator[tuple[int, Batch]]:
        """All rows as (input, batch) pairs by event time; all rows of the input ``first``, if given, come first."""
        if first is not None:
            for rows in self._logs[first].due(whole=False):
                yield first, rows.take(stable_argsort(rows.times_or_none()))
        for together in due_together(self._logs, None, whole=False):
            yield from _interleaved(together)


def _interleaved(batches: Sequence[Batch]) -> Iterator[tuple[int, Batch]]:
    """The rows of all inputs by event time, as (input, batch) pairs."""
    times = [rows.times_or_none() for rows in batches]
    inputs = np.repeat(np.arange(len(batches)), [len(of) for of in times])
    rows = np.concatenate([np.arange(len(of)) for of in times])
    order = stable_argsort(np.concatenate(times))
    inputs, rows = inputs[order], rows[order]
    for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(inputs)) + 1):
        if len(part):
            index = int(inputs[part[0]])
            yield index, batches[index].take(rows[part])
