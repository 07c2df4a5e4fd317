"""Rewrites before compilation that keep the meaning and save work.

SPLIT_INDEX with a constant separator becomes an element of a split, so that several of them over one string
split it once. ``x = x`` and similar comparisons of a deterministic x need only x's NULLs (so NaN equals itself
there, as in Flink's planner).
"""

from __future__ import annotations

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, Literal, PythonCall, children, transform
from penstock.functions.registry import is_deterministic
from penstock.types import logical as t

#: Internal functions that only rewrites make.
SPLIT_TOKENS = "$SPLIT_TOKENS"
TOKEN = "$TOKEN"
#: Comparison → its answer for two equal operands.
_SELF = {
    "=": True, "<=": True, ">=": True, "<>": False, "<": False, ">": False,
    "IS DISTINCT FROM": False, "IS NOT DISTINCT FROM": True,
}  # fmt: skip


def rewrite(expr: Expr) -> Expr:
    """The rewritten expression."""
    return transform(expr, _visit)


def without_position(expr: Expr) -> Expr:
    """The expression without its position, to find equal ones."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Call) and (node.line or node.column or node.within):
            return msgspec.structs.replace(node, line=0, column=0, within="")
        return node

    return transform(expr, visit)


def _visit(node: Expr) -> Expr:
    if not isinstance(node, Call):
        return node
    if node.function == "SPLIT_INDEX":
        return _split_index(node)
    if node.function in _SELF and not isinstance(node.args[0], Literal):
        return _self_comparison(node)
    return node


def _split_index(node: Call) -> Expr:
    text, separator, index = node.args
    if not _varies(text):
        return node  # the whole call is a constant; the inner split has no storage value of its own
    if not isinstance(separator, Literal) or not isinstance(index, Literal):
        return node
    if not isinstance(separator.value, str) or not separator.value:
        return node
    tokens = Call(SPLIT_TOKENS, (text, separator), t.ArrayType(t.VarCharType()))
    return Call(TOKEN, (tokens, index), node.type, node.line, node.column, node.within)


def _varies(expr: Expr) -> bool:
    return isinstance(expr, (InputRef, PythonCall)) or any(map(_varies, children(expr)))


def _self_comparison(node: Call) -> Expr:
    left, right = (without_position(arg) for arg in node.args)
    if left != right or isinstance(left.type, t.RowType) or not is_deterministic(left):
        return node
    answer = Literal(_SELF[node.function], t.BooleanType(nullable=False))
    if "DISTINCT" in node.function:
        return answer
    known = Call("IS NOT NULL", (node.args[0],), t.BooleanType(nullable=False))
    return Call("CASE", (known, answer, Literal(None, t.BooleanType())), node.type)
