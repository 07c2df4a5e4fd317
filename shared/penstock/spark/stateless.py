"""Filters, projections, unions, grouping sets, window assignment: row by row."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.jobgraph import specs as s
from penstock.spark.expressions import all_native, native
from penstock.spark.frames import Frame, col, from_micros, micros
from penstock.spark.graph import ARRIVAL, TIME
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from penstock.functions.expr import Expr
    from penstock.types.logical import LogicalType, Schema

#: Flink's row time of a window: its end minus one millisecond.
ROWTIME_STEP_US = 1_000


def calc(spec: s.CalcSpec, frame: Frame, output: Schema) -> Frame | None:
    """The filter and the projections by Spark; None if an expression has no equivalent in Spark."""
    return projected(frame, spec.condition, spec.projections, output)


def projected(
    frame: Frame, condition: Expr | None, projections: Sequence[Expr] | None, output: Schema
) -> Frame | None:
    """The frame filtered and projected by Spark; None if an expression has no equivalent in Spark."""
    columns = frame.columns()
    if condition is not None:
        test = native(condition, columns)
        if test is None:
            return None
        frame = frame.over(frame.df.filter(test))
    if projections is None:
        return frame.renamed(output)
    made = all_native(projections, columns)
    return None if made is None else frame.select(output, made)


def union(frames: Sequence[Frame], output: Schema, *, time: bool, arrival: bool) -> Frame:
    """All rows of all inputs. In the order of arrival the inputs follow one another."""
    parts = [f.renamed(output).with_hidden(time=time, arrival=arrival) for f in frames]
    return Frame(reduce(lambda a, b: a.unionAll(b), (p.df for p in parts)), output, time, arrival)


def expand(spec: s.ExpandSpec, frame: Frame, output: Schema) -> Frame | None:
    """GROUPING SETS by Spark; None if an expression has no equivalent in Spark."""
    columns = frame.columns()
    parts = []
    for projections in spec.projections:
        made = all_native(projections, columns)
        if made is None:
            return None
        parts.append(frame.select(output, made))
    df = reduce(lambda a, b: a.unionAll(b), (p.df for p in parts))
    return Frame(df, output, frame.time, frame.arrival)


# -- windows ---------------------------------------------------------------------------------------


def _bigint(value: int) -> Column:
    return F.lit(value).cast("bigint")


def window_starts_ends(window: s.WindowSpec, at: Column) -> tuple[Column, Column]:
    """(array of starts, array of ends), in µs, of the windows that contain the time ``at`` (BIGINT µs). For
    tumbling windows both are plain columns."""
    size = window.size_us
    slide = window.slide_us or size
    if window.kind == "tumble":
        start = at - F.pmod(at - _bigint(window.offset_us), _bigint(size))
        return start, start + _bigint(size)
    if window.kind == "hop":
        count = -(-size // slide)
        last = at - F.pmod(at - _bigint(window.offset_us), _bigint(slide))
        starts = F.filter(
            F.sequence(last - _bigint((count - 1) * slide), last, _bigint(slide)),
            lambda x: x + _bigint(size) > at,
        )
        return starts, F.transform(starts, lambda x: x + _bigint(size))
    assert window.kind == "cumulate"
    start = at - F.pmod(at - _bigint(window.offset_us), _bigint(size))
    step_end = at - F.pmod(at - start, _bigint(slide)) + _bigint(slide)
    ends = F.sequence(step_end, start + _bigint(size), _bigint(slide))
    return F.transform(ends, lambda x: start), ends


def with_windows(
    frame: Frame, window: s.WindowSpec, keep: Sequence[Column], type_: LogicalType
) -> tuple[Column, Column, list[Column], Frame]:
    """(start µs, end µs, kept columns, frame); the frame has each row once for each of its windows."""
    if window.time == -1:
        at = checked_time(col(TIME))
    else:
        assert window.time is not None
        at = checked_time(micros(frame.column(window.time), type_))
    starts, ends = window_starts_ends(window, at)
    names = [f"__w{i}" for i in range(len(keep))]
    kept = [c.alias(n) for c, n in zip(keep, names, strict=True)]
    hidden = frame.hidden()
    if window.kind == "tumble":
        df = frame.df.select(*kept, *hidden, starts.alias("__ws"), ends.alias("__we"))
    else:
        pairs = F.arrays_zip(starts.alias("s"), ends.alias("e"))
        df = frame.df.select(*kept, *hidden, F.explode(pairs).alias("__w"))
        df = df.select(
            *[col(n) for n in names],
            *hidden,
            F.col("__w")["s"].alias("__ws"),
            F.col("__w")["e"].alias("__we"),
        )
    return (
        col("__ws"),
        col("__we"),
        [col(n) for n in names],
        Frame(df, frame.schema, frame.time, frame.arrival),
    )


def checked_time(at: Column) -> Column:
    """The row time. A NULL raises an error, as in Flink."""
    return F.coalesce(at, F.raise_error(F.lit(NULL_ROWTIME)).cast("bigint"))


#: The text by which ``errors.translated`` recognises the error.
NULL_ROWTIME = "PENSTOCK the row time is NULL"


def window_table(spec: s.WindowTableSpec, frame: Frame, output: Schema) -> Frame | None:
    """A window table function by Spark; None for sessions and processing time."""
    window = spec.window
    if window.time is None or window.kind not in ("tumble", "hop", "cumulate"):
        return None
    width = len(frame.schema)
    type_ = frame.schema.types[window.time] if window.time >= 0 else t.BigIntType()
    start, end, kept, rows = with_windows(frame, window, frame.columns(), type_)
    types = output.types[width:]
    made = [
        *kept, from_micros(start, types[0]), from_micros(end, types[1]),
        from_micros(end - F.lit(ROWTIME_STEP_US), types[2]),
    ]  # fmt: skip
    return rows.select(output, made)


def window_column(which: str, start: Column, end: Column, type_: LogicalType) -> Column:
    """The column "start", "end" or "time" of windows whose bounds are µs."""
    value = {"start": start, "end": end, "time": end - F.lit(ROWTIME_STEP_US)}[which]
    return from_micros(value, type_)


__all__ = [
    "ARRIVAL", "NULL_ROWTIME", "calc", "checked_time", "expand", "projected", "union", "window_column",
    "window_starts_ends", "window_table", "with_windows",
]  # fmt: skip


def unchanged(spec: s.OperatorSpec, frame: Frame, output: Schema) -> Frame:
    """The rows of an operator that has nothing to do on Spark."""
    return frame.renamed(output)
