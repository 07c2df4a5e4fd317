"""Result types of aggregate and window functions, as Flink infers them.

The kernels are in ``state/aggregates.py``. A global aggregate over no rows is NULL, so its result is nullable
whatever its input. With GROUP BY (``grouped``) SUM, AVG, MIN and MAX are nullable only if the argument is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SqlError, nearest
from penstock.functions.inference import NUMERIC
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types.logical import LogicalType

    Infer = Callable[[Sequence[LogicalType], bool], LogicalType | None]

_BIGINT = t.BigIntType(nullable=False)
_JSON = t.VarCharType(2000, nullable=False)
_UNORDERED = (t.ArrayType, t.MapType, t.MultisetType, t.RowType, t.RawType, t.VariantType)
#: Alias -> name of the aggregate.
ALIASES = {"STDDEV": "STDDEV_SAMP", "VARIANCE": "VAR_SAMP"}


def _sum(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    if not isinstance(types[0], NUMERIC):
        return None
    out = types[0]
    if isinstance(out, t.DecimalType):
        out = t.DecimalType(t.MAX_DECIMAL_PRECISION, out.scale)
    return out.with_nullable(types[0].nullable or not grouped)


def _average(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    if not isinstance(types[0], NUMERIC):
        return None
    out = types[0]
    if isinstance(out, t.DecimalType):
        out = t.DecimalType(t.MAX_DECIMAL_PRECISION, max(6, out.scale))
    return out.with_nullable(types[0].nullable or not grouped)


def _deviation(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    out = _average(types, grouped)
    return None if out is None else out.with_nullable(True)


def _extreme(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    if isinstance(types[0], _UNORDERED):
        return None
    return types[0].with_nullable(types[0].nullable or not grouped)


def _first(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    return types[0].with_nullable(True)


def _listagg(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    return t.VarCharType() if all(isinstance(x, t.STRINGS) for x in types) else None


def _percentile(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    if not isinstance(types[0], NUMERIC):
        return None
    return t.ArrayType(t.DoubleType()) if isinstance(types[1], t.ArrayType) else t.DoubleType()


def _bigint(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    return _BIGINT


def _double(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    return t.DoubleType(nullable=False)


def _shifted(types: Sequence[LogicalType], grouped: bool) -> LogicalType | None:
    """LAG and LEAD: NOT NULL only with a default that is NOT NULL."""
    return types[0].with_nullable(types[0].nullable or len(types) < 3 or types[2].nullable)


#: name → (least, most number of arguments, inference)
_AGGREGATES: dict[str, tuple[int, int, Infer]] = {
    "COUNT": (0, 255, _bigint),
    "SUM": (1, 1, _sum),
    "AVG": (1, 1, _average),
    "MIN": (1, 1, _extreme),
    "MAX": (1, 1, _extreme),
    "STDDEV_POP": (1, 1, _deviation),
    "STDDEV_SAMP": (1, 1, _deviation),
    "VAR_POP": (1, 1, _deviation),
    "VAR_SAMP": (1, 1, _deviation),
    "FIRST_VALUE": (1, 1, _first),
    "LAST_VALUE": (1, 1, _first),
    "SINGLE_VALUE": (1, 1, _first),
    "LISTAGG": (1, 2, _listagg),
    "COLLECT": (1, 1, lambda types, grouped: t.MultisetType(types[0], nullable=False)),
    "ARRAY_AGG": (1, 1, lambda types, grouped: t.ArrayType(types[0])),
    "JSON_ARRAYAGG": (1, 1, lambda types, grouped: _JSON),
    "JSON_OBJECTAGG": (2, 2, lambda types, grouped: _JSON if isinstance(types[0], t.STRINGS) else None),
    "APPROX_COUNT_DISTINCT": (1, 1, _bigint),
    "PERCENTILE": (2, 3, _percentile),
}
#: Functions that need an OVER clause.
_WINDOW: dict[str, tuple[int, int, Infer]] = {
    "ROW_NUMBER": (0, 0, _bigint),
    "RANK": (0, 0, _bigint),
    "DENSE_RANK": (0, 0, _bigint),
    "NTILE": (1, 1, _bigint),
    "PERCENT_RANK": (0, 0, _double),
    "CUME_DIST": (0, 0, _double),
    "LAG": (1, 3, _shifted),
    "LEAD": (1, 3, _shifted),
}


def canonical_aggregate(name: str) -> str:
    """Upper case, aliases resolved (STDDEV → STDDEV_SAMP)."""
    name = name.upper()
    return ALIASES.get(name, name)


def is_aggregate(name: str) -> bool:
    """Whether ``name`` is an aggregate function (in any case)."""
    return canonical_aggregate(name) in _AGGREGATES


def is_window_function(name: str) -> bool:
    """Whether ``name`` needs an OVER clause (ROW_NUMBER, RANK, LAG …)."""
    return name.upper() in _WINDOW


def known_aggregates() -> list[str]:
    """The names of all aggregate and window functions, aliases included, sorted."""
    return sorted([*_AGGREGATES, *_WINDOW, *ALIASES])


def infer_aggregate(
    name: str,
    arg_types: Sequence[LogicalType],
    *,
    distinct: bool = False,
    grouped: bool = False,
    line: int = 0,
    column: int = 0,
) -> LogicalType:
    """The result type of ``name(arg_types)``.

    Raises:
        SqlError: there is no such aggregate, or it does not take these arguments.
    """
    where = f"line {line}, column {column}" if line else None
    canonical = canonical_aggregate(name)
    known = _AGGREGATES.get(canonical) or _WINDOW.get(canonical)
    if known is None:
        raise SqlError(
            f"unknown aggregate function {name}",
            got=name,
            where=where,
            remedy=nearest(name, known_aggregates()),
        )
    least, most, infer = known
    got = f"{canonical}({', '.join(str(x) for x in arg_types)})"
    if not least <= len(arg_types) <= most:
        raise SqlError(
            f"wrong number of arguments to {canonical}", expected=f"{least} to {most}", got=got, where=where
        )
    if distinct and not arg_types:
        raise SqlError(f"{canonical}(DISTINCT) needs an argument", got=got, where=where)
    if arg_types and isinstance(arg_types[0], t.NullType):
        raise SqlError(
            "illegal use of NULL", expected="a typed value", got=got, where=where, remedy="CAST(NULL AS …)"
        )
    result = infer(arg_types, grouped)
    if result is None:
        raise SqlError(
            f"cannot apply {canonical} to these arguments",
            expected=_expected(canonical),
            got=got,
            where=where,
        )
    return result


def _expected(name: str) -> str:
    if name in ("MIN", "MAX"):
        return f"{name}(a value of a type that has an order)"
    if name == "LISTAGG":
        return "LISTAGG(string[, separator])"
    return f"{name}(KEY string VALUE value)" if name == "JSON_OBJECTAGG" else f"{name}(number)"
