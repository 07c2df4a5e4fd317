"""The node of a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.functions.expr import Expr
from penstock.functions.expression_text import text
from penstock.plan import soundness
from penstock.plan.conditions import compared_with_constants, factored, never_true
from penstock.plan.lineage import Relation, expression
from penstock.plan.node import Node, Unary
from penstock.plan.rewriting import conjunction, conjuncts
from penstock.types.logical import BooleanType, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage
    from penstock.plan.properties import Analysis
    from penstock.plan.pushdown import PushDown


class Filter(Unary, frozen=True, kw_only=True, tag="filter"):
    """Rows for which ``condition`` is TRUE. The operator needs the old row of an update, to retract that
    row."""

    physical: ClassVar[str] = "penstock.plan.operators.project.physical:filter_"
    reads: ClassVar[tuple[str, ...]] = ("condition",)

    input: Node
    condition: Expr
    schema: Schema

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def own_facts(self) -> list[Expr]:
        return [p for p in conjuncts(self.condition) if compared_with_constants(p) is not None]

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return empty[0] or any(map(never_true, conjuncts(self.condition)))

    def push_down(self, pusher: PushDown, parts: list[Expr]) -> Node:
        return pusher.push(self.input, [*factored(self.condition), *parts])

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return analysis.in_order(self.input, key)

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        conditions = frozenset(expression(c, below.columns) for c in conjuncts(self.condition))
        return Relation(below.tables, below.atoms, below.conditions | conditions, below.columns)

    def explained(self) -> str:
        return f"Filter({text(self.condition, self.input.schema)})"

    def check(self) -> None:
        soundness.expression(self.condition, self.input.schema.types)
        soundness.type_of(self.condition.type, BooleanType(), "the condition")
        soundness.types(self.schema.types, self.input.schema.types)


def filtered(node: Node, parts: Sequence[Expr]) -> Node:
    """Puts a filter by all of ``parts`` above the node; without parts returns the node."""
    condition = conjunction(parts)
    return node if condition is None else Filter(input=node, condition=condition, schema=node.schema)
