"""Comparisons and membership, by SQL's three-valued logic and Java's order.

Strings compare by code point (byte order of UTF-8), arrays, maps and rows for equality
only. NaN follows Java's ``==`` and ``<``: it equals nothing, not even itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions import decimals as d
from penstock.functions.inference import (
    APPROXIMATE,
    EXACT,
    NUMERIC,
    common_type,
    comparison_types,
    shared_number,
)
from penstock.functions.signature import FunctionDef, Resolution, register
from penstock.functions.vector import Scalar, as_column, is_null, merge_valid
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call, Expr
    from penstock.functions.vector import Vector

_NUMPY = {
    "=": np.equal, "<>": np.not_equal, "<": np.less,
    "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip
_ARROW = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less,
    "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
BOOLEAN = t.BooleanType()


def _resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    equality = call.name in ("=", "<>") or "DISTINCT" in call.name
    left, right = call.types
    targets = comparison_types(left, right, equality)
    if targets is None:
        call.fail("two values of types that can be compared")
    out = [x.with_nullable(y.nullable) for x, y in zip(targets, call.types, strict=True)]
    distinct = "DISTINCT" in call.name
    nullable = call.any_nullable or any(_nullable_field(x) for x in call.types)
    return out, BOOLEAN.with_nullable(nullable and not distinct)


def _nullable_field(type_: t.LogicalType) -> bool:
    return isinstance(type_, t.RowType) and any(f.type.nullable for f in type_.fields)


def comparator(op: str, a: t.LogicalType, b: t.LogicalType) -> Callable[..., np.ndarray]:
    """``(left vector, right vector, n) -> bool array``; NULL rows give anything."""
    decimal = isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType)
    if decimal and isinstance(a, EXACT) and isinstance(b, EXACT):
        return _decimal_comparator(op, a, b)
    if isinstance(a, (t.ArrayType, t.MapType, t.MultisetType, t.RowType)):
        return _nested_comparator(op)
    if isinstance(a, (*t.STRINGS, *t.BINARIES)):
        kernel = _ARROW[op]
        return lambda x, y, n: _bools(kernel(x.values, y.values), n)
    function = _NUMPY[op]
    return lambda x, y, n: function(x.values, y.values)


def _bools(array: Any, n: int) -> np.ndarray:
    if isinstance(array, pa.Scalar):
        return np.full(n, bool(array.as_py()), np.bool_)
    return Column.from_arrow(BOOLEAN, array).values


def _decimal_comparator(op: str, a: t.LogicalType, b: t.LogicalType) -> Callable[..., np.ndarray]:
    scale_a, scale_b = d.scale_of(a), d.scale_of(b)
    function = _NUMPY[op]

    def compare(x: Vector, y: Vector, n: int) -> np.ndarray:
        left, right, _ = d.align(d.unscaled(x), scale_a, d.unscaled(y), scale_b)
        limit = max(d.bound(left), d.bound(right))
        return np.asarray(function(d.widen(left, limit), d.widen(right, limit)), np.bool_)

    return compare


def _nested_comparator(op: str) -> Callable[..., np.ndarray]:
    def compare(x: Vector, y: Vector, n: int) -> np.ndarray:
        left, right = (_nested_keys(as_column(v, n)) for v in (x, y))
        same = np.fromiter((p == q for p, q in zip(left, right, strict=True)), np.bool_, n)
        return same if op == "=" else ~same

    return compare


def _nested_keys(column: Column) -> list[Any]:
    values = column.to_pylist()
    if isinstance(column.type, (t.MapType, t.MultisetType)):
        # Order of entries means nothing.
        return [None if v is None else {repr(k): e for k, e in v} for v in values]
    return values


def _bind(op: str) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        left, right = call.args
        compare, type_ = comparator(op, left.type, right.type), call.type
        rows = isinstance(left.type, t.RowType)

        def run(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]) or is_null(args[1]):
                return Scalar(type_, None)
            valid = merge_valid(args)
            if rows:
                complete = _complete_rows(args, n)
                valid = complete if valid is None else valid & complete
            return Column(type_, compare(*args, n), valid)

        return run

    return bind


def _complete_rows(args: Sequence[Vector], n: int) -> np.ndarray:
    """A comparison of rows with a NULL field is NULL."""
    out = np.ones(n, np.bool_)
    for arg in args:
        for i, value in enumerate(as_column(arg, n).to_pylist()):
            if value is not None and None in value.values():
                out[i] = False
    return out


def distinct_mask(a: Vector, b: Vector, n: int, compare: Callable[..., np.ndarray]) -> np.ndarray:
    """IS DISTINCT FROM: NULL equals NULL."""
    null_a, null_b = _null_mask(a, n), _null_mask(b, n)
    if is_null(a) or is_null(b):
        return null_a != null_b
    return np.where(null_a | null_b, null_a != null_b, compare(a, b, n))


def _null_mask(vector: Vector, n: int) -> np.ndarray:
    if is_null(vector):
        return np.ones(n, np.bool_)
    valid = vector.valid
    return np.zeros(n, np.bool_) if valid is None else ~valid


def _bind_distinct(negate: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        compare, type_ = comparator("<>", call.args[0].type, call.args[1].type), call.type

        def run(args: Sequence[Vector], n: int) -> Vector:
            out = distinct_mask(args[0], args[1], n, compare)
            return Column(type_, ~out if negate else out)

        return run

    return bind


# -- BETWEEN and IN ------------------------------------------------------------------


def three_valued_or(
    parts: list[tuple[np.ndarray, np.ndarray | None]],
) -> tuple[np.ndarray, np.ndarray | None]:
    """OR over (values, valid): TRUE if any is, NULL if none is TRUE and one is NULL."""
    true = unknown = None
    for values, valid in parts:
        hit = values if valid is None else values & valid
        true = hit if true is None else true | hit
        if valid is not None:
            unknown = ~valid if unknown is None else unknown | ~valid
    assert true is not None
    return true, None if unknown is None else true | ~unknown


def _comparison(op: str, a: t.LogicalType, b: t.LogicalType) -> Callable[..., Any]:
    compare = comparator(op, a, b)

    def run(x: Vector, y: Vector, n: int) -> tuple[np.ndarray, np.ndarray | None]:
        if is_null(x) or is_null(y):
            return np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        return compare(x, y, n), merge_valid((x, y))

    return run


def _beside_text(types: Sequence[t.LogicalType]) -> t.LogicalType | None:
    """The type of dates or times if some arguments are text: d BETWEEN '2000-01-01' AND e. None if the
    others have another type."""
    common = common_type([x for x in types if not isinstance(x, t.STRINGS)])
    if not isinstance(common, (t.DateType, t.TimeType, *t.TIMESTAMPS)):
        return None
    targets = comparison_types(common, t.VarCharType(), False)
    return None if targets is None else targets[1]


def _resolve_common(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    """All arguments in one type: BETWEEN and IN."""
    if len(call.args) < 2 or ("BETWEEN" in call.name and len(call.args) != 3):
        call.fail("a value and what to compare it with")
    first, *rest = call.types
    result = BOOLEAN.with_nullable(call.any_nullable)
    common = _one_number(call) or common_type(call.types)
    if common is None:
        # A string takes the type of the other operand, or the others take its type.
        others = common_type(rest)
        targets = None if others is None else comparison_types(first, others, False)
        if targets is None:
            common = _beside_text(call.types)
        else:
            common = targets[1] if isinstance(first, t.STRINGS) else targets[0]
    if common is None or t.holds_variant(common):
        call.fail("values of types that can be compared")
    if isinstance(common, t.NullType):
        common = t.VarCharType()
    if isinstance(common, t.STRINGS):
        return [x if isinstance(x, t.STRINGS) else common for x in call.types], result
    return [common.with_nullable(x.nullable) for x in call.types], result


def _one_number(call: Resolution) -> t.LogicalType | None:
    """The type of numbers; None if an argument is no number. Calls without one that fits are taken apart, but for
    those whose arguments cannot be computed twice: these compare as DOUBLE."""
    types = [x for x in call.types if not isinstance(x, t.NullType)]
    if len(types) < 2 or not all(isinstance(x, NUMERIC) for x in types):
        return None
    approximate = any(isinstance(x, APPROXIMATE) for x in types)
    return shared_number(types, "IN" in call.name.split()) or (t.DoubleType() if approximate else None)


#: A call of several comparisons → how they are connected, and each with the place of its second operand.
_BETWEEN = ("AND", [(">=", 1), ("<=", 2)])
_OUTSIDE = ("OR", [("<", 1), (">", 2)])
_SWAPPED = {1: 2, 2: 1}


def taken_apart(name: str, args: Sequence[Expr]) -> list[tuple[str, list[tuple[str, Expr, Expr]]]] | None:
    """IN and BETWEEN of numbers that no one type holds, as what they mean: comparisons of two.

    The outer list has one group, or two for BETWEEN SYMMETRIC; each has its connective. None where one type does.
    """
    types = [a.type for a in args if not isinstance(a.type, t.NullType)]
    if (
        len(types) < 3
        or isinstance(args[0].type, t.NullType)
        or not all(isinstance(x, NUMERIC) for x in types)
    ):
        return None
    if shared_number(types, "IN" in name.split()) is not None:
        return None
    if name in ("IN", "NOT IN"):
        op, connective = ("=", "OR") if name == "IN" else ("<>", "AND")
        return [(connective, [(op, args[0], item) for item in args[1:]])]
    connective, parts = _OUTSIDE if name.startswith("NOT") else _BETWEEN
    out = [(connective, [(op, args[0], args[j]) for op, j in parts])]
    if name.endswith("SYMMETRIC"):
        out.append((connective, [(op, args[0], args[_SWAPPED[j]]) for op, j in parts]))
    return out


def _bind_between(negate: bool, symmetric: bool) -> Callable[[Call], Any]:
    """Each form as its own comparisons: NaN is neither between two numbers nor outside them."""
    connective, parts = _OUTSIDE if negate else _BETWEEN

    def bind(call: Call) -> Any:
        type_ = call.type
        first, *ends = (a.type for a in call.args)
        straight = [(_comparison(op, first, ends[j - 1]), j) for op, j in parts]
        swapped = [(_comparison(op, first, ends[_SWAPPED[j] - 1]), _SWAPPED[j]) for op, j in parts]
        combine, other = _three_valued_and, three_valued_or
        if connective == "OR":
            combine, other = other, combine

        def run(args: Sequence[Vector], n: int) -> Vector:
            tests = (straight, swapped) if symmetric else (straight,)
            sides = [combine([f(args[0], args[i], n) for f, i in side]) for side in tests]
            return Column(type_, *(other(sides) if symmetric else sides[0]))

        return run

    return bind


def _three_valued_and(
    parts: list[tuple[np.ndarray, np.ndarray | None]],
) -> tuple[np.ndarray, np.ndarray | None]:
    values, valid = three_valued_or([(~values, valid) for values, valid in parts])
    return ~values, valid


def _bind_in(negate: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        type_ = call.type
        tests = [_comparison("=", call.args[0].type, a.type) for a in call.args[1:]]

        def run(args: Sequence[Vector], n: int) -> Vector:
            first, *items = args
            values, valid = _in_set(first, items, n) or three_valued_or(
                [test(first, item, n) for test, item in zip(tests, items, strict=True)]
            )
            return Column(type_, ~values if negate else values, valid)

        return run

    return bind


def _in_set(first: Vector, items: Sequence[Vector], n: int) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Membership of constants by one set look-up; None if that does not apply."""
    if len(items) < 4 or not isinstance(first, Column):
        return None
    if not all(isinstance(i, Scalar) and i.value is not None for i in items):
        return None
    if isinstance(first.type, t.STRINGS):
        options = pc.SetLookupOptions(pa.array([i.value for i in items], pa.string()))  # type: ignore[union-attr]
        return _bools(pc.call_function("is_in", [first.values], options), n), first.valid
    if isinstance(first.values, np.ndarray) and not isinstance(
        first.type, (t.DecimalType, t.FloatType, t.DoubleType)
    ):
        return np.isin(first.values, np.array([i.value for i in items], first.values.dtype)), first.valid  # type: ignore[union-attr]
    return None


for _op in _NUMPY:
    register(FunctionDef(_op, _resolve, _bind(_op)))
register(FunctionDef("IS DISTINCT FROM", _resolve, _bind_distinct(False)))
register(FunctionDef("IS NOT DISTINCT FROM", _resolve, _bind_distinct(True)))
for _negate in (False, True):
    _not = "NOT " if _negate else ""
    register(FunctionDef(f"{_not}BETWEEN", _resolve_common, _bind_between(_negate, False), apart=taken_apart))
    register(
        FunctionDef(
            f"{_not}BETWEEN SYMMETRIC", _resolve_common, _bind_between(_negate, True), apart=taken_apart
        )
    )
    register(FunctionDef(f"{_not}IN", _resolve_common, _bind_in(_negate), apart=taken_apart))
