"""The node of grouping sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr
from penstock.functions.expression_text import text
from penstock.jobgraph.specs import ExpandSpec
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, kept_columns, moved, referenced
from penstock.plan.lineage import bounded, expression, opaque
from penstock.plan.node import Node, Unary
from penstock.plan.properties import Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.translation import Translator


class Expand(Unary, frozen=True, kw_only=True, tag="expand"):
    """Each row once per projection list (GROUPING SETS); all lists have one layout."""

    input: Node
    projections: tuple[tuple[Expr, ...], ...]
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(self.input, referenced(tuple(one[i] for one in self.projections for i in need)))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        child, m = pruner.run(self.input)
        kept = sorted(need)
        lists = tuple(tuple(moved(one[i], m) for i in kept) for one in self.projections)
        schema = self.schema.select(kept)
        new = msgspec.structs.replace(self, input=child, projections=lists, schema=schema)
        return new, kept_columns(kept)

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        return Properties(bounded=inner.bounded, updating=inner.updating)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return empty[0]

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        lists = [[expression(e, below.columns) for e in one] for one in self.projections]
        atom = bounded(f"sets({'; '.join(', '.join(x) for x in lists)}) of {below.rows}")
        made = tuple(bounded(f"set({', '.join(x[i] for x in lists)})") for i in range(len(self.schema)))
        return opaque(below.tables, atom, made)

    def explained(self) -> str:
        lists = [f"({', '.join(text(e, self.input.schema) for e in one)})" for one in self.projections]
        return f"Expand({', '.join(lists)})"

    def check(self) -> None:
        for one in self.projections:
            for expr in one:
                soundness.expression(expr, self.input.schema.types)
            soundness.types(self.schema.types, [e.type for e in one])

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = ExpandSpec(projections=self.projections)
        name = f"Expand({len(self.projections)} grouping sets)"
        return translator.add(self, "expand", name, spec, [translator.visit(self.input)])
