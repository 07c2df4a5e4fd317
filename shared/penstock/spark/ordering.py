"""Compiles sort, limit, Top-N and deduplication to Spark's own. The order of arrival breaks ties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from penstock.spark.frames import Frame, col, micros
from penstock.spark.graph import ARRIVAL
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from penstock.jobgraph import specs as s
    from penstock.jobgraph.specs import SortKey
    from penstock.types.logical import Schema

_UNSORTABLE = (t.MapType, t.MultisetType, t.RawType, t.RowType, t.ArrayType)


def sort_columns(order: Sequence[SortKey], frame: Frame) -> list[Column] | None:
    """The sort keys as Spark's ordering; None if Spark orders a type in another way than we do."""
    out = []
    for key in order:
        if isinstance(frame.schema.types[key.index], _UNSORTABLE):
            return None
        value = frame.column(key.index)
        if key.descending:
            out.append(value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last())
        else:
            out.append(value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last())
    return out


def _arrival(frame: Frame, *, last_first: bool = False) -> list[Column]:
    if not frame.arrival:
        return []
    return [col(ARRIVAL).desc() if last_first else col(ARRIVAL).asc()]


def sort(spec: s.SortSpec, frame: Frame, output: Schema) -> Frame | None:
    """The sort as Spark's own; None if Spark has no such order."""
    order = sort_columns(spec.order, frame)
    if order is None:
        return None
    df = frame.df.orderBy(*order, *_arrival(frame))
    return Frame(_cut(df, spec.offset, spec.limit), frame.schema, frame.time, frame.arrival).renamed(output)


def final_rows(spec: s.FinalRowsSpec, frame: Frame, output: Schema) -> Frame:
    """The rows as they are: Spark's own operators take no row back."""
    return frame.renamed(output)


def temporal_sort(spec: s.TemporalSortSpec, frame: Frame, output: Schema) -> Frame | None:
    """The sort by event time as Spark's own; None if Spark has no such order."""
    rest = sort_columns(spec.order, frame)
    if rest is None:
        return None
    df = frame.df.orderBy(frame.column(spec.time).asc(), *rest, *_arrival(frame))
    return Frame(df, frame.schema, frame.time, frame.arrival).renamed(output)


def limit(spec: s.LimitSpec, frame: Frame, output: Schema) -> Frame:
    """OFFSET and LIMIT in order of arrival."""
    df = frame.df.orderBy(*_arrival(frame)) if frame.arrival else frame.df
    return Frame(_cut(df, spec.offset, spec.limit), frame.schema, frame.time, frame.arrival).renamed(output)


def _cut(df, offset: int, count: int | None):  # type: ignore[no-untyped-def]
    if offset:
        df = df.offset(offset)
    return df if count is None else df.limit(count)


def top_n(spec: s.TopNSpec, frame: Frame, output: Schema) -> Frame | None:
    """The Top-N as a window function of Spark; None if Spark has no such order."""
    order = sort_columns(spec.order, frame)
    keys = [*spec.partition, *(k for k in spec.window or () if k not in spec.partition)]
    if order is None or any(isinstance(frame.schema.types[k], _UNSORTABLE) for k in keys):
        return None
    by_row = spec.rank == "row_number"
    over = Window.partitionBy(*[frame.column(k) for k in keys]).orderBy(
        *order, *(_arrival(frame) if by_row else [])
    )
    rank = {"row_number": F.row_number, "rank": F.rank, "dense_rank": F.dense_rank}[spec.rank]()
    rows = frame.df.withColumn("__rank", rank.over(over))
    kept = rows.filter((col("__rank") >= spec.first) & (col("__rank") <= spec.last))
    columns = frame.columns()
    if spec.rank_column:
        columns.append(col("__rank").cast("bigint"))
    return Frame(kept, frame.schema, frame.time, frame.arrival).select(output, columns)


def deduplicate(spec: s.DeduplicateSpec, frame: Frame, output: Schema) -> Frame | None:
    """The deduplication as a window function of Spark; None if Spark cannot partition by a key."""
    keys = [*spec.keys, *(spec.window or ())]
    if any(isinstance(frame.schema.types[k], _UNSORTABLE) for k in keys):
        return None
    last = spec.keep == "last"
    order = []
    if spec.time is not None:
        at = micros(frame.column(spec.time), frame.schema.types[spec.time])
        order.append(at.desc() if last else at.asc())
    order += _arrival(frame, last_first=last)
    if not order:
        return None
    over = Window.partitionBy(*[frame.column(k) for k in keys]).orderBy(*order)
    rows = frame.df.withColumn("__rank", F.row_number().over(over)).filter(col("__rank") == 1).drop("__rank")
    return Frame(rows, frame.schema, frame.time, frame.arrival).renamed(output)
