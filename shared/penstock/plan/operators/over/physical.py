"""Translates OVER: results as rows come, or for all rows at the end of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.plan.state_size import a_row
from penstock.types.logical import INTEGERS, TIMESTAMPS, DateType, TimeType

if TYPE_CHECKING:
    from penstock.functions.expr import AggregateCall
    from penstock.jobgraph.specs import SortKey
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.over.node import Over
    from penstock.plan.translation import Translator

RANKS = {"ROW_NUMBER", "RANK", "DENSE_RANK"}
#: Functions that need later rows, or the number of all rows.
NEED_ALL_ROWS = {"LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"}
WINDOW_FUNCTIONS = RANKS | NEED_ALL_ROWS | {"LAG"}


def over(tr: Translator, node: Over) -> PlannedOperator:
    """The operator of OVER aggregates. Raises UnsupportedError if the input updates rows or OVER needs later
    rows, unless the job emits its results only after the end of bounded inputs."""
    known = tr.analysis.of(node.input)
    if known.updating and not tr.analysis.final:
        raise UnsupportedError(
            "OVER of rows that are updated",
            expected="an append-only input",
            got="an updating input",
            remedy="aggregate over windows before it, or bound the sources",
        )
    names = [c.function for c in node.aggregates]
    if tr.analysis.final:
        plain = not set(names) & WINDOW_FUNCTIONS and node.following == 0 and (node.preceding or 0) >= 0
        # Rows of an aggregation come after event time has ended: only an order by event time guarantees that
        # no earlier row follows.
        timed = bool(node.order) and node.order[0].index in known.rowtimes
        if known.updating or not plain or not timed or (node.frame == "range" and node.preceding):
            return _over_final(tr, node)
        return _over_running(tr, node, node.order)
    times = known.rowtimes | known.proctimes
    first = node.order[0] if node.order else None
    if first is None or first.index not in times or first.descending:
        raise UnsupportedError(
            "OVER that is not ordered by ascending time over an unbounded input",
            expected="ORDER BY an event-time or processing-time column in OVER",
            got="no ORDER BY" if first is None else f"ORDER BY {node.input.schema.names[first.index]}",
            remedy="order by the time attribute, filter on ROW_NUMBER() <= n for a Top-N, or bound the sources",
        )
    late = [x for x in names if x in NEED_ALL_ROWS]
    if late or node.following != 0 or (node.preceding or 0) < 0:
        raise UnsupportedError(
            f"{late[0]} over an unbounded input"
            if late
            else "an OVER frame that reaches past the current row",
            expected="ROW_NUMBER, RANK, DENSE_RANK, LAG, or aggregates with a frame that ends at CURRENT ROW",
            got=f"{late[0]}, which needs the rows to come" if late else "FOLLOWING over an unbounded input",
            remedy="bound the sources: then all rows are there in the end",
        )
    if first.index in known.rowtimes:
        return _over_running(tr, node, node.order)
    if node.frame == "range" and node.preceding:
        raise UnsupportedError(
            "OVER RANGE … PRECEDING by processing time",
            expected="ROWS … PRECEDING, or RANGE over an event-time column",
            remedy="count rows (ROWS BETWEEN n PRECEDING AND CURRENT ROW)",
        )
    # Rows come in the order of processing time, so each gets its result at once.
    return _over_running(tr, node, ())


def _over_running(tr: Translator, node: Over, order: tuple[SortKey, ...]) -> PlannedOperator:
    source, parallelism = tr.keyed(tr.visit(node.input), node.partition)
    ranks = [c.function for c in node.aggregates if c.function in RANKS]
    lags = [c for c in node.aggregates if c.function == "LAG"]
    # The binder makes separate nodes for ranks and for LAG.
    assert len(ranks) in (0, len(node.aggregates))
    assert len(lags) in (0, len(node.aggregates))
    fields: dict[str, Any] = {"aggregates": node.aggregates, "frame": node.frame, "preceding": node.preceding}
    if ranks:
        if "DENSE_RANK" in ranks and len(order) > 1:
            raise UnsupportedError(
                "DENSE_RANK over time and another column of an unbounded input",
                expected="ORDER BY the time column alone",
                got=f"{len(order)} columns",
                remedy="leave the others out, or bound the sources",
            )
        # By processing time no two rows are peers (equal in the order).
        at = {"ROW_NUMBER": "row", "RANK": "first-peer"} if order else dict.fromkeys(RANKS, "row")
        fields = {
            "aggregates": tuple(_as_count(c, order) for c in node.aggregates),
            "frame": "range",
            "read_at": tuple(at.get(x, "frame") for x in ranks),
        }
    if lags:
        fields = {
            "aggregates": (),
            "frame": "rows",
            "preceding": max(c.constants[0] for c in lags),
            "lags": tuple((c.args[0], c.constants[0], c.args[1] if len(c.args) > 1 else None) for c in lags),
            "skipping": tuple(i for i, c in enumerate(lags) if c.ignore_nulls),
        }
    spec = s.OverSpec(partition=node.partition, order=order, ttl_ms=tr.ttl_ms, **fields)
    bounded = spec.preceding is not None
    return tr.add(
        node, "over", "OverAggregate", spec, [source], parallelism=parallelism, hashed=node.partition or None,
        keeps=f"rows of the frame per key ({a_row(node.input.schema)})"
        if bounded
        else f"running aggregates per key{tr.ttl_words()}, rows until the watermark ({a_row(node.input.schema)})",
    )  # fmt: skip


def _as_count(call: AggregateCall, order: tuple[SortKey, ...]) -> AggregateCall:
    """Expresses a rank as a running count: of rows, or (DENSE_RANK) of distinct values of the order."""
    if call.function == "DENSE_RANK" and order:
        return msgspec.structs.replace(call, function="COUNT", args=(order[0].index,), distinct=True)
    return msgspec.structs.replace(call, function="COUNT")


def _over_final(tr: Translator, node: Over) -> PlannedOperator:
    if node.frame == "range" and (node.preceding or node.following):
        type_ = node.input.schema.types[node.order[0].index] if len(node.order) == 1 else None
        if not isinstance(type_, (*INTEGERS, *TIMESTAMPS, DateType, TimeType)):
            raise UnsupportedError(
                "an OVER RANGE of a given length",
                expected="ORDER BY one column that is a whole number, a date or a time",
                got=f"{len(node.order)} columns" if type_ is None else str(type_),
                remedy="use ROWS",
            )
    source, parallelism = tr.keyed(tr.visit(node.input), node.partition)
    spec = s.OverFinalSpec(
        partition=node.partition, order=node.order, aggregates=node.aggregates, frame=node.frame,
        preceding=node.preceding, following=node.following,
    )  # fmt: skip
    return tr.add(
        node, "over-final", "OverAggregate(at the end)", spec, [source], parallelism=parallelism,
        hashed=node.partition or None, keeps=f"all rows until the end ({a_row(node.input.schema)})",
    )  # fmt: skip
