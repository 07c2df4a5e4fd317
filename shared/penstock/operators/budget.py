"""How many rows fit into one step of a task, estimated from the duration of recent steps."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from penstock.functions.expr import AggregateCall, PythonCall
from penstock.jobgraph.specs import (
    AsyncCalcSpec,
    AsyncWaitSpec,
    KeyedProcessSpec,
    KeyedWindowSpec,
    PythonSpec,
    TableFunctionSpec,
)

#: The target duration of a step in seconds. Input is cut into pieces that should not take longer.
STEP_S = 0.005
#: The same for what a columnar source reads at once. Each piece has a fixed cost in every expression and column
#: that follows (1 ms in a query with a regular expression and a CASE), so 5 ms of work would be up to a fifth
#: of it.
SOURCE_STEP_S = 0.010


#: The smallest useful piece for columnar operators: smaller ones only repeat the fixed cost of a step.
COLUMNAR_LEAST = 512
#: The same for what a source reads at once, unless user code follows in its task: decoding and encoding have a fixed cost
#: for each column. On a busy machine steps take longer by the clock, and smaller pieces would make it busier still.
SOURCE_LEAST = 8192
#: A piece of the smallest size may take this long in seconds; rows that take longer (large ones) make it smaller.
LONGEST_S = 0.5
ASYNC_MOST = 256
_USER_CODE = (KeyedProcessSpec, KeyedWindowSpec, PythonCall, PythonSpec, TableFunctionSpec)


def least_rows(specs: Any) -> int:
    """The smallest useful piece of input, in rows: 1 if a spec runs user code (which may take long), else
    COLUMNAR_LEAST."""
    return 1 if _runs_user_code(specs) else COLUMNAR_LEAST


def most_rows(specs: Any, otherwise: int) -> int:
    """The largest piece of input, in rows: at most ASYNC_MOST if a spec makes async calls, because a barrier
    waits for all of them."""
    asks = any(
        isinstance(x, (AsyncCalcSpec, AsyncWaitSpec)) or getattr(x, "asynchronous", False) for x in specs
    )
    return min(ASYNC_MOST, otherwise) if asks else otherwise


def source_budget(specs: Any) -> RowBudget:
    """What a source should read at once, in a task with these specs."""
    columnar = least_rows(specs) == COLUMNAR_LEAST
    if columnar:
        return RowBudget(4_096, least=SOURCE_LEAST, most=16_384, step_s=SOURCE_STEP_S)
    return RowBudget(4_096, least=COLUMNAR_LEAST, most=16_384)


def _runs_user_code(value: Any) -> bool:
    if isinstance(value, _USER_CODE) or (isinstance(value, AggregateCall) and value.python is not None):
        return True
    if isinstance(value, msgspec.Struct):
        return any(_runs_user_code(getattr(value, name)) for name in value.__struct_fields__)
    return isinstance(value, (tuple, list)) and any(_runs_user_code(v) for v in value)


#: The number of recent batches of which the fastest counts (columnar operators only).
RECENT = 4


class RowBudget:
    """Estimates ``rows``, the number of rows that take about ``step_s`` seconds.

    The estimate grows slowly, since a small batch says little about a large one. It shrinks at once when a
    batch took twice ``step_s``. A ``least`` above 1 means columnar operators. Their batches cost nearly the
    same, so a slow one was interrupted: the fastest of the last few counts, and batches below ``least`` rows
    are ignored, and fewer rows than ``least`` are chosen only if those would take more than ``LONGEST_S``. (The
    thread's CPU time would be exact, but reading it is a system call of 4 µs several times per batch.)
    """

    __slots__ = ("_least", "_most", "_recent", "_step_s", "rows")

    def __init__(self, first: int, *, least: int = 1, most: int, step_s: float = STEP_S) -> None:
        self.rows = first
        self._least = least
        self._most = most
        self._step_s = step_s
        #: Seconds per row of the last batches.
        self._recent: deque[float] = deque(maxlen=1 if least == 1 else RECENT)

    def note(self, rows: int, spent_s: float) -> None:
        """Take into account that ``rows`` rows took ``spent_s`` seconds."""
        if spent_s <= 0 or not rows or rows < min(self._least, self.rows):
            return
        self._recent.append(spent_s / rows)
        row_s = min(self._recent)
        fits = min(self._step_s / row_s, 4.0 * max(rows, self.rows))
        if rows * row_s < 2 * self._step_s:
            fits = 0.5 * self.rows + 0.5 * fits
        least = max(1.0, min(self._least, LONGEST_S / row_s))
        self.rows = int(max(least, min(self._most, fits)))
