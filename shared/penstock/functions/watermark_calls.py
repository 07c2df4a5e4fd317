"""Where an expression calls CURRENT_WATERMARK. Job graphs ask that, so this module needs none of what evaluates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import Call, children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.functions.expr import Expr

NAME = "CURRENT_WATERMARK"


def watermark_calls(expr: Expr) -> Iterator[Call]:
    """The calls of CURRENT_WATERMARK in an expression."""
    if isinstance(expr, Call) and expr.function == NAME:
        yield expr
    for child in children(expr):
        yield from watermark_calls(child)
