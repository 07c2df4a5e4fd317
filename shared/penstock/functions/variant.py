"""VARIANT: JSON values whose types are known only at run time. PARSE_JSON, element access and casts.

A VARIANT is stored as canonical JSON text, which Flink's JSON form of it is, too: no white space, an object's keys in
Java's order, an exact number without exponent and trailing zeros (1.50 is 1.5), any other number as Java's
``Double.toString`` writes it. Two texts are equal if, and only if, the values are equal numbers of one kind, texts ….
"""

from __future__ import annotations

import json
import math
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions.formatting import double_text
from penstock.functions.number_casts import FLOATS
from penstock.functions.signature import BOOL, STR, define_rows
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.signature import Resolution

VARIANT = t.VariantType()
#: The most digits of an exact number, and of its fraction. Numbers with more are doubles, as in Flink.
_DIGITS = 38
_EXACT = Context(prec=2 * _DIGITS)
_LIMITS: dict[type, int] = {t.TinyIntType: 7, t.SmallIntType: 15, t.IntType: 31, t.BigIntType: 63}


class _Number(str):
    """A number of a document, in canonical text."""

    __slots__ = ()


def canonical(text: str, *, repeated_keys: bool = False) -> str:
    """The JSON document ``text`` in the form in which a VARIANT is stored.

    Raises ValueError with the reason if it is no document, holds a number outside DOUBLE's range or, without
    ``repeated_keys`` (the last one counts), an object that has a key twice.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) < len(items) and not repeated_keys:
            names = [name for name, _ in items]
            raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is there twice")
        return made

    try:
        value = json.loads(
            text, parse_int=_number, parse_float=_number, parse_constant=_no_constant, object_pairs_hook=pairs
        )
        made = _dump(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    made.encode()  # half of a surrogate pair is no text
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _number(text: str) -> _Number:
    """The canonical text of a JSON number: an exact one in plain notation, else a double."""
    if "e" not in text and "E" not in text and len(text) <= 2 * _DIGITS + 3:
        exact = Decimal(text)
        digits, scale = exact.as_tuple().digits, -int(exact.as_tuple().exponent)
        if max(len(digits), scale) <= _DIGITS:
            plain = format(exact, "f")
            plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
            return _Number("0" if plain in ("-0", "") else plain)
    double = float(text)
    if math.isinf(double):
        raise ValueError(f"{text[:60]} is outside DOUBLE's range")
    return _Number(double_text(double))


def _dump(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ",".join(map(_dump, value)) + "]"
    names = sorted(value, key=_java_order)
    return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{_dump(value[n])}" for n in names) + "}"


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """The value of a stored text, numbers as ``_Number``. The last ones are kept: several functions often read one."""
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", _Number: "a number", str: "a string", bool: "a boolean"}
    return kinds.get(type(value), "null")


# -- functions -------------------------------------------------------------------------------


def _parse(text: str, repeated_keys: bool = False) -> str:
    try:
        return canonical(text, repeated_keys=bool(repeated_keys))
    except ValueError as err:
        raise RecordError(
            f"PARSE_JSON: {err}",
            expected="a JSON document",
            got=text[:200],
            remedy="TRY_PARSE_JSON gives NULL for such a text",
        ) from None


def _try_parse(text: str, repeated_keys: bool = False) -> str | None:
    try:
        return canonical(text, repeated_keys=bool(repeated_keys))
    except ValueError:
        return None


define_rows("PARSE_JSON", [STR, BOOL], VARIANT, _parse, optional=1, fails=True)
define_rows("TRY_PARSE_JSON", [STR, BOOL], VARIANT, _try_parse, optional=1, nullable=True)


def item(text: str, key: int | str) -> str | None:
    """The element of a stored array at ``key`` (from 1), or the field of a stored object; None if there is none.

    Raises RecordError if it is no array, or no object.
    """
    value = _parsed(text)
    wanted: type = str if isinstance(key, str) else int
    if not isinstance(value, dict if wanted is str else list):
        raise RecordError(
            f"a VARIANT that is {_kind(value)} has no element [{key!r}]",
            expected="an object" if wanted is str else "an array",
            got=text[:200],
        )
    if isinstance(value, dict):
        return _dump(value[key]) if key in value else None
    return _dump(value[int(key) - 1]) if 1 <= int(key) <= len(value) else None


# -- casts -----------------------------------------------------------------------------------


def to_type(
    target: t.LogicalType, fit: Callable[[Column], Column], lenient: bool
) -> Callable[[Column], Column]:
    """A cast of a VARIANT column. ``fit`` cuts a STRING column to ``target``'s length; ``lenient``: what does not
    fit is NULL. No JSON value is a date or bytes: a cast to these gives NULL of null, else fails."""

    def one(text: str | None) -> Any:
        if text is None or text == "null":
            return None
        made = _scalar(_parsed(text), target)
        if made is None and not lenient:
            raise RecordError(
                f"cannot cast a VARIANT that is {_kind(_parsed(text))} to {target.sql()}",
                expected=f"a value that {target.sql()} holds as it is",
                got=text[:200],
                remedy="TRY_CAST gives NULL for such a value, JSON_STRING the JSON text of any",
            )
        return made

    def convert(column: Column) -> Column:
        values = [one(text) for text in column.storage_list()]
        if isinstance(target, t.STRINGS):
            return fit(Column.of(t.VarCharType(), values))
        return Column.of(target, values)

    return convert


def _scalar(value: Any, target: t.LogicalType) -> Any:
    """The Python value of ``target``; None if it does not hold the JSON value as it is."""
    if isinstance(value, bool):
        if isinstance(target, t.STRINGS):
            return "TRUE" if value else "FALSE"
        return value if isinstance(target, t.BooleanType) else None
    if isinstance(value, (dict, list)) or value is None:
        return None
    if isinstance(target, t.STRINGS):
        return str(value)
    if not isinstance(value, _Number):
        return None
    if isinstance(target, FLOATS):
        with np.errstate(over="ignore"):
            made = float(np.float32(value)) if isinstance(target, t.FloatType) else float(value)
        return None if math.isinf(made) else made
    exact = Decimal(value)
    if isinstance(target, t.INTEGERS):
        limit = 1 << _LIMITS[type(target)]
        if exact != exact.to_integral_value() or abs(exact) > limit:
            return None
        whole = int(exact)
        return whole if -limit <= whole < limit else None
    if isinstance(target, t.DecimalType):
        _, digits, exponent = _EXACT.normalize(exact).as_tuple()
        assert isinstance(exponent, int)
        if exact and (-exponent > target.scale or len(digits) + exponent > target.precision - target.scale):
            return None
        return exact
    return None


def resolve_item(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    """The types of ``variant[index]`` and ``variant[key]``."""
    index = call.types[1]
    if not isinstance(index, (*t.INTEGERS, *t.STRINGS)):
        call.fail("a VARIANT and an index from 1, or a VARIANT and a key")
    return call.types, VARIANT
