"""Which types go into which without a CAST: into a table's column, a function's parameter."""

from __future__ import annotations

from penstock.types import logical as t


def assignable(have: t.LogicalType, want: t.LogicalType) -> bool:
    """Whether INSERT casts implicitly: within numbers, strings, binaries, timestamps."""
    numbers = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
    for family in (numbers, t.STRINGS, t.BINARIES):
        if isinstance(have, family) and isinstance(want, family):
            return True
    if isinstance(have, t.NullType):
        return True
    if isinstance(have, (t.DateType, *t.TIMESTAMPS)) and isinstance(want, t.TIMESTAMPS):
        return True
    if isinstance(have, t.TimeType) and isinstance(want, t.TimeType):
        return True
    if isinstance(have, t.ArrayType) and isinstance(want, t.ArrayType):
        return assignable(have.element, want.element)
    if isinstance(have, t.MapType) and isinstance(want, t.MapType):
        return assignable(have.key, want.key) and assignable(have.value, want.value)
    if isinstance(have, t.RowType) and isinstance(want, t.RowType):
        return len(have.fields) == len(want.fields) and all(
            assignable(a.type, b.type) for a, b in zip(have.fields, want.fields, strict=True)
        )
    return have.with_nullable(True) == want.with_nullable(True)
