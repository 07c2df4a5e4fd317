"""Projections, keys, orders and windows as EXPLAIN writes them, with the names of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expression_text import text
from penstock.types.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import AggregateCall, Expr
    from penstock.jobgraph.specs import SortKey, WindowSpec
    from penstock.types.logical import Schema


def key_pairs(left: Schema, right: Schema, left_keys: Sequence[int], right_keys: Sequence[int]) -> str:
    """The equalities of a join in words."""
    a, b = left.names, right.names
    return " AND ".join(f"left.{a[i]} = right.{b[j]}" for i, j in zip(left_keys, right_keys, strict=True))


def lifetime_text(ms: int) -> str:
    """How long state with a time to live of ``ms`` is kept (0: for ever), in words."""
    return f" for {duration_text(ms * 1000)} after its last change" if ms else ", for ever"


def column_names(columns: Sequence[int], schema: Schema) -> str:
    """The names of ``columns`` in ``schema``, separated by commas."""
    return ", ".join(schema.names[i] for i in columns)


def group_keys(keys: tuple[int, ...], schema: Schema) -> str:
    """The keys of a grouping, such as ``keys=[a, b]``."""
    return f"keys=[{column_names(keys, schema)}]"


def calls_text(calls: Sequence[AggregateCall], schema: Schema) -> str:
    """The aggregate calls, with a comma before each; empty without calls."""
    if not calls:
        return ""
    return ", " + ", ".join(call_text(c, schema) for c in calls)


def call_text(call: AggregateCall, schema: Schema) -> str:
    """An aggregate call with its arguments and FILTER."""
    args = column_names(call.args, schema) if call.args else ("*" if call.function == "COUNT" else "")
    distinct = "DISTINCT " if call.distinct else ""
    constants = "".join(f", {c!r}" for c in call.constants)
    condition = f" FILTER {schema.names[call.filter]}" if call.filter is not None else ""
    nulls = " IGNORE NULLS" if call.ignore_nulls else ""
    return f"{call.function}({distinct}{args}{constants}){nulls}{condition}"


def order_text(order: Sequence[SortKey], schema: Schema) -> str:
    """The sort keys, such as ``order=[a ASC, b DESC]``."""
    words = [
        schema.names[k.index]
        + (" DESC" if k.descending else " ASC")
        + ("" if k.nulls_first != k.descending else " NULLS FIRST" if k.nulls_first else " NULLS LAST")
        for k in order
    ]
    return f"order=[{', '.join(words)}]"


def window_text(window: WindowSpec, schema: Schema | None) -> str:
    """A window with its time column and its lengths."""
    time = (
        ""
        if schema is None
        else "processing time, "
        if window.time is None
        else f"{schema.names[window.time]}, "
    )
    match window.kind:
        case "session":
            return f"SESSION({time}gap {duration_text(window.gap_us)})"
        case "tumble":
            return f"TUMBLE({time}{duration_text(window.size_us)})"
    return f"{window.kind.upper()}({time}{duration_text(window.slide_us)}, {duration_text(window.size_us)})"


def projections_text(exprs: Sequence[Expr], out: Schema, schema: Schema) -> str:
    """The projections with their names."""
    parts = []
    for name, expr in zip(out.names, exprs, strict=True):
        shown = text(expr, schema)
        parts.append(shown if shown == name else f"{shown} AS {name}")
    return ", ".join(parts)
