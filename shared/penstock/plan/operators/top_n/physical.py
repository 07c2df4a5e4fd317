"""Translates a Top-N; a Top-N of one row is a deduplication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s
from penstock.plan.changelog import keys_in_order, smallest_key
from penstock.plan.operator_graph import fetched_late
from penstock.plan.state_size import a_row
from penstock.types.logical import (
    INTEGERS,
    MAX_UNSCALED_INT64_PRECISION,
    TIMESTAMPS,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LogicalType,
    TimeType,
)

if TYPE_CHECKING:
    from penstock.plan.operator_graph import Note, PlannedOperator
    from penstock.plan.operators.top_n.node import TopN
    from penstock.plan.properties import Properties
    from penstock.plan.translation import Translator
    from penstock.types.logical import Schema


def top_n(tr: Translator, node: TopN) -> PlannedOperator:
    """The operator of a Top-N: a deduplication if one is enough."""
    known = tr.analysis.of(node.input)
    by_window = node.window is not None
    keys = tuple(k for k in node.partition if not by_window or k not in node.window)  # type: ignore[operator]
    spread = keys or ((node.window[1],) if by_window else ())  # type: ignore[index]
    source, parallelism = tr.keyed(tr.visit(node.input), spread)
    order = node.order
    if _deduplicates(tr, node, known):
        event = order[0].index in known.rowtimes
        dedup = s.DeduplicateSpec(
            keys=keys, keep="last" if order[0].descending else "first", time=order[0].index if event else None,
            emit_before=tr.modes.before(node), window=node.window, ttl_ms=0 if by_window else tr.ttl_ms,
        )  # fmt: skip
        kept, size = "one row per key", f" ({a_row(node.input.schema)})"
        if not by_window and not dedup.emit_before:
            # No consumer needs the replaced row, so the state does not keep the rows themselves.
            kept = "keys" if dedup.keep == "first" and not event else "the time of one row per key"
            size = ""
        return tr.add(
            node, "deduplicate", f"Deduplicate({dedup.keep})", dedup, [source], parallelism=parallelism,
            hashed=spread or None,
            keeps=kept + (" until its window ends" if by_window else tr.ttl_words()) + size,
            notes=notes_of(dedup, node.input.schema),
        )  # fmt: skip
    spec = s.TopNSpec(
        partition=keys, order=order, first=node.first, last=node.last, rank=node.rank,
        rank_column=node.rank_column, retracts=known.updating, emit_before=tr.modes.before(node),
        unique_keys=smallest_key(keys_in_order(node.input, tr.analysis)), window=node.window, ttl_ms=0 if by_window else tr.ttl_ms,
        fixed_order=len(order) == 1 and _fixed_width(node.input.schema.types[order[0].index]),
    )  # fmt: skip
    return tr.add(
        node, "top-n", f"TopN({node.rank} <= {node.last})", spec, [source], parallelism=parallelism,
        hashed=spread or None,
        keeps=f"{node.last} rows per key" + (" until its window ends" if by_window else tr.ttl_words()) + f" ({a_row(node.input.schema)})",
        notes=notes_of(spec, node.input.schema),
    )  # fmt: skip


def _deduplicates(tr: Translator, node: TopN, known: Properties) -> bool:
    times = known.rowtimes | known.proctimes
    return (
        node.first == node.last == 1
        and node.rank == "row_number"
        and not node.rank_column
        and len(node.order) == 1
        and node.order[0].index in times
        and bool(node.partition)
        and not known.updating
    )


def _fixed_width(type_: LogicalType) -> bool:
    """Whether columns of this type are plain arrays (see ``types.column``) and the type is not RAW."""
    if isinstance(type_, DecimalType):
        return type_.precision <= MAX_UNSCALED_INT64_PRECISION
    return isinstance(type_, (*INTEGERS, *TIMESTAMPS, BooleanType, DateType, DoubleType, FloatType, TimeType))


def notes_of(spec: s.TopNSpec | s.DeduplicateSpec, given: Schema) -> tuple[Note, ...]:
    """EXPLAIN's notes on the operator, whose input has the columns ``given``."""
    notes: list[Note] = []
    window = spec.window or ()
    if isinstance(spec, s.DeduplicateSpec):
        used = {*spec.keys, *((spec.time,) if spec.time is not None else ()), *window}
        if spec.time is not None:
            notes.append(("recognised", f"ROW_NUMBER() = 1 by time is the {spec.keep} row per key"))
    else:
        used = {*spec.partition, *(k.index for k in spec.order), *window}
        if spec.window is not None:
            notes.append(("bounded", "the first rows of a window are dropped when it ends"))
    return (*notes, *fetched_late(given.names, used))
