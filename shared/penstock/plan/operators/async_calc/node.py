"""The node of async functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.functions.expr import PythonCall
from penstock.functions.expression_text import text
from penstock.jobgraph.specs import AsyncCalcSpec
from penstock.plan import soundness
from penstock.plan.lineage import Relation, bounded, expression
from penstock.plan.node import Node, Unary
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.translation import Translator


class AsyncCalc(Unary, frozen=True, kw_only=True, tag="async-calc"):
    """The input's columns, followed by the results of async functions for each row."""

    reads: ClassVar[tuple[str, ...]] = ("calls",)

    input: Node
    calls: tuple[PythonCall, ...]
    schema: Schema

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        width = len(self.input.schema)
        return analysis.in_order(self.input, frozenset(i for i in key if i < width))

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        made = (*below.columns, *(bounded(expression(c, below.columns)) for c in self.calls))
        return Relation(below.tables, below.atoms, below.conditions, made)

    def explained(self) -> str:
        return f"AsyncCalc({', '.join(text(c, self.input.schema) for c in self.calls)})"

    def check(self) -> None:
        given = self.input.schema.types
        for expr in self.calls:
            soundness.expression(expr, given)
        soundness.types(self.schema.types, [*given, *(c.type for c in self.calls)])

    def translate(self, translator: Translator) -> PlannedOperator:
        inp = translator.visit(self.input)
        spec = AsyncCalcSpec(calls=self.calls, on_error=translator.on_error)
        names = ", ".join(c.function for c in self.calls)
        op = translator.add(self, "async-calc", f"AsyncCalc({names})", spec, [inp], hashed=inp.source.hashed)
        # The operator must have a channel before it: then it takes only as many rows at a time as fit between
        # two barriers.
        op.chain = False
        return op
