"""Reads state that was written with another type: widening conversions, and rows by field name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.record_classes import maker, taken_apart
from penstock.errors import SpecError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Convert = Callable[[Any], Any]

_RANKS = {t.TinyIntType: 1, t.SmallIntType: 2, t.IntType: 3, t.BigIntType: 4}


def converter(
    stored: t.LogicalType, declared: t.LogicalType, where: str, renamed: Mapping[str, str] | None = None
) -> Convert | None:
    """A function from stored to declared value (never called with None), or None if the values stay as they
    are.

    Allowed are: integer and FLOAT → DOUBLE widening, a higher precision of DECIMAL with the same scale,
    longer strings, and rows with fields added (NULL), dropped, reordered, widened or ``renamed`` (declared
    name → stored name). Otherwise raises SpecError, which names the state (``where``) and both types.
    """
    stored, declared = stored.with_nullable(True), declared.with_nullable(True)
    if stored == declared:
        return None
    match stored, declared:
        case (t.FloatType() | t.DoubleType(), t.DoubleType()):
            return None
        case (t.CharType() | t.VarCharType(), t.CharType() | t.VarCharType()):
            if stored.length <= declared.length:
                return None
        case (t.BinaryType() | t.VarBinaryType(), t.BinaryType() | t.VarBinaryType()):
            if stored.length <= declared.length:
                return None
        case (t.DecimalType(scale=a, precision=p), t.DecimalType(scale=b, precision=q)):
            if a == b and p <= q:
                return None
        case (t.TimestampType(precision=p), t.TimestampType(precision=q)):
            if p <= q:
                return None
        case (t.TimestampLtzType(precision=p), t.TimestampLtzType(precision=q)):
            if p <= q:
                return None
        case (t.ArrayType(element=a), t.ArrayType(element=b)):
            inner = converter(a, b, where, renamed)
            return None if inner is None else lambda v: [None if x is None else inner(x) for x in v]
        case (t.RowType(), t.RowType()):
            return _row(stored, declared, where, renamed or {})
        case (t.TinyIntType() | t.SmallIntType() | t.IntType(), _):
            if _RANKS[type(stored)] < _RANKS.get(type(declared), 0):
                return None
            if isinstance(declared, t.DoubleType):
                return float
    raise SpecError(
        "state of another type cannot be read",
        expected=f"{declared} (declared) or a type that widens to it",
        got=f"{stored} in the snapshot",
        where=where,
        remedy="declare the stored type, or give the new state another name",
    )


def _row(stored: t.RowType, declared: t.RowType, where: str, renamed: Mapping[str, str]) -> Convert:
    old = {f.name: (i, f.type) for i, f in enumerate(stored.fields)}
    make = maker(declared.fields)
    steps: list[tuple[int | None, Convert | None]] = []
    for field in declared.fields:
        name = field.name if field.name in old else renamed.get(field.name)
        if name not in old:
            if not field.type.nullable:
                raise SpecError(
                    f"state row gets a new field '{field.name}' that may not be NULL",
                    expected="a nullable field",
                    got=str(field.type),
                    where=where,
                )
            steps.append((None, None))
            continue
        index, type_ = old[name]
        steps.append((index, converter(type_, field.type, f"{where}, field '{field.name}'")))

    def convert(row: Any) -> Any:
        row = taken_apart(row)
        values = []
        for index, inner in steps:
            value = None if index is None else row[index]
            values.append(value if inner is None or value is None else inner(value))
        return make(values)

    return convert
