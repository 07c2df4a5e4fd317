"""The node of a window table function."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.functions.expr import Expr
from penstock.jobgraph.specs import WindowSpec
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.node import Node, Unary
from penstock.plan.properties import Properties, WindowProperty, window_times
from penstock.plan.rewriting import below_own_columns
from penstock.plan.words import window_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis


class WindowTable(Unary, frozen=True, kw_only=True, tag="window-table"):
    """TABLE(TUMBLE/HOP/CUMULATE/SESSION(…)): appends window_start, window_end and window_time."""

    physical: ClassVar[str] = "penstock.plan.operators.window_table.physical:window_table"
    reads: ClassVar[tuple[str, ...]] = ("window", "keys")

    input: Node
    window: WindowSpec
    #: PARTITION BY of a session window.
    keys: tuple[int, ...] = ()
    schema: Schema

    def keeps_rows(self) -> bool:
        return self.window.kind == "session"

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        first = len(self.input.schema)
        window = WindowProperty(self.window, first, first + 1, first + 2)
        lags, rowtimes, proctimes = window_times(self.window, window)
        return Properties(
            bounded=inner.bounded,
            # Rows of a session are emitted when the session has ended: the watermark has passed their time.
            lags=lags if self.window.kind == "session" else {**inner.lags, **lags},
            rowtimes=rowtimes,
            proctimes=proctimes,
            window=window,
            updating=inner.updating,
            timeline=inner.timeline,
        )

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def lowered(self, part: Expr) -> Expr | None:
        if self.window.kind == "session":
            return None  # Leaving a row out could split its session in two.
        return below_own_columns(part, len(self.input.schema))

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        columns = below.columns
        window = words.window_words(self.window, columns, [columns[k] for k in self.keys])
        made = (*columns, *(f"{window}.{x}" for x in ("start", "end", "time")))
        return words.opaque(below.tables, f"{window} of {below.rows}", made)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        if self.window.kind != "session":
            return {}, {}
        below = lineage.of(self.input)
        row = words.typed(below.columns, self.input.schema.types)
        window = words.window_words(self.window, below.columns, [row[k] for k in self.keys])
        return {**words.stored_rows(below, row), "window": window}, {}

    def explained(self) -> str:
        return f"WindowTable({window_text(self.window, self.input.schema)})"

    def check(self) -> None:
        given = self.input.schema.types
        soundness.indices(self.keys, given)
        soundness.indices([] if self.window.time is None else [self.window.time], given)
        soundness.appended(self.schema.types, given, 3)
