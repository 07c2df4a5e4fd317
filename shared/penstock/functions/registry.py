"""Resolution of function calls: names, overloads, implicit casts, result types.

``make_call`` is the one way to build a ``Call``: the SQL binder, the DataStream API and
the optimiser use it, so that an expression means the same everywhere.

Forms with syntax of their own are written as these calls (``'X'`` = a STRING literal):

==========================================  ================================================
SQL                                         make_call
==========================================  ================================================
a + b, a - b, a * b, a / b, a % b           "+", "-", "*", "/", "%"   (% is also "MOD")
-a, +a                                      "-"(a), "+"(a)
a = b, <>, <, <=, >, >=                     "=", "<>", "<", "<=", ">", ">="
a AND b AND c, a OR b, NOT a                "AND"(a, b, …), "OR"(a, b, …), "NOT"(a)
a IS [NOT] NULL / TRUE / FALSE / UNKNOWN    "IS NULL"(a), "IS NOT NULL"(a), "IS TRUE"(a) …
a IS [NOT] DISTINCT FROM b                  "IS DISTINCT FROM", "IS NOT DISTINCT FROM"
a [NOT] BETWEEN [SYMMETRIC] x AND y         "BETWEEN"(a, x, y), "NOT BETWEEN",
                                            "BETWEEN SYMMETRIC", "NOT BETWEEN SYMMETRIC"
a [NOT] IN (x, y, …)                        "IN"(a, x, y, …), "NOT IN"
a [NOT] LIKE p [ESCAPE e]                   "LIKE"(a, p[, e]), "NOT LIKE"
a [NOT] SIMILAR TO p [ESCAPE e]             "SIMILAR TO"(a, p[, e]), "NOT SIMILAR TO"
a IS [NOT] JSON [VALUE|OBJECT|ARRAY|SCALAR]  "IS JSON"(a), "IS NOT JSON OBJECT"(a) …
CASE WHEN c1 THEN v1 … ELSE e END           "CASE"(c1, v1, c2, v2, …, e); no ELSE: a NULL
                                            literal; CASE x WHEN y …: conditions "="(x, y)
CAST(a AS t), TRY_CAST(a AS t)              "CAST"(a, type=t), "TRY_CAST"(a, type=t)
a || b                                      "||"
EXTRACT(unit FROM a)                        "EXTRACT"('YEAR', a)
FLOOR(a TO unit), CEIL(a TO unit)           "FLOOR"(a, 'HOUR'), "CEIL"(a, 'HOUR')
TIMESTAMPADD(unit, n, a)                    "TIMESTAMPADD"('HOUR', n, a)
TIMESTAMPDIFF(unit, a, b)                   "TIMESTAMPDIFF"('HOUR', a, b)
(a - b) DAY TO SECOND, (a - b) MONTH        "MINUS_TEMPORAL"(a, b, type=the interval type)
(a, b) OVERLAPS (c, d)                      "OVERLAPS"(a, b, c, d)
TRIM([BOTH|LEADING|TRAILING] [x] FROM a)    "TRIM"('BOTH', x, a); TRIM(a): "TRIM"('BOTH', ' ', a)
POSITION(a IN b)                            "POSITION"(a, b)
OVERLAY(a PLACING b FROM i [FOR n])         "OVERLAY"(a, b, i[, n])
SUBSTRING(a FROM i [FOR n])                 "SUBSTRING"(a, i[, n])
ARRAY[a, b], MAP[k, v, …], ROW(a, b)        "ARRAY"(a, b), "MAP"(k, v, …), "ROW"(a, b)
a[i] (array or map)                         "ITEM"(a, i)
a.b (ROW)                                   expr.FieldAccess (``field_access``)
JSON_VALUE(j, p [RETURNING t] …)            "JSON_VALUE"(j, p, 'NULL'|'ERROR'|'DEFAULT', d,
                                            'NULL'|'ERROR'|'DEFAULT', e, type=t): behaviour
                                            and default ON EMPTY, then ON ERROR; NULL
                                            literals for defaults not given; short: (j, p)
JSON_QUERY(j, p …)                          "JSON_QUERY"(j, p, 'WITHOUT'|'CONDITIONAL'|
                                            'UNCONDITIONAL', on_empty, on_error, type=t):
                                            'NULL'|'EMPTY ARRAY'|'EMPTY OBJECT'|'ERROR'
JSON_EXISTS(j, p [x ON ERROR])              "JSON_EXISTS"(j, p[, 'TRUE'|'FALSE'|'UNKNOWN'|'ERROR'])
JSON_OBJECT(k VALUE v, …)                   "JSON_OBJECT"('NULL'|'ABSENT', k, v, …)
JSON_ARRAY(a, …)                            "JSON_ARRAY"('NULL'|'ABSENT', a, …)
PI (without parentheses), CURRENT_DATE …    "PI"(), "CURRENT_DATE"() …
==========================================  ================================================

Every other function is called by its Flink name with its arguments in order. ``zone`` is
the session's ``table.local-time-zone``: a call that depends on it carries it as a trailing
literal, so that a plan needs no session.
"""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import TYPE_CHECKING

from penstock.errors import SqlError, nearest
from penstock.functions.expr import Call, Expr, FieldAccess, InputRef, Literal, PythonCall, children
from penstock.functions.inference import cast_expr
from penstock.functions.signature import FUNCTIONS, FunctionDef, Resolution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType

_FAMILIES = (
    "arithmetic", "comparison", "casts", "conditional", "strings", "string_building", "string_splitting",
    "regex", "temporal", "temporal_texts", "clock", "watermark", "math", "hash", "collection", "json", "single_value", "sorted_values", "variant",
)  # fmt: skip


#: Names in the registry that SQL does not write as calls.
_OPERATOR_WORDS = frozenset({"AND", "OR", "NOT", "IN", "NOT IN", "LIKE", "BETWEEN", "CASE", "ITEM"})


@cache
def _load() -> dict[str, FunctionDef]:
    for family in _FAMILIES:
        importlib.import_module(f"penstock.functions.{family}")
    return FUNCTIONS


def known_functions() -> list[str]:
    """Names of all scalar functions and operators, sorted."""
    return sorted(name for name in _load() if not name.startswith("$"))


def lookup(name: str) -> FunctionDef:
    """The definition of a canonical name; SqlError with the nearest names if unknown."""
    functions = _load()
    found = functions.get(name.upper())
    if found is None:
        words = [f for f in functions if f[0].isalpha()]
        raise SqlError(
            f"unknown function {name}",
            expected="a function of docs/functions.md, or one of your own (CREATE FUNCTION, -py)",
            got=name,
            remedy=nearest(name, [w for w in words if w not in _OPERATOR_WORDS]),
        )
    return found


def make_call(
    name: str,
    args: Sequence[Expr],
    *,
    type: LogicalType | None = None,
    line: int = 0,
    column: int = 0,
    within: str = "",
    zone: str = "UTC",
) -> Expr:
    """The typed expression ``name(args)`` with implicit casts inserted.

    ``line``, ``column``, ``within``: where its text is (``Call``); errors of its rows name it. ``type``: the target of CAST, TRY_CAST and MINUS_TEMPORAL, RETURNING of the JSON
    functions. Raises SqlError (with ``line`` and ``column``) when nothing fits.
    """
    where = f"line {line}, column {column}" if line else None
    try:
        definition = lookup(name)
    except SqlError as error:
        error.where = where
        raise
    apart = definition.apart(definition.name, args) if definition.apart is not None else None
    if apart is not None and all(is_deterministic(a) for a in args):
        call = partial(make_call, line=line, column=column, within=within, zone=zone)
        groups = [call(word, [call(op, [a, b]) for op, a, b in parts]) for word, parts in apart]
        # BETWEEN SYMMETRIC is within either order, NOT BETWEEN SYMMETRIC outside both.
        return groups[0] if len(groups) == 1 else call("OR" if apart[0][0] == "AND" else "AND", groups)
    resolution = Resolution(name.upper(), tuple(args), type, zone or "UTC", line, column, within)
    targets, result = definition.resolve(resolution)
    cast = [
        cast_expr(arg, target, line=line, column=column, within=within, zone=zone)
        for arg, target in zip(resolution.args, targets, strict=True)
    ]
    if definition.name == "CAST" and not resolution.extra:
        return cast_expr(cast[0], result, line=line, column=column, within=within, zone=zone)
    return Call(definition.name, (*cast, *resolution.extra), result, line, column, within)


def field_access(arg: Expr, name_or_index: str | int, *, line: int = 0, column: int = 0) -> FieldAccess:
    """A field of a ROW; NULL if the row is."""
    from penstock.types.logical import RowType

    where = f"line {line}, column {column}" if line else None
    if not isinstance(arg.type, RowType):
        raise SqlError(
            "a field of something that is no ROW", expected="a ROW", got=str(arg.type), where=where
        )
    names = [f.name for f in arg.type.fields]
    if isinstance(name_or_index, str):
        if name_or_index not in names:
            raise SqlError(
                f"no field {name_or_index!r} in {arg.type}",
                got=name_or_index,
                where=where,
                remedy=nearest(name_or_index, names),
            )
        name_or_index = names.index(name_or_index)
    field = arg.type.fields[name_or_index]
    type_ = field.type.with_nullable(field.type.nullable or arg.type.nullable)
    return FieldAccess(arg, name_or_index, type_)


def is_deterministic(expr: Expr) -> bool:
    """False when two evaluations over the same row may differ (RAND, UUID, the clock, a user's function that says so)."""
    if isinstance(expr, PythonCall) and not expr.deterministic:
        return False
    if isinstance(expr, Call) and not lookup(expr.function).deterministic:
        return False
    return all(is_deterministic(c) for c in children(expr))


__all__ = [
    "Call",
    "FieldAccess",
    "InputRef",
    "Literal",
    "PythonCall",
    "field_access",
    "is_deterministic",
    "known_functions",
    "lookup",
    "make_call",
]
