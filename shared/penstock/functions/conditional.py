"""Logic and choice: AND OR NOT, IS …, CASE, IF, COALESCE, IFNULL, NULLIF, GREATEST, LEAST.

AND, OR, CASE and COALESCE are *forms*: they evaluate an argument that can fail or costs much only on the
rows that need it. So ``x <> 0 AND 10 / x > 1`` and ``CASE WHEN x <> 0 THEN 10 / x END`` never divide by
zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from penstock.functions.casts import converter
from penstock.functions.comparison import comparator
from penstock.functions.inference import common_type, comparison_types
from penstock.functions.signature import ANY, BOOL, FunctionDef, Resolution, define, register
from penstock.functions.vector import Scalar, as_column, concat_take, is_null, merge_valid, retyped
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.evaluate import Frame, Node
    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BOOLEAN = t.BooleanType()


# -- three-valued logic ------------------------------------------------------------


def _resolve_logic(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    targets = [BOOL.accept(x) for x in call.types]
    if len(targets) < (1 if call.name == "NOT" else 2) or None in targets:
        call.fail("booleans")
    return targets, BOOLEAN.with_nullable(call.any_nullable)  # type: ignore[return-value]


def _logic_form(conjunction: bool) -> Callable[[Call, list[Node]], Callable[[Frame], Vector]]:
    """n-ary AND (``conjunction``) or OR. NULL operands count as TRUE in AND and FALSE in OR
    while the values are gathered; a row with one is NULL unless another operand decides."""

    def form(call: Call, nodes: list[Node]) -> Callable[[Frame], Vector]:
        type_ = call.type

        def run(frame: Frame) -> Vector:
            n = frame.n
            values: np.ndarray | None = None
            unknown: np.ndarray | None = None
            for node in nodes:
                rows = None
                if values is not None and not node.eager:
                    rows = np.flatnonzero(values if conjunction else ~values)
                    if not len(rows):
                        break
                    rows = None if len(rows) == n else rows
                part = node.run(frame if rows is None else frame.select(rows))
                hit, null = _gather(part, conjunction, n if rows is None else len(rows))
                if rows is not None:
                    hit, null = _spread(hit, null, rows, n, conjunction)
                values = hit if values is None else values & hit if conjunction else values | hit
                if null is not None:
                    unknown = null if unknown is None else unknown | null
            assert values is not None
            valid = None
            if unknown is not None:
                valid = ~(unknown & values) if conjunction else ~unknown | values
            return Column(type_, values, valid)

        return run

    return form


def _gather(part: Vector, conjunction: bool, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Values with NULL as the neutral element, and the mask of NULLs."""
    if isinstance(part, Scalar):
        if part.value is None:
            return np.full(n, conjunction, np.bool_), np.ones(n, np.bool_)
        return np.full(n, bool(part.value), np.bool_), None
    values, valid = part.values, part.valid
    if valid is None:
        return values, None
    return (values | ~valid if conjunction else values & valid), ~valid


def _spread(
    hit: np.ndarray, null: np.ndarray | None, rows: np.ndarray, n: int, conjunction: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Results of some rows spread over all rows; the others are decided already and stay as they are."""
    out = np.full(n, conjunction, np.bool_)
    out[rows] = hit
    if null is None:
        return out, None
    nulls = np.zeros(n, np.bool_)
    nulls[rows] = null
    return out, nulls


def _bind_not(call: Call) -> Any:
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        column = as_column(args[0], n)
        return Column(type_, ~column.values, column.valid)

    return run


def _validity(vector: Vector, n: int) -> np.ndarray:
    if isinstance(vector, Scalar):
        return np.full(n, vector.value is not None, np.bool_)
    valid = vector.valid
    return np.ones(n, np.bool_) if valid is None else valid


def _is(name: str, test: Callable[[Vector, int], np.ndarray], param: Any = ANY) -> None:
    """``x IS name`` and ``x IS NOT name``: never NULL themselves."""
    for negate in (False, True):

        def bind(call: Call, negate: bool = negate) -> Any:
            def run(args: Sequence[Vector], n: int) -> Vector:
                mask = test(args[0], n)
                return Column(call.type, ~mask if negate else mask)

            return run

        define(f"IS {'NOT ' if negate else ''}{name}", [param], BOOLEAN, bind, nullable=False)


def _truth(wanted: bool) -> Callable[[Vector, int], np.ndarray]:
    def test(vector: Vector, n: int) -> np.ndarray:
        column = as_column(vector, n)
        values = column.values if wanted else ~column.values
        return values & _validity(column, n)

    return test


register(FunctionDef("AND", _resolve_logic, form=_logic_form(True)))
register(FunctionDef("OR", _resolve_logic, form=_logic_form(False)))
define("NOT", [BOOL], BOOLEAN, _bind_not)
_is("NULL", lambda vector, n: ~_validity(vector, n))
_is("UNKNOWN", lambda vector, n: ~_validity(vector, n), BOOL)
_is("TRUE", _truth(True), BOOL)
_is("FALSE", _truth(False), BOOL)


# -- choice ------------------------------------------------------------------------


def _common(call: Resolution, types: list[t.LogicalType]) -> t.LogicalType:
    common = common_type(types)
    if common is None or isinstance(common, t.NullType):
        call.fail("values that have one common type, not all of them untyped NULL")
    return common


def _resolve_case(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    types = call.types
    if len(types) < 3 or len(types) % 2 == 0:
        call.fail("CASE(condition, value, …, else)")
    conditions = [BOOL.accept(x) for x in types[:-1:2]]
    if None in conditions:
        call.fail("boolean conditions")
    values = [*types[1:-1:2], types[-1]]
    common = _common(call, values)
    targets: list[t.LogicalType] = []
    for i, type_ in enumerate(types):
        is_condition = i % 2 == 0 and i < len(types) - 1
        targets.append(conditions[i // 2] if is_condition else common.with_nullable(type_.nullable))  # type: ignore[arg-type]
    return targets, common


def _resolve_if(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(3)
    targets, result = _resolve_case(call)
    return targets, result.with_nullable(call.any_nullable)


def _case_form(call: Call, nodes: list[Node]) -> Callable[[Frame], Vector]:
    conditions, values = nodes[:-1:2], [*nodes[1:-1:2], nodes[-1]]
    type_ = call.type

    def run_eager(frame: Frame) -> Vector:
        n = frame.n
        choice = np.full(n, len(conditions), np.int64)
        for k in range(len(conditions) - 1, -1, -1):
            choice[_true(conditions[k].run(frame), n)] = k
        return _choose(type_, values, choice, frame)

    def run(frame: Frame) -> Vector:
        n = frame.n
        choice = np.full(n, len(conditions), np.int64)
        rest: np.ndarray | None = None  # rows that no condition has matched; None = all
        for k, condition in enumerate(conditions):
            if rest is not None and not len(rest):
                break
            if rest is None or condition.eager:
                hit = _true(condition.run(frame), n)
                taken = np.flatnonzero(hit) if rest is None else rest[hit[rest]]
            else:
                hit = _true(condition.run(frame.select(rest)), len(rest))
                taken = rest[hit]
            choice[taken] = k
            rest = np.flatnonzero(choice == len(conditions))
        return _choose(type_, values, choice, frame)

    return run_eager if all(condition.eager for condition in conditions) else run


def _true(vector: Vector, n: int) -> np.ndarray:
    column = as_column(vector, n)
    return column.values if column.valid is None else column.values & column.valid


def _choose(type_: t.LogicalType, values: Sequence[Node], choice: np.ndarray, frame: Frame) -> Vector:
    """Row i is row i of ``values[choice[i]]``; a value that can fail runs on its rows only."""
    n = frame.n
    parts: list[Vector] = []
    source_rows = np.arange(n)
    for k, node in enumerate(values):
        if node.constant is not None:
            parts.append(node.constant)
        elif node.eager:
            parts.append(node.run(frame))
        else:
            rows = np.flatnonzero(choice == k)
            parts.append(
                as_column(node.run(frame.select(rows)), len(rows)) if len(rows) else Scalar(type_, None)
            )
            source_rows[rows] = np.arange(len(rows))
    if numpy_dtype(type_) is None:
        return concat_take(type_, parts, choice, source_rows)
    return _merge_fixed(type_, parts, choice, source_rows)


def _merge_fixed(
    type_: t.LogicalType, parts: list[Vector], choice: np.ndarray, source_rows: np.ndarray
) -> Column:
    n = len(choice)
    out = np.empty(n, numpy_dtype(type_))
    valid: np.ndarray | None = None
    for k, part in enumerate(parts):
        mask = choice == k
        if isinstance(part, Scalar):
            missing = mask if part.value is None else None
            if missing is None:
                out[mask] = part.value
            else:
                out[mask] = np.zeros((), out.dtype)
        else:
            rows = source_rows[mask]
            out[mask] = part.values[rows]
            missing = None
            if part.valid is not None:
                missing = np.zeros(n, np.bool_)
                missing[mask] = ~part.valid[rows]
        if missing is not None and missing.any():
            valid = ~missing if valid is None else valid & ~missing
    return Column(type_, out, valid)


def _resolve_coalesce(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if not call.args or (call.name == "IFNULL" and len(call.args) != 2):
        call.fail("two values" if call.name == "IFNULL" else "at least one value")
    common = _common(call, call.types)
    targets = [common.with_nullable(x.nullable) for x in call.types]
    return targets, common.with_nullable(all(x.nullable for x in call.types))


def _coalesce_form(call: Call, nodes: list[Node]) -> Callable[[Frame], Vector]:
    type_ = call.type

    def run(frame: Frame) -> Vector:
        n = frame.n
        first = nodes[0].run(frame)
        if isinstance(first, Column) and first.valid is None:
            return retyped(first, type_)
        parts, choice = [as_column(first, n)], np.zeros(n, np.int64)
        source_rows = np.arange(n)
        rest = np.flatnonzero(~_validity(first, n))
        for k, node in enumerate(nodes[1:], 1):
            if not len(rest):
                break
            part = as_column(node.run(frame.select(rest)), len(rest))
            choice[rest] = k
            source_rows[rest] = np.arange(len(rest))
            parts.append(part)
            rest = rest[~_validity(part, len(rest))]
        if numpy_dtype(type_) is None:
            return concat_take(type_, parts, choice, source_rows)
        return _merge_fixed(type_, parts, choice, source_rows)  # type: ignore[arg-type]

    return run


register(FunctionDef("CASE", _resolve_case, form=_case_form))
register(FunctionDef("IF", _resolve_if, form=_case_form))
register(FunctionDef("COALESCE", _resolve_coalesce, form=_coalesce_form))
register(FunctionDef("IFNULL", _resolve_coalesce, form=_coalesce_form))


# -- TYPEOF, NULLIF, GREATEST, LEAST -----------------------------------------------------------


def _resolve_nullif(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    left, right = call.types
    if comparison_types(left, right, True) is None:
        call.fail("two values of types that can be compared")
    return call.types, call.types[0].with_nullable(True)


def _bind_nullif(call: Call) -> Any:
    left, right = (a.type for a in call.args)
    targets = comparison_types(left, right, True)
    assert targets is not None
    convert = [converter(source, target) for source, target in zip((left, right), targets, strict=True)]
    compare = comparator("=", *targets)

    def run(args: Sequence[Vector], n: int) -> Vector:
        first = as_column(args[0], n)
        if is_null(args[1]):
            return retyped(first, call.type)
        pair = [convert[0](first), convert[1](as_column(args[1], n))]
        equal = compare(*pair, n)
        both = merge_valid(pair)
        keep = ~(equal if both is None else equal & both)
        if numpy_dtype(call.type) is None:
            return concat_take(
                call.type, [first, Scalar(call.type, None)], (~keep).astype(np.int64), np.arange(n)
            )
        valid = keep if first.valid is None else keep & first.valid
        return Column(call.type, first.values, valid)

    return run


def _resolve_extreme(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    common = _common(call, call.types) if call.args else call.fail("at least one value")
    if isinstance(common, (t.ArrayType, t.MapType, t.MultisetType, t.RowType, t.RawType, t.VariantType)):
        call.fail("values that have an order")
    return [common.with_nullable(x.nullable) for x in call.types], common


def _bind_extreme(numpy_kernel: Any, arrow_kernel: Any) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        type_ = call.type

        def run(args: Sequence[Vector], n: int) -> Vector:
            if any(is_null(a) for a in args):
                return Scalar(type_, None)
            if numpy_dtype(type_) is None:
                columns = [as_column(a, n).values for a in args]
                return Column.from_arrow(type_, arrow_kernel(*columns, skip_nulls=False))
            out = args[0].values
            for arg in args[1:]:
                out = numpy_kernel(out, arg.values)
            return Column(type_, out, merge_valid(args))

        return run

    return bind


register(FunctionDef("NULLIF", _resolve_nullif, _bind_nullif))
register(FunctionDef("GREATEST", _resolve_extreme, _bind_extreme(np.maximum, pc.max_element_wise)))
register(FunctionDef("LEAST", _resolve_extreme, _bind_extreme(np.minimum, pc.min_element_wise)))


def _bind_typeof(call: Call) -> Any:
    text = str(call.args[0].type)
    return lambda args, n: Scalar(call.type, text)


define("TYPEOF", [ANY, BOOL], t.VarCharType(), _bind_typeof, optional=1, nullable=True)
