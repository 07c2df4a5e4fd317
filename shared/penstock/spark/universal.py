"""Runs our own operators within Spark, for every operator without an equivalent in Spark.

This is the part in Spark's driver; ``drive`` has the part on executors. ``stateless`` runs an operator over
the partitions as they are. ``keyed`` brings the rows of a key into one partition (``__input`` tells several
inputs apart), sorts each partition by event time, input and arrival, and runs the operator over it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F

from penstock.config import is_batch
from penstock.jobgraph import specs as s
from penstock.spark.drive import MARKER, runner
from penstock.spark.frames import Frame, col, micros, typed_null
from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.partition_program import INPUT, ORDER, TAG, JobContext, Program, Step
from penstock.spark.typemap import column_names, struct_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from penstock.jobgraph.specs import Spec
    from penstock.spark.graph import Node


def stateless(
    node: Node, frame: Frame, job: JobContext, kept: list[DataFrame] | None = None
) -> dict[str | None, Frame]:
    """The outputs (by tag) of an operator that keeps no state. ``kept``: collects the frames that are
    persisted; None: nothing is persisted."""
    program = Program(
        (step_of(node),), job, timed=frame.time, out_timed=node.wants_time, tags=read_tags(node)
    )
    if frame.arrival and node.spec.appends_columns:
        return {None: _with_arrival(node, frame, program)}
    return _mapped(node, positional(frame), program, kept)


def _with_arrival(node: Node, frame: Frame, program: Program) -> Frame:
    """Runs an operator that appends columns to its input's. ``__arrival`` goes through as one more input
    column, the last one."""
    (step,) = program.steps
    at = len(frame.schema)
    column = t.Field("arrival", t.BigIntType())
    fields = (*node.output.fields[:at], column, *node.output.fields[at:])
    step = replace(step, inputs=(t.Schema((*frame.schema.fields, column)),), output=t.Schema(fields))
    program = replace(program, steps=(step,))
    names, types = program.layout()
    out = positional(frame, ARRIVAL).mapInArrow(runner(program), struct_type(types, names))
    shown = [n for i, n in enumerate(names) if i != at][: len(node.output)]
    columns = [col(a).alias(b) for a, b in zip(shown, column_names(node.output), strict=True)]
    hidden = [col(TIME)] if program.out_timed else []
    rows = out.select(*columns, *hidden, col(names[at]).alias(ARRIVAL))
    return Frame(rows, node.output, program.out_timed, True).with_hidden(
        time=node.wants_time, arrival=node.wants_arrival
    )


def keyed(
    node: Node, frames: Sequence[Frame], job: JobContext, kept: list[DataFrame] | None = None
) -> dict[str | None, Frame]:
    """The outputs (by tag) of a keyed operator that our runtime runs within Spark, partition by partition."""
    spec = node.spec
    orders = [_time_order(spec.event_order(i), f) for i, f in enumerate(frames)]
    ordered = any(o is not None for o in orders)
    timed = any(f.time for f in frames)
    keys = [spec.meeting_keys(i) for i in range(len(frames))]
    # An aggregate without keys gives one row even without input. Spark would not call it for an empty
    # partition, so the partition gets a marker row.
    marked = isinstance(spec, s.GroupAggregateSpec) and not spec.keys
    rows = _side_by_side(frames, orders if ordered else None, keys, timed=timed, marked=marked)
    spread = [f"__k{i}" for i in range(len(keys[0]))]
    hashable = all(
        not isinstance(f.schema.types[k], (t.ArrayType, t.MapType, t.MultisetType, t.RowType, t.RawType))
        for f, ks in zip(frames, keys, strict=True)
        for k in ks
    )
    same = len({len(k) for k in keys}) == 1
    rows = rows.repartition(*[col(k) for k in spread]) if spread and hashable and same else rows.coalesce(1)
    batch = is_batch(job.config)
    sorting: list[Column] = []
    if batch and isinstance(spec, s.KeyedProcessSpec) and spec.kind == "broadcast-process":
        sorting.append(col(INPUT).desc())  # The broadcast side is read to its end first.
    if ordered:
        sorting.append(col(ORDER).asc_nulls_first())
    if len(frames) > 1:
        sorting.append(col(INPUT))
    if any(f.arrival for f in frames):
        sorting.append(col(ARRIVAL))
    if sorting:
        rows = rows.sortWithinPartitions(*sorting)
    rows = rows.drop(ARRIVAL, *spread)
    program = Program(
        (step_of(node),), job, ordered=ordered, timed=timed, out_timed=node.wants_time, tags=read_tags(node),
        compact=spec.compaction(), exact_timers=isinstance(spec, s.KeyedProcessSpec) and ordered and not batch, marked=marked,
    )  # fmt: skip
    return _mapped(node, rows, program, kept)


def positional(frame: Frame, *more: str) -> DataFrame:
    """The columns for ``mapInArrow``, which accepts no name with a dot, then the hidden columns ``more``,
    then ``__time``."""
    columns = [*frame.columns(), *(col(name) for name in more)]
    named = [c.alias(f"c{i}") for i, c in enumerate(columns)]
    # One column must stay: an Arrow batch without columns would lose its number of rows.
    named = named or [F.lit(None).cast("boolean").alias("c0")]
    return frame.df.select(*named, *([col(TIME)] if frame.time else []))


def step_of(node: Node, *, keep: bool = False) -> Step:
    """The node as a step of a program. ``keep``: with the spec as it was planned, for an unbounded job."""
    inputs = tuple(node.input_schema(i) for i in range(len(node.inputs)))
    return Step(
        node.spec if keep else final_spec(node.spec),
        node.node.uid,
        node.name,
        inputs,
        node.output,
        dict(node.node.side_outputs),
    )


def final_spec(spec: Spec) -> Spec:
    """The spec for a batch job, whose result is the rows that remain at the end: with old rows of updates,
    and without a time to live."""
    spec = spec.own()
    changes: dict[str, Any] = {}
    if hasattr(spec, "emit_before"):
        changes["emit_before"] = True
    if hasattr(spec, "ttl_ms"):
        changes["ttl_ms"] = 0
    if isinstance(spec, s.GroupAggregateSpec):
        changes["bounded_final"] = True
    return msgspec.structs.replace(spec, **changes) if changes else spec


def read_tags(node: Node) -> tuple[str, ...]:
    """The tags of the side outputs that some operator reads."""
    tags = {e.tag for c, i in node.consumers for e in c.inputs[i] if e.source is node}
    return tuple(sorted(tag for tag in tags if tag is not None))


def _mapped(
    node: Node, rows: DataFrame, program: Program, kept: list[DataFrame] | None
) -> dict[str | None, Frame]:
    names, types = program.layout()
    out = rows.mapInArrow(runner(program), struct_type(types, names))
    return split_outputs(node, out, program, kept)


def split_outputs(
    node: Node, out: DataFrame, program: Program, kept: list[DataFrame] | None = None
) -> dict[str | None, Frame]:
    """Splits the output of a program into main and side outputs. With ``kept`` the program runs once for all
    of them."""
    time = program.out_timed
    hidden = [col(TIME)] if time else []
    frames: dict[str | None, Frame] = {}
    if not program.tags:
        frames[None] = Frame(out, node.output, time)
    else:
        if kept is not None:
            out = out.persist()
            kept.append(out)
        main = [col(n) for n in column_names(node.output)]
        frames[None] = Frame(out.filter(col(TAG) == 0).select(*main, *hidden), node.output, time)
        for number, tag in enumerate(program.tags):
            schema = node.node.side_outputs[tag]
            columns = [col(f"__s{number}_{i}").alias(n) for i, n in enumerate(column_names(schema))]
            side = out.filter(col(TAG) == number + 1).select(*columns, *hidden)
            frames[tag] = Frame(side, schema, time)
    return {tag: f.with_hidden(time=node.wants_time, arrival=node.wants_arrival) for tag, f in frames.items()}


def _side_by_side(
    frames: Sequence[Frame],
    orders: list[str | int | None] | None,
    keys: Sequence[tuple[int, ...]],
    *,
    timed: bool,
    marked: bool,
) -> DataFrame:
    """The rows of all inputs in one frame that has the columns of every input. The columns of other inputs
    are NULL."""
    arrival = any(f.arrival for f in frames)
    parts = []
    for index, frame in enumerate(frames):
        columns = []
        for other, source in enumerate(frames):
            for i, type_ in enumerate(source.schema.types):
                value = frame.column(i) if other == index else typed_null(type_)
                columns.append(value.alias(f"c{other}_{i}"))
        if len(frames) > 1 or marked:
            columns.append(F.lit(index).cast("tinyint").alias(INPUT))
        if orders is not None:
            columns.append(_order(frame, orders[index]).alias(ORDER))
        if timed:
            columns.append((col(TIME) if frame.time else F.lit(None).cast("bigint")).alias(TIME))
        for i, key in enumerate(keys[index]):
            columns.append(_spread(frame, key).alias(f"__k{i}"))
        if arrival:
            known = col(ARRIVAL) if frame.arrival else F.monotonically_increasing_id()
            columns.append(known.alias(ARRIVAL))
        parts.append(frame.df.select(*columns))
    if marked:
        first = parts[0]
        types = [(f.name, f.dataType) for f in first.schema.fields if f.name != INPUT]
        blank = {name: F.lit(None).cast(type_).alias(name) for name, type_ in types}
        blank[INPUT] = F.lit(MARKER).cast("tinyint").alias(INPUT)
        parts.append(first.sparkSession.range(1).select(*(blank[n] for n in first.columns)))
    return reduce(lambda a, b: a.unionAll(b), parts)


def _spread(frame: Frame, key: int) -> Column:
    """A key column as Spark hashes it, with 0.0 in place of −0.0."""
    value = frame.column(key)
    if isinstance(frame.schema.types[key], (t.FloatType, t.DoubleType)):
        return value + F.lit(0.0)
    return value


def _order(frame: Frame, order: str | int | None) -> Column:
    if order is None:
        return F.lit(None).cast("bigint")
    if isinstance(order, str):
        return col(TIME) if frame.time else F.lit(None).cast("bigint")
    return micros(frame.column(order), frame.schema.types[order])


def _time_order(order: str | int | None, frame: Frame) -> str | int | None:
    """The event order of an operator; None if it is a column of another type, which OVER allows."""
    if isinstance(order, int) and not isinstance(frame.schema.types[order], t.TIMESTAMPS):
        return None
    return order
