"""What every spec declares of its operator: how its rows are spread over subtasks, whether it keeps
state, what of Spark can run it.

The planner proves with it that equal keys meet (``plan.distribution``), names it in savepoints
(``plan.identity``) and chooses the engine (``spark.coverage``); nothing of them knows a kind of spec.
What a spec does not declare has an answer here that fits an operator without keys and state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

#: Per input, the columns whose equal values must meet in one subtask: () = all rows must; None = any
#: subtask will do. No entries: nothing is required of any input.
Keys = tuple[tuple[int, ...] | None, ...]
#: Each tuple: rows with equal values in these columns (hashed in this order) are in the subtask
#: that owns the values' key group.
Spread = frozenset[tuple[int, ...]]

NOWHERE: Spread = frozenset()
#: Reasons why an operator does not run in Structured Streaming.
UPDATES = "it takes rows back that it has given, and Spark's sinks only append"
PROCESSING_TIME = "windows of processing time: a micro-batch has one time for all of its rows"


class Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """Data that says what an operator does. Fields are only added, with defaults."""

    #: ``module:Class`` of what runs it, made with the spec. The operators that Penstock brings along are
    #: known to ``penstock.operators.factory``.
    operator: ClassVar[str] = ""
    #: Whether it reads rows from outside, or assigns those who do; whether it writes them there.
    is_source: ClassVar[bool] = False
    is_sink: ClassVar[bool] = False
    #: Whether the output is the first input's columns, in place, and perhaps more behind them.
    keeps_columns: ClassVar[bool] = False
    #: Whether it gives each row's own columns, and its own behind them.
    appends_columns: ClassVar[bool] = False
    #: Whether making its rows again costs less than keeping them for several readers.
    cheap: ClassVar[bool] = False

    def own(self) -> Spec:
        """The spec itself, also where it travels as plain data (``specs.registered``)."""
        return self

    # -- over subtasks -------------------------------------------------------------------------

    def required_keys(self, width: int) -> Keys:
        """Rows of which columns must meet in one subtask. ``width``: how many columns it gives."""
        return ()

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        """How the output is spread, given how the inputs are. ``left_width``: columns of the first."""
        return ports[0] if self.keeps_columns else NOWHERE

    # -- state ---------------------------------------------------------------------------------

    def keeps_state(self) -> bool:
        """Whether rows or values stay between batches."""
        return False

    # -- on Spark ------------------------------------------------------------------------------

    def native(self) -> str:
        """``module:function`` that says it in Spark's own words, given (spec, a frame an input, schema of
        the output); empty: the operator itself runs there, over rows that Spark brings together."""
        return ""

    def not_streamed(self) -> str | None:
        """Why it does not run in Structured Streaming; None: it does."""
        return None

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        """Columns of input ``index`` by which Spark brings rows together; empty: all in one partition."""
        return ()

    def event_order(self, index: int) -> str | int | None:
        """The column of input ``index`` that is event time to the operator; ``time``: the records'
        own; None: it knows none. For rows that carry a window, its start: a watermark just below
        it closes no window that is still to come."""
        return None

    def reads_time(self) -> bool:
        """Whether it looks at the records' own event times."""
        return False

    def passes_time(self) -> bool:
        """Whether its rows have the event times of its input's records."""
        return True

    def reads_arrival(self) -> bool:
        """Whether the order in which rows came makes a difference."""
        return False

    def passes_arrival(self) -> bool:
        """Whether a reader behind it wants the order in which its input's rows came."""
        return True

    def compaction(self) -> tuple[int, ...] | None:
        """Of an operator that updates rows: the columns by which the last change of a row stays, none =
        all of them; None: it gives final rows."""
        return None


def mapped(known: Spread, at: Mapping[int, int]) -> Spread:
    """A spread by columns that are somewhere else now, as far as all of them are still there."""
    return frozenset(tuple(at[k] for k in keys) for keys in known if all(k in at for k in keys))


def joined(kind: str, ports: Sequence[Spread], left_width: int) -> Spread:
    """Of a join's rows: of padded ones a key says nothing."""
    left = ports[0] if kind in ("inner", "left", "semi", "anti") else NOWHERE
    if kind not in ("inner", "right"):
        return left
    return left | frozenset(tuple(k + left_width for k in keys) for keys in ports[1])
