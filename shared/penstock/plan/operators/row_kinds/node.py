"""The nodes between tables and streams: kinds of rows and event times as columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.jobgraph.specs import RecordTimeSpec, RowKindSpec
from penstock.plan import soundness
from penstock.plan.lineage import bounded, opaque
from penstock.plan.node import Node, Unary
from penstock.plan.properties import Properties
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.columns import Mapping_
    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.translation import Translator


class RowKinds(Unary, frozen=True, kw_only=True, tag="row-kinds"):
    """The changes of a table as rows with their kind in a last column (``append``), or the other way (``take``)."""

    input: Node
    kind: Literal["append", "take"]
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(self.input, set(range(len(self.input.schema))))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        return pruner.whole(self)

    def properties(self, analysis: Analysis) -> Properties:
        known = analysis.of(self.input)
        if self.kind == "take":
            return Properties(bounded=known.bounded, updating=True)
        return Properties(bounded=known.bounded, lags=known.lags, rowtimes=known.rowtimes)

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        atom = bounded(f"changes ({self.kind}) of {below.rows}")
        return opaque(below.tables, atom, tuple(f"{atom}.{c}" for c in self.schema.names))

    def explained(self) -> str:
        return f"RowKinds({self.kind})"

    def check(self) -> None:
        given, made = self.input.schema.types, self.schema.types
        if self.kind == "append":
            soundness.appended(made, given, 1)
        else:
            soundness.appended(given, made, 1)

    def translate(self, translator: Translator) -> PlannedOperator:
        name = "ChangesAsRows" if self.kind == "append" else "RowsAsChanges"
        return translator.add(
            self, "row-kinds", name, RowKindSpec(kind=self.kind), [translator.visit(self.input)]
        )


class StreamTime(Unary, frozen=True, kw_only=True, tag="stream-time"):
    """Appends the event times of a stream's records as a column, which is event time of the table: the stream's
    watermarks hold for it."""

    input: Node
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(self.input, set(range(len(self.input.schema))))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        return pruner.whole(self)

    def properties(self, analysis: Analysis) -> Properties:
        new = len(self.input.schema)
        return replace(analysis.of(self.input), lags={new: 0}, rowtimes=frozenset({new}))

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        atom = bounded(f"event times of {below.rows}")
        return opaque(below.tables, atom, tuple(f"{atom}.{c}" for c in self.schema.names))

    def explained(self) -> str:
        return "StreamTime"

    def check(self) -> None:
        soundness.appended(self.schema.types, self.input.schema.types, 1)
        soundness.type_of(self.schema.types[-1], t.TimestampLtzType(3), "the time", exact=False)

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = RecordTimeSpec(kind="append")
        return translator.add(self, "stream-time", "EventTime", spec, [translator.visit(self.input)])
