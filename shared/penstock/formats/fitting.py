"""Which columns of a file a declared type may read: one table for both engines.

A type with the same values is read, and so is a type that widens without loss. Between integers, decimals
and units of time a narrower declared type is read too, and each value is checked. A number is never read as
a time, nor text as a number: that would be a guess.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as at

from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType

#: Decimal digits that integers of this many bits may have.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


@lru_cache(maxsize=4096)
def fits(want: LogicalType, have: pa.DataType) -> bool:
    """Whether a column of Arrow's ``have`` reads as ``want``."""
    if at.is_dictionary(have):
        return fits(want, have.value_type)
    if isinstance(have, pa.BaseExtensionType):
        return fits(want, have.storage_type)
    if at.is_null(have) or isinstance(want, t.NullType):
        return at.is_null(have)  # all NULL: fits any type
    match want:
        case t.BooleanType():
            return at.is_boolean(have)
        case t.DecimalType():
            return at.is_decimal(have) or (
                at.is_integer(have) and _DIGITS[have.bit_width] <= want.precision - want.scale
            )
        case t.FloatType():
            return at.is_integer(have) or (at.is_floating(have) and have.bit_width <= 32)
        case t.DoubleType():
            return at.is_integer(have) or at.is_floating(have)
        case t.DateType():
            return at.is_date(have)
        case t.TimeType():
            return at.is_time(have)
        case t.TimestampType():
            return at.is_timestamp(have) or at.is_date(have)
        case t.TimestampLtzType():
            return at.is_timestamp(have)
        case t.YearMonthIntervalType():
            return at.is_int32(have)  # files have no other unit
        case t.DayTimeIntervalType():
            return at.is_duration(have)
        case t.ArrayType(element=element):
            return _is_list(have) and fits(element, have.value_type)
        case t.MapType(key=key, value=value):
            return at.is_map(have) and fits(key, have.key_type) and fits(value, have.item_type)
        case t.MultisetType(element=element):
            return at.is_map(have) and fits(element, have.key_type) and at.is_integer(have.item_type)
        case t.RowType(fields=fields):
            # The code that reads the row names a missing field.
            return at.is_struct(have) and all(
                fits(f.type, have.field(f.name).type) for f in fields if have.get_field_index(f.name) >= 0
            )
    if isinstance(want, t.INTEGERS):
        return at.is_integer(have)
    if isinstance(want, t.STRINGS):
        return _is_string(have) or _is_binary(have)  # bytes are checked to be UTF-8
    return _is_binary(have) or (_is_string(have) and not isinstance(want, t.RawType))


def _is_list(have: pa.DataType) -> bool:
    return at.is_list(have) or at.is_large_list(have) or at.is_fixed_size_list(have)


def _is_string(have: pa.DataType) -> bool:
    return at.is_string(have) or at.is_large_string(have) or at.is_string_view(have)


def _is_binary(have: pa.DataType) -> bool:
    return (
        at.is_binary(have)
        or at.is_large_binary(have)
        or at.is_fixed_size_binary(have)
        or at.is_binary_view(have)
    )
