"""The node of grouping that includes a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from penstock.functions.expr import AggregateCall, Expr
from penstock.jobgraph.specs import WindowAggregateSpec, WindowSpec
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, moved, referenced
from penstock.plan.node import Node
from penstock.plan.operators.aggregate.node import Grouping
from penstock.plan.properties import Properties, WindowProperty, window_times
from penstock.plan.words import calls_text, group_keys, window_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis


class WindowAggregate(Grouping, frozen=True, kw_only=True, tag="window-aggregate"):
    """Grouping that includes a window: keys, aggregates, then ``window_columns``.

    ``windowed_input``: the columns (start, end) of the window, if the rows already carry one.
    ``late_tag``: side output of rows later than all their windows.
    """

    physical: ClassVar[str] = "penstock.plan.operators.window_aggregate.physical:window_aggregate"

    input: Node
    window: WindowSpec
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window_columns: tuple[Literal["start", "end", "time"], ...] = ("start", "end", "time")
    windowed_input: tuple[int, int] | None = None
    late_tag: str | None = None
    allowed_lateness_us: int = 0
    schema: Schema

    def also_reads(self) -> set[int]:
        return referenced(self.windowed_input or self.window)

    def own_columns(self, need: set[int], at: Mapping_, columns: list[int]) -> dict[str, Any]:
        start = len(self.keys) + len(self.aggregates)
        sides = [i for i in range(len(self.window_columns)) if start + i in need]
        sides = sides or [self.window_columns.index("end")] if not columns else sides
        columns += [start + i for i in sides]
        kept = tuple(self.window_columns[i] for i in sides)
        if self.windowed_input:
            return {"window_columns": kept, "windowed_input": moved(self.windowed_input, at)}
        return {"window_columns": kept, "window": moved(self.window, at)}

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        first = len(self.keys) + len(self.aggregates)
        at = {name: first + i for i, name in enumerate(self.window_columns)}
        window = WindowProperty(self.window, at.get("start"), at.get("end"), at.get("time"))
        lags, rowtimes, proctimes = window_times(self.window, window)
        keys = frozenset(range(len(self.keys)))
        return Properties(
            bounded=inner.bounded,
            lags=lags,
            rowtimes=rowtimes,
            proctimes=proctimes,
            window=window,
            unique=tuple(keys | {at[side]} for side in ("end", "start", "time") if side in at),
            timeline=inner.timeline,
        )

    def lowered(self, part: Expr) -> Expr | None:
        if self.window.kind == "session":
            return None
        return super().lowered(part)

    def side_tags(self) -> list[str] | None:
        return [] if self.late_tag is None else [self.late_tag]

    def side_input(self) -> Node | None:
        return self.input

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        columns = below.columns
        keys = tuple(columns[k] for k in self.keys)
        window = window_words(self, columns)
        atom = words.bounded(f"groups({', '.join(sorted(keys))} per {window}) of {below.rows}")
        made = (
            *keys,
            *(words.bounded(f"{words.call_words(c, columns)} in {atom}") for c in self.aggregates),
            *(f"{window}.{x}" for x in self.window_columns),
        )
        return words.opaque(below.tables, atom, made)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        assert isinstance(op.spec, WindowAggregateSpec)
        parts, columns = self.cells(lineage, op.spec)
        return {"window": window_words(self, lineage.of(self.input).columns), **parts}, columns

    def explained(self) -> str:
        names = self.input.schema
        window = window_text(self.window, None if self.windowed_input else names)
        given = ", windowed input" if self.windowed_input else ""
        late = f", late to '{self.late_tag}'" if self.late_tag else ""
        groups = f"{group_keys(self.keys, names)}{calls_text(self.aggregates, names)}"
        return f"WindowAggregate({window}{given}, {groups}{late})"

    def check(self) -> None:
        given = self.input.schema.types
        made = self.check_group()
        soundness.indices(self.windowed_input or (), given)
        if self.windowed_input is None and self.window.time is not None:
            soundness.indices([self.window.time], given)
        soundness.appended(self.schema.types, made, len(self.window_columns))


def window_words(node: WindowAggregate, columns: Sequence[str]) -> str:
    """The window of an aggregation in words: the one that it assigns, or the columns of the window that its
    rows carry."""
    own = msgspec.structs.replace(node.window, time=None) if node.windowed_input else node.window
    said = words.window_words(own, columns)
    if node.windowed_input:
        start, end = node.windowed_input
        said = f"{said} from {columns[start]} to {columns[end]}"
    if node.allowed_lateness_us:
        said = f"{said}, {node.allowed_lateness_us / 1000:g} ms late"
    return words.bounded(said)
