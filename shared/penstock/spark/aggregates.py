"""Compiles grouped and windowed aggregation to Spark's own where both engines give the same results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.spark.frames import Frame, col, micros
from penstock.spark.graph import TIME
from penstock.spark.stateless import checked_time, window_column, with_windows
from penstock.spark.typemap import column_names, spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from penstock.functions.expr import AggregateCall
    from penstock.jobgraph import specs as s
    from penstock.types.logical import LogicalType, Schema

_ORDERED = (
    t.BooleanType, *t.INTEGERS, t.DecimalType, *t.STRINGS, t.DateType, t.TimeType, *t.TIMESTAMPS, *t.INTERVALS,
    t.FloatType, t.DoubleType,
)  # fmt: skip
_UNGROUPABLE = (t.MapType, t.MultisetType, t.RawType)
#: The largest precision of a DECIMAL whose sum in Spark, with ten more digits, still fits.
_SUMMABLE_PRECISION = 28


@dataclass(frozen=True)
class Part:
    """An aggregate call in two steps. ``partials``: Spark's aggregates over the group; ``final``: makes the
    result from the names of their columns."""

    partials: tuple[Column, ...]
    final: Any


def native_aggregates(
    calls: Sequence[AggregateCall], columns: Sequence[Column], types: Sequence[LogicalType]
) -> list[Part] | None:
    """The calls as Spark's aggregates; None if Spark has no equivalent of one of them."""
    out = []
    for call in calls:
        made = _native(call, columns, types)
        if made is None:
            return None
        out.append(made)
    return out


def _native(call: AggregateCall, columns: Sequence[Column], types: Sequence[LogicalType]) -> Part | None:
    function = call.function.upper()
    if call.python is not None or call.constants:
        return None
    args = [columns[a] for a in call.args]
    kinds = [types[a] for a in call.args]
    if any(isinstance(k, _UNGROUPABLE) for k in kinds) and call.distinct:
        return None
    result = spark_type(call.type)
    kept = None if call.filter is None else F.coalesce(columns[call.filter], F.lit(False))

    def chosen(value: Column) -> Column:
        return value if kept is None else F.when(kept, value)

    def plain(value: Column) -> Part:
        return Part((value,), lambda name: col(name).cast(result))

    if function == "COUNT":
        if not args:
            return plain(F.count(F.lit(1)) if kept is None else F.count(F.when(kept, F.lit(1))))
        if len(args) > 1:
            return None
        value = chosen(args[0])
        if isinstance(kinds[0], t.NullType):
            return None
        return plain(F.count_distinct(value) if call.distinct else F.count(value))
    if len(args) != 1:
        return None
    (value,), (kind,) = args, kinds
    if function in ("MIN", "MAX") and isinstance(kind, _ORDERED):
        if isinstance(kind, (t.FloatType, t.DoubleType)):
            value = value + F.lit(0.0).cast(spark_type(kind))  # −0.0 is 0.0, as in our accumulators
        return plain(F.min(chosen(value)) if function == "MIN" else F.max(chosen(value)))
    if function in ("SUM", "$SUM0", "SUM0", "AVG"):
        return _sum(function, chosen(value), kind, call, result)
    return None


def _sum(function: str, value: Column, kind: LogicalType, call: AggregateCall, result: Any) -> Part | None:
    sum_of = F.sum_distinct if call.distinct else F.sum
    count_of = F.count_distinct if call.distinct else F.count
    if isinstance(kind, t.INTEGERS):
        value = value.cast("bigint")
    elif isinstance(kind, (t.FloatType, t.DoubleType)):
        value = value.cast("double")
    elif isinstance(kind, t.DecimalType) and kind.precision <= _SUMMABLE_PRECISION and function != "AVG":
        pass
    else:
        return None
    total = sum_of(value)
    if function == "SUM":
        return Part((total,), lambda name: col(name).cast(result))
    if function in ("$SUM0", "SUM0"):
        return Part((total,), lambda name: F.coalesce(col(name).cast(result), F.lit(0).cast(result)))
    if isinstance(kind, t.INTEGERS):
        # Our average of integers rounds towards zero, as Java divides; Spark's own average is a DOUBLE.
        return Part(
            (total, count_of(value)), lambda name, other: F.expr(f"`{name}` div `{other}`").cast(result)
        )
    return Part((total, count_of(value)), lambda name, other: (col(name) / col(other)).cast(result))


def grouped(
    frame: Frame,
    keys: Sequence[tuple[str, Column]],
    parts: Sequence[Part],
    rows: Any = None,
) -> tuple[Any, list[Column]]:
    """(grouped DataFrame with the keys by name, result columns of the parts)."""
    df = frame.df if rows is None else rows
    aliased, results = [], []
    for i, part in enumerate(parts):
        names = [f"__a{i}_{j}" for j in range(len(part.partials))]
        aliased += [p.alias(n) for p, n in zip(part.partials, names, strict=True)]
        results.append(part.final(*names))
    named = [c.alias(n) for n, c in keys]
    if not aliased:
        return df.select(*named).distinct(), results
    return df.groupBy(*named).agg(*aliased), results


def group_aggregate(spec: s.GroupAggregateSpec, frame: Frame, output: Schema) -> Frame | None:
    """The aggregation as Spark's own; None if Spark has none with the same results."""
    types = frame.schema.types
    if any(isinstance(types[k], _UNGROUPABLE) for k in spec.keys):
        return None
    parts = native_aggregates(spec.aggregates, frame.columns(), types)
    if parts is None or not (spec.keys or parts):
        return None
    names = [f"__k{i}" for i in range(len(spec.keys))]
    df, results = grouped(frame, [(n, frame.column(k)) for n, k in zip(names, spec.keys, strict=True)], parts)
    return _shaped(df, [*(col(n) for n in names), *results], output)


def window_aggregate(spec: s.WindowAggregateSpec, frame: Frame, output: Schema) -> Frame | None:
    """The window aggregation as Spark's own; None if Spark has none with the same results."""
    types = frame.schema.types
    window = spec.window
    if any(isinstance(types[k], _UNGROUPABLE) for k in spec.keys):
        return None
    if spec.windowed_input is None and window.time is None:
        return None  # Windows in processing time depend on the clock while the job runs.
    if native_aggregates(spec.aggregates, frame.columns(), types) is None:
        return None
    if spec.windowed_input is not None:
        return _over_windowed(spec, frame, output)
    if window.kind == "session":
        return _sessions(spec, frame, output)
    if window.kind not in ("tumble", "hop", "cumulate"):
        return None
    read = sorted({*spec.keys, *(a for c in spec.aggregates for a in (*c.args, *_filters(c)))})
    at = {c: i for i, c in enumerate(read)}
    type_ = _time_type(window, types)
    _, _, kept, rows = with_windows(frame, window, [frame.column(c) for c in read], type_)
    columns: list[Any] = [kept[at[c]] if c in at else None for c in range(len(types))]
    parts = native_aggregates(spec.aggregates, columns, types)
    assert parts is not None
    names = [f"__k{i}" for i in range(len(spec.keys))]
    keys = [(n, columns[k]) for n, k in zip(names, spec.keys, strict=True)]
    # Cumulating windows share their start, so the end tells them apart.
    carried = ("__we",) if window.kind != "cumulate" else ("__we", "__ws")
    df, results = grouped(frame, [*keys, *((n, col(n)) for n in carried)], parts, rows.df)
    ends = col("__we")
    starts = col("__ws") if window.kind == "cumulate" else ends - F.lit(window.size_us)
    return _with_window_columns(spec, df, names, results, starts, ends, output)


def _filters(call: AggregateCall) -> tuple[int, ...]:
    return () if call.filter is None else (call.filter,)


def _time_type(window: s.WindowSpec, types: Sequence[LogicalType]) -> LogicalType:
    assert window.time is not None
    return types[window.time] if window.time >= 0 else t.BigIntType()


def _over_windowed(spec: s.WindowAggregateSpec, frame: Frame, output: Schema) -> Frame:
    assert spec.windowed_input is not None
    types = frame.schema.types
    parts = native_aggregates(spec.aggregates, frame.columns(), types)
    assert parts is not None
    first, last = spec.windowed_input
    names = [f"__k{i}" for i in range(len(spec.keys))]
    keys = [(n, frame.column(k)) for n, k in zip(names, spec.keys, strict=True)]
    bounds = [("__ws", frame.column(first)), ("__we", frame.column(last))]
    df, results = grouped(frame, [*keys, *bounds], parts)
    start, end = micros(col("__ws"), types[first]), micros(col("__we"), types[last])
    return _with_window_columns(spec, df, names, results, start, end, output)


def _sessions(spec: s.WindowAggregateSpec, frame: Frame, output: Schema) -> Frame:
    """Aggregates over sessions: rows of a key share a session if their distance is at most the gap."""
    types = frame.schema.types
    window = spec.window
    assert window.time is not None
    raw = col(TIME) if window.time == -1 else micros(frame.column(window.time), types[window.time])
    rows = frame.df.select(*frame.columns(), checked_time(raw).alias("__at"))
    key_columns = [frame.column(k) for k in spec.keys]
    order = Window.partitionBy(*key_columns).orderBy("__at")
    previous = F.lag("__at").over(order)
    gap = F.lit(window.gap_us).cast("bigint")
    starts = F.when(previous.isNull() | (col("__at") - previous > gap), F.lit(1)).otherwise(F.lit(0))
    rows = rows.withColumn("__new", starts)
    rows = rows.withColumn("__session", F.sum("__new").over(order))
    parts = native_aggregates(spec.aggregates, frame.columns(), types)
    assert parts is not None
    bounds = Part((F.min("__at"), F.max("__at")), lambda low, high: (col(low), col(high) + gap))
    names = [f"__k{i}" for i in range(len(spec.keys))]
    keys = [(n, c) for n, c in zip(names, key_columns, strict=True)]
    df, results = grouped(frame, [*keys, ("__session", col("__session"))], [*parts, bounds], rows)
    bounds_of: Any = results.pop()
    starts_of, ends_of = bounds_of
    return _with_window_columns(spec, df, names, results, starts_of, ends_of, output)


def _with_window_columns(
    spec: s.WindowAggregateSpec,
    df: Any,
    names: Sequence[str],
    results: Sequence[Column],
    start: Column,
    end: Column,
    output: Schema,
) -> Frame:
    first = len(spec.keys) + len(spec.aggregates)
    windows = [
        window_column(which, start, end, type_)
        for which, type_ in zip(spec.window_columns, output.types[first:], strict=True)
    ]
    return _shaped(df, [*(col(n) for n in names), *results, *windows], output)


def _shaped(df: Any, columns: Sequence[Column], output: Schema) -> Frame:
    named = [c.alias(n) for c, n in zip(columns, column_names(output), strict=True)]
    return Frame(df.select(*named), output)
