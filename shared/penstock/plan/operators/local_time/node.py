"""The node of event time on the clock of a time zone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from penstock.functions.expr import Expr
from penstock.jobgraph.specs import LocalTimeSpec
from penstock.plan import soundness
from penstock.plan.lineage import Relation
from penstock.plan.node import Node, Unary
from penstock.plan.rewriting import below_own_columns
from penstock.types.logical import Schema, TimestampLtzType

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties
    from penstock.plan.translation import Translator


class LocalTime(Unary, frozen=True, kw_only=True, tag="local-time"):
    """Appends the local TIMESTAMP of the TIMESTAMP_LTZ column ``time``. The new column is the event time of
    the rows, and watermarks follow it."""

    reads: ClassVar[tuple[str, ...]] = ("time",)

    input: Node
    time: int
    zone: str
    schema: Schema

    def properties(self, analysis: Analysis) -> Properties:
        new = len(self.input.schema)
        # The other time columns keep their clock, and the watermarks now follow the local clock.
        return replace(
            analysis.of(self.input),
            lags={new: 0},
            rowtimes=frozenset({new}),
            window=None,
            timeline=self.zone,
        )

    def lowered(self, part: Expr) -> Expr | None:
        return below_own_columns(part, len(self.input.schema))

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        width = len(self.input.schema)
        return analysis.in_order(self.input, frozenset(i for i in key if i < width))

    def clock(self) -> str | None:
        return type(self).__name__

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        made = (*below.columns, f"LOCAL_TIME({below.columns[self.time]}, {self.zone})")
        return Relation(below.tables, below.atoms, below.conditions, made)

    def explained(self) -> str:
        return f"LocalTime({self.input.schema.names[self.time]}, {self.zone})"

    def check(self) -> None:
        given = self.input.schema.types
        soundness.indices([self.time], given)
        soundness.type_of(given[self.time], TimestampLtzType(), "the time", exact=False)
        soundness.appended(self.schema.types, given, 1)

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = LocalTimeSpec(time=self.time, zone=self.zone)
        inp = translator.visit(self.input)
        name = f"LocalTime({self.zone})"
        return translator.add(self, "local-time", name, spec, [inp], hashed=inp.source.hashed)
