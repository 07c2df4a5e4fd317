"""Arithmetic: + - * / % and the signs. Integers wrap around as in Java, decimals are exact, and dates and times
move by intervals (see ``intervals``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions import decimals as d
from penstock.functions import intervals
from penstock.functions.inference import APPROXIMATE, NUMERIC, common_numeric, decimal_of, decimal_result
from penstock.functions.signature import FunctionDef, Resolution, alias, register, strict
from penstock.functions.vector import Scalar, is_null, merge_valid
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

_EXPECTED = "two numbers, a time and an interval, or two intervals of one kind"
_WRAPPING = {"+": np.add, "-": np.subtract, "*": np.multiply}


def _resolve_binary(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if len(call.args) == 1 and call.name in "+-":
        return _resolve_sign(call)
    call.count(2)
    a, b = _without_null_type(call.types)
    nullable = call.any_nullable
    if isinstance(a, NUMERIC) and isinstance(b, NUMERIC):
        name = "%" if call.name == "MOD" else call.name
        if name == "%" and (isinstance(a, APPROXIMATE) or isinstance(b, APPROXIMATE)):
            call.fail("integers or decimals")
        targets, result = _numeric_types(name, a, b)
        return _nullable_as(targets, call.types), result.with_nullable(nullable)
    temporal = intervals.resolve(call.name, a, b)
    if temporal is None:
        call.fail(_EXPECTED)
    targets, result = temporal
    return _nullable_as(targets, call.types), result.with_nullable(nullable)


def _without_null_type(types: list[t.LogicalType]) -> list[t.LogicalType]:
    """An untyped NULL takes the other operand's type."""
    a, b = types
    if isinstance(a, t.NullType) and isinstance(b, t.NullType):
        return [t.IntType(), t.IntType()]
    if isinstance(a, t.NullType):
        return [b.with_nullable(True), b]
    return [a, a.with_nullable(True)] if isinstance(b, t.NullType) else [a, b]


def _nullable_as(targets: Sequence[t.LogicalType], types: Sequence[t.LogicalType]) -> list[t.LogicalType]:
    return [target.with_nullable(type_.nullable) for target, type_ in zip(targets, types, strict=True)]


def _numeric_types(op: str, a: t.LogicalType, b: t.LogicalType) -> tuple[list[t.LogicalType], t.LogicalType]:
    if isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType):
        if isinstance(a, APPROXIMATE) or isinstance(b, APPROXIMATE):
            return [t.DoubleType(), t.DoubleType()], t.DoubleType()
        return [a, b], decimal_result(op, decimal_of(a), decimal_of(b))
    common = common_numeric(a, b)
    if op == "%":
        return [common, common], b  # the remainder has the divisor's type
    return [common, common], common


def _resolve_sign(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    (type_,) = call.types
    if isinstance(type_, t.NullType):
        type_ = t.IntType()
    if not isinstance(type_, (*NUMERIC, *t.INTERVALS)):
        call.fail("a number or an interval")
    return [type_], type_


def _bind(op: str) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        if len(call.args) == 1:
            return _bind_sign(op, call)
        types = [a.type for a in call.args]
        if any(isinstance(x, (*t.INTERVALS, t.DateType, t.TimeType, *t.TIMESTAMPS)) for x in types):
            return intervals.bind(op, call)
        if isinstance(call.type, t.DecimalType):
            return _bind_decimal(op, call)
        if isinstance(types[0], APPROXIMATE):
            return strict(call, np.divide if op == "/" else _WRAPPING[op])
        if op in _WRAPPING:
            return strict(call, _WRAPPING[op])
        return _bind_integer_division(op, call)

    return bind


def _bind_sign(op: str, call: Call) -> Any:
    if op == "+":
        return lambda args, n: args[0]
    if isinstance(call.type, t.DecimalType):
        type_ = call.type

        def negate(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]):
                return Scalar(type_, None)
            values = d.unscaled(args[0])
            return d.from_unscaled(type_, -d.widen(values, d.bound(values)), args[0].valid)  # type: ignore[arg-type]

        return negate
    return strict(call, np.negative)


# -- integers ----------------------------------------------------------------------


def check_divisor(divisor: Any, valid: np.ndarray | None, n: int) -> Any:
    """The divisor with zeros in NULL rows replaced by 1; a zero elsewhere raises."""
    if isinstance(divisor, (int, np.generic)):
        if divisor == 0:
            if n if valid is None else valid.any():
                raise _division_by_zero()
            return type(divisor)(1)
        return divisor
    zero = np.asarray(divisor == 0, np.bool_)
    if not zero.any():
        return divisor
    if (zero if valid is None else zero & valid).any():
        raise _division_by_zero()
    return np.where(zero, 1, divisor).astype(divisor.dtype)


def _division_by_zero() -> RecordError:
    return RecordError(
        "division by zero",
        expected="a divisor that is not 0",
        got="0",
        remedy="write NULLIF(divisor, 0) to get NULL instead",
    )


def divide_integers(a: Any, b: Any) -> Any:
    """Quotient towards zero; b has no zeros."""
    if np.ndim(b) == 0 and b > 0 and (not len(a) or a.min() >= 0):
        return a // b  # the common case; NumPy divides by an invariant without dividing
    quotient = a // b
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.where(b == -1, -a, quotient + inexact).astype(a.dtype if hasattr(a, "dtype") else b.dtype)


def _bind_integer_division(op: str, call: Call) -> Any:
    type_ = call.type
    out_dtype = Column.nulls(type_, 0).values.dtype

    def run(args: Sequence[Vector], n: int) -> Vector:
        if any(is_null(a) for a in args):
            return Scalar(type_, None)
        valid = merge_valid(args)
        a = args[0].values
        b = check_divisor(args[1].values, valid, n)
        out = divide_integers(a, b)
        if op == "%":
            out = a - out * b
        return Column(type_, out.astype(out_dtype, copy=False), valid)

    return run


# -- decimals ----------------------------------------------------------------------


def _bind_decimal(op: str, call: Call) -> Any:
    type_: t.DecimalType = call.type  # type: ignore[assignment]
    scale_a, scale_b = (d.scale_of(a.type) for a in call.args)
    compute = {"+": _add, "-": _subtract, "*": _multiply, "/": _divide, "%": _remainder}[op]

    def run(args: Sequence[Vector], n: int) -> Vector:
        if any(is_null(a) for a in args):
            return Scalar(type_, None)
        valid = merge_valid(args)
        a, b = d.unscaled(args[0]), d.unscaled(args[1])
        if op in "/%":
            b = check_divisor(b, valid, n)
        return d.from_unscaled(type_, compute(a, scale_a, b, scale_b, type_.scale), valid)

    return run


def _add(a: Any, scale_a: int, b: Any, scale_b: int, scale: int, sign: int = 1) -> Any:
    x, y, common = d.align(a, scale_a, b, scale_b)
    return d.rescale(d.add(x, y, sign), common, scale)


def _subtract(a: Any, scale_a: int, b: Any, scale_b: int, scale: int) -> Any:
    return _add(a, scale_a, b, scale_b, scale, -1)


def _multiply(a: Any, scale_a: int, b: Any, scale_b: int, scale: int) -> Any:
    return d.rescale(d.multiply(a, b), scale_a + scale_b, scale)


def _divide(a: Any, scale_a: int, b: Any, scale_b: int, scale: int) -> Any:
    shift = scale - scale_a + scale_b
    if shift >= 0:
        return d.divide_half_up(d.scale_up(a, shift), b)
    return d.divide_half_up(a, d.scale_up(b, -shift))


def _remainder(a: Any, scale_a: int, b: Any, scale_b: int, scale: int) -> Any:
    x, y, common = d.align(a, scale_a, b, scale_b)
    limit = max(d.bound(x), d.bound(y))
    dividend: Any = d.widen(x, limit)
    divisor: Any = d.widen(y, limit)
    magnitude = abs(dividend) % abs(divisor)
    negative = np.asarray(dividend < 0, np.bool_)
    return d.rescale(np.where(negative, -magnitude, magnitude), common, scale)


def _division_fails(call: Call) -> bool:
    """Exact division raises on zero, unless the divisor is a constant other than zero."""
    if isinstance(call.type, APPROXIMATE):
        return False
    divisor = call.args[-1]
    return not (hasattr(divisor, "value") and divisor.value not in (0, None))


for _name in ("+", "-", "*"):
    register(FunctionDef(_name, _resolve_binary, _bind(_name)))
for _name in ("/", "%"):
    register(FunctionDef(_name, _resolve_binary, _bind(_name), fails=_division_fails))
alias("MOD", "%")
