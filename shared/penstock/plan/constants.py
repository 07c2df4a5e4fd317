"""Simplifying expressions under known constants (``event_type = 2`` inside a CASE)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, Literal, transform
from penstock.types.logical import BooleanType

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRUE = Literal(True, BooleanType(nullable=False))
_FALSE = Literal(False, BooleanType(nullable=False))


def assume(expr: Expr, facts: Mapping[int, Literal]) -> Expr:
    """``expr`` with column i replaced by the known value ``facts[i]``. The type stays the same."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, InputRef) and node.index in facts:
            return facts[node.index]
        if isinstance(node, Call):
            return _simplify(node)
        return node

    new = transform(expr, visit)
    return new


def _simplify(node: Call) -> Expr:
    match node:
        case Call(function="=", args=(Literal() as a, Literal() as b)) if _comparable(a, b):
            return _TRUE if a.value == b.value else _FALSE
        case Call(function="<>", args=(Literal() as a, Literal() as b)) if _comparable(a, b):
            return _FALSE if a.value == b.value else _TRUE
        case Call(function="CASE"):
            return _case(node)
    return node


def _comparable(a: Literal, b: Literal) -> bool:
    return type(a.type) is type(b.type) and a.value is not None and b.value is not None


def _case(node: Call) -> Expr:
    branches: list[Expr] = []
    for condition, value in zip(node.args[:-1:2], node.args[1::2], strict=True):
        if condition == _FALSE:
            continue
        if condition == _TRUE:
            return value if not branches else msgspec.structs.replace(node, args=(*branches, value))
        branches += [condition, value]
    if not branches:
        return node.args[-1]
    return msgspec.structs.replace(node, args=(*branches, node.args[-1]))
