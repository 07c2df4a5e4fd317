"""The Python functions that a plan calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Expr, PythonCall, children
from penstock.plan import nodes as n
from penstock.plan.rewriting import walk

if TYPE_CHECKING:
    from collections.abc import Sequence


def python_functions(sinks: Sequence[n.Sink]) -> list[str]:
    """Names of the functions, sorted."""
    names: set[str] = set()

    def visit(expr: Expr | None) -> None:
        if expr is None:
            return
        if isinstance(expr, PythonCall):
            names.add(expr.function)
        for child in children(expr):
            visit(child)

    for node in walk(sinks):
        match node:
            case n.Project():
                for e in node.expressions:
                    visit(e)
            case n.Filter() | n.Join() | n.TemporalJoin():
                visit(node.condition)
            case n.Scan():
                for e in node.table.computed or ():
                    visit(e)
            case n.Correlate():
                for e in node.args:
                    visit(e)
                if not node.builtin:
                    names.add(node.function)
            case n.Aggregate() | n.WindowAggregate() | n.Over():
                names.update(c.python for c in node.aggregates if c.python)
    return sorted(names)
