"""The typed expression tree.

Every node carries its ``type``. Code that builds a node (the SQL binder, the DataStream API, the optimizer)
gets the type from ``penstock.functions.registry``. Function names are upper-case and Flink's: ``"+"``,
``"="``, ``"AND"``, ``"CASE"``, ``"CAST"``, ``"SUBSTRING"`` … Operators, CASE (``[c1, v1, c2, v2, …,
else]``), CAST and TRY_CAST (one argument; the target is ``type``), IS NULL and field access by index on ROW
are all ``Call``s or the nodes below. The tree is msgspec, so a plan is plain JSON.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.types.logical import LogicalType


class InputRef(msgspec.Struct, frozen=True, tag="ref", tag_field="e"):
    """Column ``index`` of the operator's input (for a join: left columns, then right)."""

    index: int
    type: LogicalType


class Literal(msgspec.Struct, frozen=True, tag="lit", tag_field="e"):
    """A constant in *storage* form: unscaled int for DECIMAL(p <= 18), the decimal's text
    for larger ones, µs for times, days for dates, base64 text for binaries; None = NULL."""

    value: Any
    type: LogicalType


class Call(msgspec.Struct, frozen=True, tag="call", tag_field="e"):
    """A call of a scalar function or operator. ``function`` is its canonical name in the registry."""

    function: str
    args: tuple[Expr, ...]
    type: LogicalType
    #: Source position of the call in the user's SQL, 1-based; 0 = unknown.
    line: int = 0
    column: int = 0
    #: What has the text: ``view 'v'``, ``INSERT INTO t, column 'c'``, or a call of the program; empty: the statement itself.
    within: str = ""


class FieldAccess(msgspec.Struct, frozen=True, tag="field", tag_field="e"):
    """Field ``index`` of a ROW-typed expression."""

    arg: Expr
    index: int
    type: LogicalType


class PythonCall(msgspec.Struct, frozen=True, tag="py", tag_field="e"):
    """A user's scalar function. ``function`` names an entry of the job's function table;
    ``per`` is ``record`` or ``batch`` (Arrow arrays in, one Arrow array out);
    ``asynchronous``: a coroutine function, which an operator of its own awaits; ``deterministic``: it gives the
    same for the same arguments."""

    function: str
    args: tuple[Expr, ...]
    type: LogicalType
    per: str = "record"
    asynchronous: bool = False
    deterministic: bool = True


Expr = Union[InputRef, Literal, Call, FieldAccess, PythonCall]


class AggregateCall(msgspec.Struct, frozen=True):
    """One aggregate of an aggregation: COUNT(*) has no args.

    ``args``: input column indices; ``filter``: index of a BOOLEAN input column or None.
    """

    function: str
    args: tuple[int, ...]
    type: LogicalType
    distinct: bool = False
    filter: int | None = None
    ignore_nulls: bool = False
    #: Constant trailing arguments (LISTAGG's separator, a percentile), storage form.
    constants: tuple[Any, ...] = ()
    #: A user's aggregate function: an entry of the job's function table.
    python: str | None = None


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct arguments of an expression."""
    match expr:
        case Call(args=args) | PythonCall(args=args):
            return args
        case FieldAccess(arg=arg):
            return (arg,)
        case _:
            return ()


def transform(expr: Expr, visit: Any) -> Expr:
    """Rebuilds the tree bottom-up: ``visit(node)`` returns the node that replaces it."""
    match expr:
        case Call(args=args) | PythonCall(args=args):
            new = tuple(transform(a, visit) for a in args)
            if any(n is not a for n, a in zip(new, args, strict=True)):
                expr = msgspec.structs.replace(expr, args=new)
        case FieldAccess(arg=arg):
            inner = transform(arg, visit)
            if inner is not arg:
                expr = msgspec.structs.replace(expr, arg=inner)
    return visit(expr)


def input_refs(expr: Expr) -> set[int]:
    """Indices of the input columns the expression reads."""
    if isinstance(expr, InputRef):
        return {expr.index}
    out: set[int] = set()
    for child in children(expr):
        out |= input_refs(child)
    return out


def shift_refs(expr: Expr, mapping: dict[int, int]) -> Expr:
    """The expression over another input layout; ``mapping`` is old column index -> new index."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, InputRef):
            return InputRef(mapping[node.index], node.type)
        return node

    return transform(expr, visit)
