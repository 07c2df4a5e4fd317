"""Compiles joins and set operations to Spark's own where both engines give the same results."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.expressions import native
from penstock.spark.frames import Frame, col, micros
from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.typemap import column_names
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyspark.sql import Column, DataFrame

    from penstock.functions.expr import Expr
    from penstock.jobgraph import specs as s
    from penstock.types.logical import Schema

_KINDS = {
    "inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left_semi", "anti": "left_anti",
}  # fmt: skip
_UNJOINABLE = (t.MapType, t.MultisetType, t.RawType, t.FloatType, t.DoubleType, t.RowType, t.ArrayType)


def join(spec: s.JoinSpec, left: Frame, right: Frame, output: Schema) -> Frame | None:
    """The join as Spark's own; None if Spark has no equivalent of a key or of the condition."""
    if not _joinable(spec.left_keys, left) or not _joinable(spec.right_keys, right):
        return None
    a, b, ours, theirs = _renamed(left, right)
    if spec.strategy is not None:
        strategy, side = spec.strategy
        a, b = (a.hint(strategy), b) if side == "left" else (a, b.hint(strategy))
    parts = []
    flags = spec.null_safe or (False,) * len(spec.left_keys)
    for i, j, null_safe in zip(spec.left_keys, spec.right_keys, flags, strict=True):
        x, y = _same_type(ours[i], left.schema.types[i], theirs[j], right.schema.types[j])
        parts.append(x.eqNullSafe(y) if null_safe else x == y)
    if spec.interval is not None:
        at, bound, low, high = spec.interval
        from_ = micros(ours[at], left.schema.types[at])
        to = micros(theirs[bound], right.schema.types[bound])
        parts.append(to >= from_ + F.lit(low).cast("bigint"))
        parts.append(to <= from_ + F.lit(high).cast("bigint"))
    return _joined(spec.kind, spec.condition, left, right, (a, b, ours, theirs), parts, output)


def window_join(spec: s.WindowJoinSpec, left: Frame, right: Frame, output: Schema) -> Frame | None:
    """The window join as Spark's own; None if a key has a type that Spark cannot join by."""
    if not _joinable(spec.left_keys, left) or not _joinable(spec.right_keys, right):
        return None
    a, b, ours, theirs = _renamed(left, right)
    pairs = [*zip(spec.left_keys, spec.right_keys, strict=True)]
    pairs += [*zip(spec.left_window, spec.right_window, strict=True)]
    parts = []
    for i, j in pairs:
        x, y = _same_type(ours[i], left.schema.types[i], theirs[j], right.schema.types[j])
        parts.append(x == y)
    return _joined(spec.kind, spec.condition, left, right, (a, b, ours, theirs), parts, output)


def _joinable(keys: Sequence[int], frame: Frame) -> bool:
    return not any(isinstance(frame.schema.types[k], _UNJOINABLE) for k in keys)


def _same_type(a: Column, a_type: t.LogicalType, b: Column, b_type: t.LogicalType) -> tuple[Column, Column]:
    """Two key columns that Spark compares as we do. Spark itself widens a narrower integer, as our planner
    does."""
    if isinstance(a_type, t.TIMESTAMPS) and type(a_type) is not type(b_type):
        return micros(a, a_type), micros(b, b_type)
    return a, b


def _renamed(left: Frame, right: Frame) -> tuple[DataFrame, DataFrame, list[Column], list[Column]]:
    """Both sides with columns under different names. The hidden columns of the left side stay."""
    a = left.df.select(*[c.alias(f"l{i}") for i, c in enumerate(left.columns())], *left.hidden())
    b = right.df.select(*[c.alias(f"r{i}") for i, c in enumerate(right.columns())])
    ours = [col(f"l{i}") for i in range(len(left.schema))]
    theirs = [col(f"r{i}") for i in range(len(right.schema))]
    return a, b, ours, theirs


def _joined(
    kind: str,
    condition: Expr | None,
    left: Frame,
    right: Frame,
    sides: tuple[DataFrame, DataFrame, list[Column], list[Column]],
    parts: list[Any],
    output: Schema,
) -> Frame | None:
    a, b, ours, theirs = sides
    if condition is not None:
        residual = native(condition, [*ours, *theirs])
        if residual is None:
            return None
        parts.append(residual)
    on = reduce(lambda x, y: x & y, parts) if parts else None
    how = _KINDS[kind]
    if on is None:
        if how in ("inner", "left", "right", "full"):
            df = a.crossJoin(b) if how == "inner" else a.join(b, F.lit(True), how)
        else:
            df = a.join(b, F.lit(True), how)
    else:
        df = a.join(b, on, how)
    columns = ours if kind in ("semi", "anti") else [*ours, *theirs]
    named = [c.alias(n) for c, n in zip(columns, column_names(output), strict=True)]
    hidden = [col(n) for n, kept in ((TIME, left.time), (ARRIVAL, left.arrival)) if kept]
    return Frame(df.select(*named, *hidden), output, left.time, left.arrival)


def set_operation(spec: s.SetOperationSpec, left: Frame, right: Frame, output: Schema) -> Frame | None:
    """INTERSECT or EXCEPT as Spark's own; None for columns that Spark cannot compare."""
    if any(isinstance(x, (t.MapType, t.MultisetType, t.RawType)) for x in left.schema.types):
        return None
    a = left.with_hidden(time=False, arrival=False).renamed(output).df
    b = right.with_hidden(time=False, arrival=False).renamed(output).df
    if spec.kind == "intersect":
        df = a.intersectAll(b) if spec.all else a.intersect(b)
    else:
        df = a.exceptAll(b) if spec.all else a.subtract(b)
    return Frame(df, output)
