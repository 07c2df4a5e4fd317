"""Rewrites before compiling that keep the meaning and save work.

SPLIT_INDEX with a constant separator becomes an element of a split, so that several of one
string split it once.
"""

from __future__ import annotations

from penstock.functions.expr import Call, Expr, Literal, transform
from penstock.types import logical as t

#: Internal functions that only rewrites make.
SPLIT_TOKENS = "$SPLIT_TOKENS"
TOKEN = "$TOKEN"


def rewrite(expr: Expr) -> Expr:
    return transform(expr, _visit)


def _visit(node: Expr) -> Expr:
    if isinstance(node, Call) and node.function == "SPLIT_INDEX":
        text, separator, index = node.args
        if (
            isinstance(separator, Literal)
            and isinstance(separator.value, str)
            and separator.value
            and isinstance(index, Literal)
        ):
            tokens = Call(SPLIT_TOKENS, (text, separator), t.ArrayType(t.VarCharType()))
            return Call(TOKEN, (tokens, index), node.type, node.line, node.column)
    return node
