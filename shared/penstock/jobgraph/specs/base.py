"""What every spec declares about its operator: how its rows are spread over subtasks, whether it keeps state,
and whether Spark can run it.

The planner uses the declarations to prove that rows with equal keys meet (``plan.distribution``), to name
operators in savepoints (``plan.identity``), and to choose the engine (``spark.coverage``). None of these
modules knows single kinds of specs. The defaults here fit an operator without keys and without state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

#: For each input, the columns whose equal values must meet in one subtask. (): all rows must meet; None: any
#: subtask may take any row. Without entries no input has a requirement.
Keys = tuple[tuple[int, ...] | None, ...]
#: How rows are spread. Each tuple of columns means: a row is in the subtask that owns the key group of its
#: values in these columns, hashed in this order.
Spread = frozenset[tuple[int, ...]]

NOWHERE: Spread = frozenset()
#: Common reasons why an operator does not run in Structured Streaming.
UPDATES = "it takes rows back that it has given, and Spark's sinks only append"
PROCESSING_TIME = "windows of processing time: a micro-batch has one time for all of its rows"


class Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """Data that says what an operator does. Fields are only added, with defaults."""

    #: ``module:Class`` of the operator, whose constructor takes the spec. Empty for the operators of Penstock
    #: itself, which ``penstock.operators.factory`` knows.
    operator: ClassVar[str] = ""
    #: Whether the operator reads rows from an external system or assigns splits to readers; whether it writes
    #: to one.
    is_source: ClassVar[bool] = False
    is_sink: ClassVar[bool] = False
    #: Whether the output begins with the columns of the first input, in their order.
    keeps_columns: ClassVar[bool] = False
    #: Whether the output has each input row's columns, followed by columns that the operator computes.
    appends_columns: ClassVar[bool] = False
    #: Whether computing the rows again costs less than keeping them for several readers.
    cheap: ClassVar[bool] = False

    def own(self) -> Spec:
        """The spec itself; for a ``RegisteredSpec`` the spec that it carries."""
        return self

    # -- over subtasks -------------------------------------------------------------------------

    def required_keys(self, width: int) -> Keys:
        """The columns whose equal values must meet in one subtask. ``width``: the number of output columns."""
        return ()

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        """How the output is spread, given how the inputs are. ``left_width``: the number of columns of the
        first input."""
        return ports[0] if self.keeps_columns else NOWHERE

    # -- state ---------------------------------------------------------------------------------

    def keeps_state(self) -> bool:
        """Whether the operator keeps rows or values between batches."""
        return False

    # -- on Spark ------------------------------------------------------------------------------

    def alone_on_spark(self) -> bool:
        """Whether the operator takes each partition of Spark's as it is. An operator with state needs rows brought
        together, unless its state is only of rows under way, of which a batch leaves none."""
        return not self.keeps_state()

    def native(self) -> str:
        """``module:function`` that expresses the operator with Spark's own functions. It takes (spec, one
        frame per input, output schema). Empty: the operator itself runs on Spark, over rows that Spark
        brings together."""
        return ""

    def not_streamed(self) -> str | None:
        """The reason why the operator does not run in Structured Streaming; None if it does."""
        return None

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        """The columns of input ``index`` by which Spark brings rows together. (): all rows go into one
        partition."""
        return ()

    def event_order(self, index: int) -> str | int | None:
        """The column of input ``index`` that is event time to the operator; ``"time"``: the records' own
        event times; None: the operator uses no event time. For rows that carry a window it is the window's
        start, because a watermark just below the start closes no window of a later row."""
        return None

    def reads_time(self) -> bool:
        """Whether the operator reads the records' own event times."""
        return False

    def passes_time(self) -> bool:
        """Whether an output row has the event time of its input record."""
        return True

    def reads_arrival(self) -> bool:
        """Whether the result depends on the order in which rows arrive."""
        return False

    def passes_arrival(self) -> bool:
        """Whether the order in which input rows arrive matters to readers of the output."""
        return True

    def compaction(self) -> tuple[int, ...] | None:
        """For an operator whose output updates rows: the columns that identify a row, of which only the last
        change remains; (): all columns. None: the operator emits final rows only."""
        return None


def mapped(known: Spread, at: Mapping[int, int]) -> Spread:
    """``known`` after columns have moved: ``at`` maps old to new indices. Tuples with a column that is gone
    are left out."""
    return frozenset(tuple(at[k] for k in keys) for keys in known if all(k in at for k in keys))


def joined(kind: str, ports: Sequence[Spread], left_width: int) -> Spread:
    """The spread of a join's output. It says nothing of a side whose columns the join may fill with NULLs."""
    left = ports[0] if kind in ("inner", "left", "semi", "anti") else NOWHERE
    if kind not in ("inner", "right"):
        return left
    return left | frozenset(tuple(k + left_width for k in keys) for keys in ports[1])
