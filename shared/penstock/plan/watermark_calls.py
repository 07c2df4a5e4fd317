"""Checks where CURRENT_WATERMARK stands: in SELECT and WHERE, with an event-time column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SqlError, UnsupportedError
from penstock.functions.expr import InputRef
from penstock.functions.watermark_calls import watermark_calls
from penstock.plan import nodes as n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import Call, Expr
    from penstock.plan.properties import Analysis


def check_watermark_calls(node: n.Node, analysis: Analysis) -> n.Node:
    """The node. Raises UnsupportedError for a call in an expression whose operator does not tell the watermark, and
    SqlError for a call without an event-time column."""
    match node:
        case n.Project():
            _check_columns(node.expressions, node.input, analysis)
        case n.Filter():
            _check_columns([node.condition], node.input, analysis)
        case _:
            place, exprs = node.unawaited()
            for call in (call for expr in exprs for call in watermark_calls(expr)):
                raise UnsupportedError(
                    f"CURRENT_WATERMARK in {place}",
                    expected="CURRENT_WATERMARK in SELECT and WHERE",
                    where=_place(call),
                    remedy="compute it in a subquery's SELECT and use its column",
                )
    return node


def _check_columns(exprs: Sequence[Expr], below: n.Node, analysis: Analysis) -> None:
    for call in (call for expr in exprs for call in watermark_calls(expr)):
        [time] = call.args
        times = analysis.of(below).rowtimes
        if not isinstance(time, InputRef) or time.index not in times:
            names = below.schema.names
            raise SqlError(
                "CURRENT_WATERMARK takes an event-time column",
                expected=" or ".join(names[i] for i in sorted(times)) or "a column with a WATERMARK",
                got=names[time.index] if isinstance(time, InputRef) else "an expression",
                where=_place(call),
                remedy="declare WATERMARK FOR the column; the result of an aggregation has no event time, but that of a window has",
            )


def _place(call: Call) -> str | None:
    return f"line {call.line}, column {call.column}" if call.line else None
