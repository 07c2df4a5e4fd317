"""Reads names, chains of operators and literals from nodes of the syntax tree."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    pass


def function_name(node: exp.Anonymous) -> str:
    """The name of a called function."""
    return node.this.name if isinstance(node.this, exp.Expression) else str(node.this)


def column_parts(node: exp.Column) -> list[str]:
    """The parts of a qualified column name."""
    return [part.name for part in node.parts]


def dotted_parts(node: exp.Expression) -> list[str] | None:
    """The names of ``a.b.c.d.e``; None if the node contains a call or an index."""
    match node:
        case exp.Column():
            return column_parts(node)
        case exp.Identifier():
            return [node.name]
        case exp.Dot():
            left, right = dotted_parts(node.this), dotted_parts(node.expression)
            return left + right if left is not None and right is not None else None
    return None


def flat(node: exp.Expression, kind: type) -> list[exp.Expression]:
    """The operands of a AND (b AND c) without nesting; parentheses around another operator stay."""
    parts, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren) and isinstance(node.this, kind):
            node = node.this  # type: ignore[assignment]
        if isinstance(node, kind):
            waiting += (node.expression, node.this)
        else:
            parts.append(node)
    return parts


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """The conditions that ``node`` joins by AND."""
    parts, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += (node.expression, node.this)
        else:
            parts.append(node)
    return parts


def unescaped(text: str, escape: str) -> str:
    """The text of U&'…' UESCAPE '…': four hexadecimal digits follow the escape character; two escape characters
    mean one."""
    mark = re.escape(escape)
    return re.sub(
        f"{mark}(?:([0-9a-fA-F]{{4}})|{mark})", lambda m: chr(int(m[1], 16)) if m[1] else escape, text
    )


def natural_name(node: exp.Expression) -> str | None:
    """The name of a selected expression that has no alias: that of a column or field; None for another one."""
    while isinstance(node, exp.Paren):
        node = node.this
    parts = dotted_parts(node) if isinstance(node, (exp.Column, exp.Dot)) else None
    if parts:
        return parts[-1]
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    return None


def literal_number(node: exp.Expression) -> int | None:
    """The value of a whole-number literal; None for another node."""
    if isinstance(node, exp.Literal) and not node.is_string:
        value = Decimal(node.this)
        return int(value) if value == int(value) else None
    return None
