"""Sort, Top-N, deduplication and OVER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.plan.changelog import smallest_key
from penstock.plan.operators import PlannedOperator
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
    from penstock.plan.translation.translator import Translator


def sort(tr: Translator, node: n.Sort) -> PlannedOperator:
    inp = tr.visit(node.input)
    known = tr.analysis.of(node.input)
    if tr.analysis.final:
        spec: s.OperatorSpec = s.SortSpec(order=node.order, offset=node.offset, limit=node.limit)
        return tr.add(
            node, "sort", "Sort", spec, [tr.single(inp)], parallelism=1, keeps="all rows until the end"
        )
    first = node.order[0]
    if first.index in known.rowtimes and not first.descending and node.limit is None and not node.offset:
        spec = s.TemporalSortSpec(time=first.index, order=node.order[1:])
        return tr.add(
            node, "temporal-sort", "TemporalSort", spec, [tr.single(inp)], parallelism=1,
            keeps="rows until the watermark",
        )  # fmt: skip
    if node.limit is not None:
        spec = s.TopNSpec(
            partition=(), order=node.order, first=node.offset + 1, last=node.offset + node.limit,
            retracts=known.updating, emit_before=tr.modes.before(node),
            unique_keys=smallest_key(known.unique), ttl_ms=tr.ttl_ms,
        )  # fmt: skip
        return tr.add(
            node,
            "top-n",
            f"TopN({node.limit})",
            spec,
            [tr.single(inp)],
            parallelism=1,
            keeps="the first rows",
        )
    raise UnsupportedError(
        "ORDER BY of an unbounded query",
        expected="ORDER BY an ascending event-time column first, or with LIMIT",
        remedy="add LIMIT, or sort what a bounded source gives",
    )


def top_n(tr: Translator, node: n.TopN) -> PlannedOperator:
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
        return tr.add(
            node, "deduplicate", f"Deduplicate({dedup.keep})", dedup, [source], parallelism=parallelism,
            hashed=spread or None,
            keeps="one row per key" + (" until its window ends" if by_window else tr.ttl_words()),
        )  # fmt: skip
    spec = s.TopNSpec(
        partition=keys, order=order, first=node.first, last=node.last, rank=node.rank,
        rank_column=node.rank_column, retracts=known.updating, emit_before=tr.modes.before(node),
        unique_keys=smallest_key(known.unique), window=node.window, ttl_ms=0 if by_window else tr.ttl_ms,
        fixed_order=len(order) == 1 and _fixed_width(node.input.schema.types[order[0].index]),
    )  # fmt: skip
    return tr.add(
        node, "top-n", f"TopN({node.rank} <= {node.last})", spec, [source], parallelism=parallelism,
        hashed=spread or None,
        keeps=f"{node.last} rows per key" + (" until its window ends" if by_window else tr.ttl_words()),
    )  # fmt: skip


def _deduplicates(tr: Translator, node: n.TopN, known: object) -> bool:
    times = known.rowtimes | known.proctimes  # type: ignore[attr-defined]
    return (
        node.first == node.last == 1
        and node.rank == "row_number"
        and not node.rank_column
        and len(node.order) == 1
        and node.order[0].index in times
        and bool(node.partition)
        and not known.updating  # type: ignore[attr-defined]
    )


def over(tr: Translator, node: n.Over) -> PlannedOperator:
    known = tr.analysis.of(node.input)
    if known.updating and not tr.analysis.final:
        raise UnsupportedError("OVER on an updating input", expected="an append-only input")
    ranking = [c.function for c in node.aggregates if c.function in ("ROW_NUMBER", "RANK", "DENSE_RANK")]
    if ranking:
        raise UnsupportedError(
            f"{ranking[0]} that is not bounded by a condition",
            expected=f"WHERE rank <= n around {ranking[0]}() OVER (…), one ranking function alone",
            remedy="filter on it in an outer query: SELECT * FROM (SELECT *, ROW_NUMBER() OVER (…) AS r …) "
            "WHERE r <= 10",
        )
    times = known.rowtimes | known.proctimes
    if not tr.analysis.final and (not node.order or node.order[0].index not in times):
        raise UnsupportedError(
            "OVER that is not ordered by time over an unbounded input",
            expected="ORDER BY an event-time column in OVER",
            remedy="order by the time attribute, or filter on ROW_NUMBER() <= n for a Top-N",
        )
    source, parallelism = tr.keyed(tr.visit(node.input), node.partition)
    spec = s.OverSpec(
        partition=node.partition, order=node.order, aggregates=node.aggregates, frame=node.frame,
        preceding=node.preceding, ttl_ms=tr.ttl_ms,
    )  # fmt: skip
    return tr.add(
        node, "over", "OverAggregate", spec, [source], parallelism=parallelism, hashed=node.partition or None,
        keeps="rows of the frame per key",
    )  # fmt: skip


def _fixed_width(type_: LogicalType) -> bool:
    """Whether its columns are plain arrays (see ``types.column``), RAW apart."""
    if isinstance(type_, DecimalType):
        return type_.precision <= MAX_UNSCALED_INT64_PRECISION
    return isinstance(type_, (*INTEGERS, *TIMESTAMPS, BooleanType, DateType, DoubleType, FloatType, TimeType))
