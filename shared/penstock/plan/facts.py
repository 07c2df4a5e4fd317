"""What filters below say of a node's rows: comparisons of one column with constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, InputRef, input_refs, shift_refs
from penstock.plan import nodes as n
from penstock.plan.conditions import compared_with_constants
from penstock.plan.rewriting import conjuncts

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_facts(node: n.Node) -> list[Expr]:
    """Conditions that every row of the node meets, wherever below the filter stands."""
    match node:
        case n.Filter():
            own = [p for p in conjuncts(node.condition) if compared_with_constants(p) is not None]
            return [*known_facts(node.input), *own]
        case n.Project():
            at: dict[int, int] = {}
            for i, expr in enumerate(node.expressions):
                if isinstance(expr, InputRef):
                    at.setdefault(expr.index, i)
            return _over(known_facts(node.input), at)
        case n.Aggregate() | n.WindowAggregate():
            return _over(known_facts(node.input), {key: i for i, key in enumerate(node.keys)})
        case n.Join() if node.kind in ("inner", "left", "semi", "anti"):
            facts = known_facts(node.left)
            if node.kind == "inner":
                width = len(node.left.schema)
                at = {i: i + width for i in range(len(node.right.schema))}
                facts = [*facts, *_over(known_facts(node.right), at)]
            return facts
        case n.TemporalJoin():
            return known_facts(node.left)
        case n.WindowTable() | n.TopN() | n.Over() | n.Correlate() | n.Sort() | n.Limit():
            return known_facts(node.input)
    return []


def _over(facts: list[Expr], at: Mapping[int, int]) -> list[Expr]:
    """Of facts about columns that are passed on: the same about where they are then."""
    return [shift_refs(f, dict(at)) for f in facts if input_refs(f) <= set(at)]
