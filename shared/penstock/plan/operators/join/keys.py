"""Which equalities are keys of a join.

A join finds rows by the hash of their keys, and the hash depends on how a value is stored: 1.5 is stored as
150 in DECIMAL(10, 2) and as 15 in DECIMAL(10, 1). So both keys must be stored alike, if need be by a cast
that loses nothing. An equality without such a cast stays a condition, which compares values.
"""

from __future__ import annotations

from penstock.functions.expr import Expr, InputRef
from penstock.functions.inference import EXACT, cast_expr, decimal_of
from penstock.types import logical as t


def stored_alike(a: t.LogicalType, b: t.LogicalType) -> bool:
    """Whether equal values of the two types have equal storage, and so equal hashes."""
    for family in (t.STRINGS, t.BINARIES):
        if isinstance(a, family) and isinstance(b, family):
            return True
    if type(a) is not type(b):
        return False
    match a, b:
        case t.DecimalType(), t.DecimalType():
            return a.scale == b.scale and _is_int64(a) == _is_int64(b)
        case t.ArrayType(), t.ArrayType():
            return stored_alike(a.element, b.element)
        case t.MultisetType(), t.MultisetType():
            return stored_alike(a.element, b.element)
        case t.MapType(), t.MapType():
            return stored_alike(a.key, b.key) and stored_alike(a.value, b.value)
        case t.RowType(), t.RowType():
            pairs = zip(a.fields, b.fields, strict=False)
            return len(a.fields) == len(b.fields) and all(stored_alike(x.type, y.type) for x, y in pairs)
    return True


def _is_int64(type_: t.DecimalType) -> bool:
    return type_.precision <= t.MAX_UNSCALED_INT64_PRECISION


def key_type(a: t.LogicalType, b: t.LogicalType) -> t.DecimalType | None:
    """The DECIMAL that holds every value of both exact types; None where 38 digits are too few."""
    if not isinstance(a, EXACT) or not isinstance(b, EXACT):
        return None
    x, y = decimal_of(a), decimal_of(b)
    scale = max(x.scale, y.scale)
    precision = max(x.precision - x.scale, y.precision - y.scale) + scale
    return t.DecimalType(precision, scale) if precision <= t.MAX_DECIMAL_PRECISION else None


def can_be_keys(a: t.LogicalType, b: t.LogicalType) -> bool:
    """Whether a join can find equal values of these types by hash."""
    return stored_alike(a, b) or key_type(a, b) is not None


def as_keys(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Both sides of an equality as keys that are stored alike; None: it stays a condition."""
    if stored_alike(a.type, b.type):
        return a, b
    common = key_type(a.type, b.type)
    return None if common is None else (cast_expr(a, common), cast_expr(b, common))


def as_lookup_keys(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """Both sides of an equality as keys, if ``b`` is a column that another system compares: ``a`` is cast to
    the type of ``b``. None if that loses values."""
    if not isinstance(b, InputRef):
        return None
    if isinstance(a.type, (*t.STRINGS, *t.BINARIES)) and stored_alike(a.type, b.type):
        return a, b
    if a.type.with_nullable(True) == b.type.with_nullable(True):
        return a, b
    return (cast_expr(a, b.type.with_nullable(True)), b) if _holds(b.type, a.type) else None


def _holds(wide: t.LogicalType, narrow: t.LogicalType) -> bool:
    """Whether the type ``wide`` contains every value of the type ``narrow``."""
    match wide, narrow:
        case t.DecimalType(), _ if isinstance(narrow, EXACT):
            common = key_type(wide, narrow)
            return common is not None and (common.precision, common.scale) == (wide.precision, wide.scale)
        case t.TimeType(), t.TimeType():
            return narrow.precision <= wide.precision
        case t.TimestampType(), t.TimestampType():
            return narrow.precision <= wide.precision
        case t.TimestampLtzType(), t.TimestampLtzType():
            return narrow.precision <= wide.precision
    return False
