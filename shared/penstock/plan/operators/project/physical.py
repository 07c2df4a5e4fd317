"""Filters and projections as one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, InputRef
from penstock.jobgraph import specs as s
from penstock.plan.operators.filter.node import Filter

if TYPE_CHECKING:
    from penstock.plan.node import Node
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.project.node import Project
    from penstock.plan.translation import Translator


def filter_(tr: Translator, node: Filter) -> PlannedOperator:
    """The filter alone."""
    return _calc(tr, node, node.input, node.condition, None)


def project(tr: Translator, node: Project) -> PlannedOperator:
    """The projection, with a filter right below it that no other node reads."""
    below = node.input
    if isinstance(below, Filter) and not tr.shared(below):
        return _calc(tr, node, below.input, below.condition, node.expressions)
    return _calc(tr, node, below, None, node.expressions)


def _calc(
    tr: Translator, node: Node, source: Node, condition: Expr | None, projections: tuple[Expr, ...] | None
) -> PlannedOperator:
    """An operator over the rows of ``source``: first the filter by ``condition``, then ``projections``."""
    inp = tr.visit(source)
    names = [w for w, present in (("Filter", condition), ("Project", projections)) if present is not None]
    hashed = inp.source.hashed if inp.tag is None else None
    if hashed is not None and projections is not None:
        hashed = _moved_keys(hashed, projections)
    spec = s.CalcSpec(condition=condition, projections=projections, on_error=tr.on_error)
    return tr.add(node, "calc", "Calc(" + ", ".join(names) + ")", spec, [inp], hashed=hashed)


def _moved_keys(keys: tuple[int, ...], projections: tuple[Expr, ...]) -> tuple[int, ...] | None:
    at = {e.index: i for i, e in reversed(list(enumerate(projections))) if isinstance(e, InputRef)}
    return tuple(at[k] for k in keys) if all(k in at for k in keys) else None
