"""An expression as SQL text with the names of its input's columns, for EXPLAIN and for errors of rows."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.functions.expr import Call, Expr, FieldAccess, InputRef, Literal, PythonCall
from penstock.types import logical as t
from penstock.types.durations import duration_text

if TYPE_CHECKING:
    from penstock.types.logical import Schema

_INFIX = {"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE", "IS DISTINCT FROM",
          "IS NOT DISTINCT FROM"}  # fmt: skip


def text(expr: Expr, schema: Schema | None) -> str:
    """An expression with the names of its input's columns; without ``schema``, with their numbers."""
    match expr:
        case InputRef(index=i):
            return schema.names[i] if schema is not None and i < len(schema) else f"${i}"
        case Literal(value=None):
            return "NULL"
        case Literal(value=value, type=type_):
            if isinstance(type_, t.STRINGS):
                return "'" + str(value).replace("'", "''") + "'"
            if isinstance(type_, t.DayTimeIntervalType):
                return f"INTERVAL {duration_text(value)}"
            if isinstance(type_, t.DecimalType) and isinstance(value, int):
                return str(Decimal(value).scaleb(-type_.scale))
            return str(value).upper() if isinstance(value, bool) else str(value)
        case FieldAccess(arg=arg, index=i):
            names = [f.name for f in arg.type.fields]  # type: ignore[union-attr]
            return f"{text(arg, schema)}.{names[i]}"
        case Call(function="CAST" | "TRY_CAST", args=(arg,)):
            return f"{expr.function}({text(arg, schema)} AS {expr.type.sql()})"
        case Call(function=function, args=args) if function in _INFIX and len(args) > 1:
            return "(" + f" {function} ".join(text(a, schema) for a in args) + ")"
        case Call(function=function, args=(arg,)) if function.startswith("IS "):
            return f"{text(arg, schema)} {function}"
        case Call(function=function, args=args) | PythonCall(function=function, args=args):
            return f"{function}({', '.join(text(a, schema) for a in args)})"
    return str(expr)
