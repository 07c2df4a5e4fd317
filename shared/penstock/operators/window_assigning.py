"""Which windows the rows of a Python window operator belong to. Windows are (start, end) in µs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SpecError, UnsupportedError
from penstock.operators.window_functions import GLOBAL_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.specs import KeyedWindowSpec, WindowSpec
    from penstock.operators.operator import OperatorContext
    from penstock.types import Batch

_MS = 1_000
_KINDS = ("tumble", "hop", "cumulate", "session", "global", "count", "own")
#: (row number, key) → the windows of the row.
Assign = Callable[[int, Any], "list[tuple[int, int]]"]


@dataclass(frozen=True)
class AssignBy:
    """What windows depend on beside the time of a row.

    ``numbered``: key → how many rows of it came before this one; ``gap``: a row → the gap of its session in ms, or None
    where the windows say it; ``own``: (row, its time in µs, key) → its windows, by the program's own assigner.
    """

    numbered: Callable[[Any], int]
    gap: Callable[[Any], int] | None = None
    own: Callable[[Any, int, Any], list[tuple[int, int]]] | None = None


def check_assignable(window: WindowSpec) -> None:
    """UnsupportedError for windows of a kind that only SQL's aggregates have."""
    if window.kind not in _KINDS:
        raise UnsupportedError(f"a Python function over {window.kind} windows", expected=", ".join(_KINDS))


def times_of(spec: KeyedWindowSpec, batch: Batch, ctx: OperatorContext) -> np.ndarray:
    """(n,) int64 times of the rows, µs: their event times, or the clock's.

    Raises:
        UnsupportedError: The windows are by event time, and the rows have none.
    """
    if not spec.event_time:
        return np.full(batch.num_rows, ctx.now_ms() * _MS, np.int64)
    if batch.times is not None and batch.timed:
        return batch.times
    if spec.window.kind == "global":
        return np.zeros(batch.num_rows, np.int64)
    raise UnsupportedError(
        "records without event time reach an event-time window",
        expected="assign_timestamps_and_watermarks(…) with a timestamp assigner before it",
        where=f"operator '{ctx.name}'",
    )


def window_starts(window: WindowSpec, times: np.ndarray) -> np.ndarray:
    """The starts (int64[n, k], µs) of the k windows of each of n times (µs), latest first.

    If a sliding window's size is no multiple of its slide, the last start may belong to a window that does not
    contain the time.
    """
    slide = window.slide_us if window.kind == "hop" else window.size_us
    last = times - np.mod(times - window.offset_us, slide)
    count = -(-window.size_us // slide)
    return last[:, None] - np.arange(count, dtype=np.int64) * slide


def assigner(window: WindowSpec, times: np.ndarray, rows: Sequence[Any], by: AssignBy) -> Assign:
    """Row number and key → windows.

    Args:
        window: The windows.
        times: (n,) int64, µs.
        rows: The n rows, as functions see them.
        by: What windows depend on beside the times.
    """
    stamps = times.tolist()
    match window.kind:
        case "global":
            return lambda i, key: [(-(2**63), GLOBAL_END)]
        case "count":
            size, slide = window.count, window.count_slide
            return lambda i, key: _counted(by.numbered(key), size, slide)
        case "own":
            own = by.own
            assert own is not None
            return lambda i, key: own(rows[i], stamps[i], key)
        case "session" if by.gap is not None:
            gap = by.gap
            return lambda i, key: [(stamps[i], stamps[i] + _gap_us(gap(rows[i])))]
        case "session":
            return lambda i, key: [(stamps[i], stamps[i] + window.gap_us)]
        case "cumulate":
            return lambda i, key: _cumulated(window, stamps[i])
    size_us = window.size_us
    starts = window_starts(window, times).tolist()
    return lambda i, key: [(s, s + size_us) for s in starts[i] if s + size_us > stamps[i]]


def _counted(number: int, size: int, slide: int) -> list[tuple[int, int]]:
    """The windows of a key's row ``number`` (from 0). Window k begins with row k · slide and has ``size`` rows."""
    first = max(0, -(-(number - size + 1) // slide))
    return [(k, GLOBAL_END) for k in range(first, number // slide + 1)]


def _cumulated(window: WindowSpec, time: int) -> list[tuple[int, int]]:
    """The windows of one start whose ends, a step apart, lie behind ``time``."""
    start = time - (time - window.offset_us) % window.size_us
    first = (time - start) // window.slide_us + 1
    return [(start, start + k * window.slide_us) for k in range(first, window.size_us // window.slide_us + 1)]


def _gap_us(gap_ms: Any) -> int:
    if not isinstance(gap_ms, int) or isinstance(gap_ms, bool) or gap_ms <= 0:
        raise SpecError(
            "the gap of a session is not positive", expected="a whole number of ms above 0", got=repr(gap_ms),
            where="SessionWindowTimeGapExtractor.extract",
        )  # fmt: skip
    return gap_ms * _MS
