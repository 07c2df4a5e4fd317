"""Numeric functions: rounding keeps the kind of number; the other functions compute with DOUBLE."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions import decimals as d
from penstock.functions.calendar import ceil_us, floor_us
from penstock.functions.inference import APPROXIMATE
from penstock.functions.signature import (
    AS_DOUBLE,
    AS_INT,
    NUM,
    NUMERICS,
    FunctionDef,
    Resolution,
    alias,
    define,
    define_values,
    literal_value,
    register,
    resolver,
    rowwise,
    strict,
)  # fmt: skip
from penstock.functions.temporal import bind_rounding, resolve_rounding
from penstock.functions.vector import Scalar, is_null
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

DOUBLE = t.DoubleType()
_CONTEXT = Context(prec=400)


def _same(types: list[t.LogicalType]) -> t.LogicalType:
    return types[0]


# -- FLOOR, CEIL, ABS, SIGN --------------------------------------------------------------


def _resolve_floor(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if len(call.args) == 2:
        return resolve_rounding(call)

    def result(types: list[t.LogicalType]) -> t.LogicalType:
        return t.DecimalType(types[0].precision, 0) if isinstance(types[0], t.DecimalType) else types[0]

    return resolver([NUM], result)(call)


def _bind_floor(up: bool) -> Callable[[Call], Any]:
    temporal = bind_rounding(ceil_us if up else floor_us)

    def bind(call: Call) -> Any:
        source = call.args[0].type
        if not isinstance(source, NUMERICS):
            return temporal(call)
        if isinstance(source, t.INTEGERS):
            return lambda args, n: args[0]
        if isinstance(source, APPROXIMATE):
            return strict(call, np.ceil if up else np.floor)
        power = 10**source.scale
        # Python's // is the floor; the ceiling is the floor of the negative.
        return _decimal(call, lambda v: -(-v // power) if up else v // power, power)

    return bind


def _decimal(call: Call, function: Callable[[Any], Any], constant: int = 0) -> Any:
    """A strict kernel of one exact number's unscaled values, giving the result's;
    ``constant``: the largest number that the function works with."""
    type_: t.DecimalType = call.type  # type: ignore[assignment]

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(type_, None)
        values = d.unscaled(args[0])
        return d.from_unscaled(
            type_, function(d.widen(values, d.bound(values) + constant + 1)), args[0].valid
        )

    return run


register(FunctionDef("FLOOR", _resolve_floor, _bind_floor(False)))
register(FunctionDef("CEIL", _resolve_floor, _bind_floor(True)))
alias("CEILING", "CEIL")


def _bind_abs(call: Call) -> Any:
    return _decimal(call, abs) if isinstance(call.type, t.DecimalType) else strict(call, np.abs)


def _bind_sign(call: Call) -> Any:
    if isinstance(call.type, t.DecimalType):
        one = 10**call.type.scale
        return _decimal(call, lambda v: d.multiply(np.sign(v).astype(np.int64), one))
    return strict(call, np.sign)


define("ABS", [NUM], _same, _bind_abs)
define("SIGN", [NUM], _same, _bind_sign)


# -- ROUND, TRUNCATE -----------------------------------------------------------------------


def _resolve_round(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    targets, result = resolver([NUM, AS_INT], _same, optional=1)(call)
    if isinstance(result, t.DecimalType):
        digits = _constant_digits(call)
        nullable = result.nullable
        if digits is not None and digits < result.scale:
            whole = result.precision - result.scale
            scale = max(digits, 0)
            # Rounding may carry into one more digit.
            result = t.DecimalType(min(whole + scale + 1, 38), scale, nullable)
    return targets, result


def _constant_digits(call: Resolution) -> int | None:
    if len(call.args) == 1:
        return 0
    return getattr(call.args[1], "value", None)


def _bind_round(half_up: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        source = call.args[0].type
        digits = 0 if len(call.args) == 1 else literal_value(call, 1)
        if isinstance(source, APPROXIMATE):
            return _bind_round_float(call, digits, half_up)
        scale = d.scale_of(source)
        target = d.scale_of(call.type)

        def apply(values: Any, places: int) -> Any:
            if places >= scale:
                return d.scale_up(values, target - scale)
            power = 10 ** (scale - places)
            whole = d.divide_half_up(values, power) if half_up else d.truncate_quotient(values, power)
            return d.scale_up(whole, target - places) if target >= places else whole

        if digits is None:
            return rowwise(call, lambda v, p: _round_row(v, p, scale, target, half_up))

        def run(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]):
                return Scalar(call.type, None)
            values = apply(d.unscaled(args[0]), digits)
            if isinstance(call.type, t.DecimalType):
                return d.from_unscaled(call.type, values, args[0].valid)
            dtype = args[0].values.dtype
            return Column(call.type, np.asarray(values).astype(np.int64).astype(dtype), args[0].valid)

        return run

    return bind


def _round_row(value: Any, places: int, scale: int, target: int, half_up: bool) -> Any:
    number = value if isinstance(value, Decimal) else Decimal(int(value)).scaleb(-scale, _CONTEXT)
    rounded = _round_number(number, places, half_up)
    if isinstance(value, Decimal):
        return rounded.quantize(Decimal(1).scaleb(-target), ROUND_HALF_UP, _CONTEXT)
    return int(rounded.scaleb(target, _CONTEXT))


def _round_number(number: Decimal, places: int, half_up: bool) -> Decimal:
    mode = ROUND_HALF_UP if half_up else ROUND_DOWN
    return number.quantize(Decimal(1).scaleb(-places), mode, _CONTEXT)


def _bind_round_float(call: Call, digits: int | None, half_up: bool) -> Any:
    """By the shortest digits of the number, as BigDecimal.valueOf does."""
    if digits == 0 and not half_up:
        return strict(call, lambda values, *_: _checked(np.trunc(values), None))
    single = isinstance(call.type, t.FloatType)
    half = np.float32(0.5) if single else 0.5
    if digits == 0:
        return _checked_kernel(
            call, lambda values: np.copysign(np.floor(np.abs(values) + half), values) + 0.0
        )

    def one(value: float, places: int = 0) -> float:
        if not math.isfinite(value):
            raise _not_finite(value)
        text = str(np.float32(value)) if single else repr(value)
        return float(_round_number(Decimal(text), places, half_up))

    return rowwise(call, one)


def _checked_kernel(call: Call, function: Callable[[Any], Any]) -> Any:
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(type_, None)
        return Column(type_, function(_checked(args[0].values, args[0].valid)), args[0].valid)

    return run


def _checked(values: Any, valid: np.ndarray | None) -> Any:
    bad = ~np.isfinite(values)
    if valid is not None:
        bad &= valid
    if bad.any():
        raise _not_finite(float(values[bad][0]))
    return values


def _not_finite(value: float) -> RecordError:
    return RecordError(f"cannot round {value}", expected="a finite number", got=str(value))


def _round_fails(call: Call) -> bool:
    return isinstance(call.type, APPROXIMATE)


register(FunctionDef("ROUND", _resolve_round, _bind_round(True), fails=_round_fails))
register(FunctionDef("TRUNCATE", _resolve_round, _bind_round(False), fails=_round_fails))


# -- DOUBLE functions ------------------------------------------------------------------------


def _define_double(name: str, function: Any, count: int = 1) -> None:
    define_values(name, [AS_DOUBLE] * count, DOUBLE, function)


for _name, _function in {
    "SQRT": np.sqrt, "EXP": np.exp, "LN": np.log, "LOG10": np.log10, "SIN": np.sin, "COS": np.cos,
    "TAN": np.tan, "ASIN": np.arcsin, "ACOS": np.arccos, "ATAN": np.arctan, "SINH": np.sinh, "COSH": np.cosh,
    "TANH": np.tanh, "DEGREES": np.degrees, "RADIANS": np.radians,
}.items():  # fmt: skip
    _define_double(_name, _function)
_define_double("COT", lambda x: 1.0 / np.tan(x))
_define_double("LOG2", lambda x: np.log(x) / math.log(2.0))
_define_double("POWER", np.power, 2)
_define_double("ATAN2", np.arctan2, 2)
define_values(
    "LOG", [AS_DOUBLE, AS_DOUBLE], DOUBLE,
    lambda base, x=None: np.log(base) if x is None else np.log(x) / np.log(base), optional=1,
)  # fmt: skip


def _constant(name: str, value: float) -> None:
    define(name, [], DOUBLE, lambda call: lambda args, n: Scalar(call.type, value), nullable=False)


_constant("PI", math.pi)
_constant("E", math.e)


# -- random numbers ------------------------------------------------------------------------


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else int(seed) & ((1 << 64) - 1))


def _bind_rand(call: Call) -> Any:
    generator = _generator(literal_value(call, 0))
    return lambda args, n: Column(call.type, generator.random(n))


def _bind_rand_integer(call: Call) -> Any:
    generator = _generator(literal_value(call, 0) if len(call.args) == 2 else None)

    def run(args: Sequence[Vector], n: int) -> Vector:
        high = args[-1].values
        valid = args[-1].valid
        if (np.asarray(high if valid is None else high[valid]) <= 0).any():
            raise RecordError(
                "RAND_INTEGER needs a bound over 0", expected="a positive bound", got=str(np.min(high))
            )
        safe = high if valid is None else np.where(valid, high, 1)
        return Column(call.type, generator.integers(0, safe, n, dtype=np.int32), valid)

    return run


define("RAND", [AS_INT], DOUBLE, _bind_rand, optional=1, nullable=False, deterministic=False)
define(
    "RAND_INTEGER",
    [AS_INT, AS_INT],
    t.IntType(),
    _bind_rand_integer,
    optional=1,
    deterministic=False,
    fails=True,
)
