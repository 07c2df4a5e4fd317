"""Helpers of several operators: pieces of output, event times, clamped and stored watermarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from penstock.errors import RecordError
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch
    from penstock.types.column import Column

_T = TypeVar("_T")

#: The most rows of one output batch.
PIECE_ROWS = 16_384
#: The value of ``WindowSpec.time`` that means the records' own event times (``Batch.times``), not a column.
RECORD_TIMES = -1


def pieces(indices: np.ndarray, most: int = PIECE_ROWS) -> Iterator[np.ndarray]:
    """An index array in slices of at most ``PIECE_ROWS`` elements, or ``most`` if that is less."""
    size = min(most, PIECE_ROWS)
    for at in range(0, len(indices), size):
        yield indices[at : at + size]


def batch_pieces(batch: Batch) -> Iterator[Batch]:
    """The batch in slices of at most ``PIECE_ROWS`` rows."""
    for at in range(0, batch.num_rows, PIECE_ROWS):
        yield batch.slice(at, PIECE_ROWS)


def with_last(items: Iterator[_T]) -> Iterator[tuple[_T, bool]]:
    """Each item with a boolean: whether it is the last one."""
    for item in items:
        for following in items:
            yield item, False
            item = following
        yield item, True


def event_times(batch: Batch, index: int, ctx: OperatorContext) -> np.ndarray:
    """The event time (int64 µs) of each row, from column ``index`` or, for RECORD_TIMES, from the records.

    Raises:
        RecordError: the records have no event time, or a time is NULL (as in Flink).
    """
    if index == RECORD_TIMES:
        if batch.times is None or not batch.timed:
            raise RecordError(
                "the records carry no event time",
                expected="a watermark strategy with timestamps before this operator",
                got="records without timestamps",
                where=ctx.name,
                remedy="call assign_timestamps_and_watermarks on the stream, or use processing time",
            )
        return batch.times
    column: Column = batch.columns[index]
    valid = column.valid
    if valid is not None and not valid.all():
        raise RecordError(
            "the row time is NULL",
            expected=f"a value in {batch.schema.fields[index].name!r} of every row",
            got=f"{int((~valid).sum())} of {len(valid)} rows without one",
            where=ctx.name,
            remedy="filter such rows out before this operator (WHERE … IS NOT NULL)",
        )
    return column.values


def clamp_watermark(value: int) -> int:
    """A watermark (µs) that was computed as a Python int, limited to int64."""
    return max(MIN_WATERMARK, min(MAX_WATERMARK, value))


def watermark_state(watermark: int) -> dict[str, list[bytes]]:
    """The operator's watermark (µs) as union state. After a restore the lowest of all subtasks counts."""
    return {"watermark": [watermark.to_bytes(8, "little", signed=True)]}


def restored_watermark(restored: RestoredState | None) -> int:
    """The lowest restored watermark (µs) of all subtasks; MIN_WATERMARK if there is none."""
    items = restored.unions.get("watermark", []) if restored else []
    return min((int.from_bytes(x, "little", signed=True) for x in items), default=MIN_WATERMARK)
