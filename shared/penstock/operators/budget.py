"""How many rows fit into a step, by what the last ones took."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from penstock.functions.expr import AggregateCall, PythonCall
from penstock.jobgraph.specs import (
    AsyncCalcSpec,
    KeyedProcessSpec,
    KeyedWindowSpec,
    PythonSpec,
    TableFunctionSpec,
)

#: A step ends after this long; its input is cut so that no piece takes longer.
STEP_S = 0.005


#: Fewer rows than this do not make a columnar operator's step any shorter; cutting below
#: would only pay its fixed cost more often, and more yet the busier the machine is.
COLUMNAR_LEAST = 512
ASYNC_MOST = 256
_USER_CODE = (KeyedProcessSpec, KeyedWindowSpec, PythonCall, PythonSpec, TableFunctionSpec)


def least_rows(specs: Any) -> int:
    """The smallest useful piece of input for operators of these specs: one row where a
    user's function may take any time over each."""
    return 1 if _runs_user_code(specs) else COLUMNAR_LEAST


def most_rows(specs: Any, otherwise: int) -> int:
    """The largest piece: a batch of async calls is one wait, and a barrier waits with it."""
    asks = any(isinstance(x, AsyncCalcSpec) or getattr(x, "asynchronous", False) for x in specs)
    return min(ASYNC_MOST, otherwise) if asks else otherwise


def _runs_user_code(value: Any) -> bool:
    if isinstance(value, _USER_CODE) or (isinstance(value, AggregateCall) and value.python is not None):
        return True
    if isinstance(value, msgspec.Struct):
        return any(_runs_user_code(getattr(value, name)) for name in value.__struct_fields__)
    return isinstance(value, (tuple, list)) and any(_runs_user_code(v) for v in value)


#: Of so many batches the fastest counts, where only computing takes time.
RECENT = 4


class RowBudget:
    """``rows``: expected to take about ``step_s``. Grows carefully, since a small batch
    says little about a large one; shrinks at once when a batch took twice too long.

    ``least`` above 1 means columnar operators, whose batches differ little: one that took
    longer was interrupted by others that use the processor, so the fastest of the last
    few counts, and what is smaller than ``least`` says nothing. (The thread's own CPU
    time would tell, but reading it is a system call of 4 µs, several times a batch.)
    """

    __slots__ = ("_least", "_most", "_recent", "_step_s", "rows")

    def __init__(self, first: int, *, least: int = 1, most: int, step_s: float = STEP_S) -> None:
        self.rows = first
        self._least = least
        self._most = most
        self._step_s = step_s
        #: Seconds a row, of the last batches.
        self._recent: deque[float] = deque(maxlen=1 if least == 1 else RECENT)

    def note(self, rows: int, spent_s: float) -> None:
        """``rows`` rows took ``spent_s`` seconds."""
        if spent_s <= 0 or not rows or rows < min(self._least, self.rows):
            return
        self._recent.append(spent_s / rows)
        row_s = min(self._recent)
        fits = min(self._step_s / row_s, 4.0 * max(rows, self.rows))
        if rows * row_s < 2 * self._step_s:
            fits = 0.5 * self.rows + 0.5 * fits
        self.rows = int(max(self._least, min(self._most, fits)))
