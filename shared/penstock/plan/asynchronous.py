"""Takes async functions out of expressions and puts them into operators of their own, which await them.

``f(x) + 1`` with an async ``f`` becomes a column ``f(x)`` computed below; of nested calls the inner ones
come first. A call is made for every row that reaches the operator, even if the call stands in a branch of
CASE that the row does not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import UnsupportedError
from penstock.functions.expr import Expr, InputRef, PythonCall, children, transform
from penstock.plan import nodes as n
from penstock.plan.rewriting import identity, position
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

replace = msgspec.structs.replace


def split_async(node: n.Node) -> n.Node:
    """Moves the async calls of ``node`` into operators below ``node`` that await them. Raises
    UnsupportedError if ``node`` must not contain async calls."""
    match node:
        case n.Project() if _any_async(node.expressions):
            below, expressions = _computed(node.input, list(node.expressions))
            return replace(node, input=below, expressions=tuple(expressions))
        case n.Filter() if _any_async([node.condition]):
            below, [condition] = _computed(node.input, [node.condition])
            kept = n.Filter(input=below, condition=condition, schema=below.schema)
            return n.Project(input=kept, expressions=tuple(identity(node.input)), schema=node.schema)
    place, exprs = node.unawaited()
    if _any_async(exprs):
        _refuse(exprs, place)
    return node


def _refuse(exprs: Iterable[Expr], place: str) -> None:
    found = next(call for expr in exprs for call in _calls(expr))
    raise UnsupportedError(
        f"the async function {found.function} in {place}",
        expected="async functions in SELECT, WHERE, GROUP BY and HAVING, and as table functions",
        got=f"a call of {found.function}",
        remedy="compute it in a subquery's SELECT and use its column",
    )


def _any_async(exprs: Iterable[Expr]) -> bool:
    return any(True for expr in exprs for _ in _calls(expr))


def _calls(expr: Expr) -> Iterator[PythonCall]:
    """The async calls in an expression, the innermost first."""
    for child in children(expr):
        yield from _calls(child)
    if isinstance(expr, PythonCall) and expr.asynchronous:
        yield expr


def _computed(node: n.Node, exprs: list[Expr]) -> tuple[n.Node, list[Expr]]:
    """Returns ``node`` with a column appended for every async call in ``exprs``, and ``exprs`` with these
    columns in place of the calls."""
    while _any_async(exprs):
        ready: list[Expr] = []
        for expr in exprs:
            for call in _calls(expr):
                if not _any_async(call.args) and position(call, ready) is None:
                    ready.append(call)
        width = len(node.schema)
        fields = [*node.schema.fields, *(Field(_name(node, i), c.type) for i, c in enumerate(ready))]
        schema = Schema(tuple(fields), node.schema.rowtime)
        node = n.AsyncCalc(input=node, calls=tuple(ready), schema=schema)  # type: ignore[arg-type]

        def column(expr: Expr, width: int = width, ready: list[Expr] = ready) -> Expr:
            at = position(expr, ready) if isinstance(expr, PythonCall) else None
            return expr if at is None else InputRef(width + at, expr.type)

        exprs = [transform(expr, column) for expr in exprs]
    return node, exprs


def _name(node: n.Node, i: int) -> str:
    name = f"$a{i}"
    while name in node.schema.names:
        name += "_"
    return name
