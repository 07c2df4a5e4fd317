"""What each chain from sources to a sink guarantees, and the refusal of a guarantee that no chain can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import CHECKPOINT_INTERVAL_MS, CHECKPOINT_MODE
from penstock.errors import UnsupportedError
from penstock.jobgraph.guarantees import ChainGuarantee, Guarantee
from penstock.jobgraph.specs import SinkSpec
from penstock.plan.operator_graph import all_inputs
from penstock.plan.operators.sink.node import Sink
from penstock.types.durations import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.plan.operator_graph import PlannedOperator

_OPTION = "sink.delivery-guarantee"
#: From the weakest to the strongest.
_ORDER = ("at-most-once", "at-least-once", "exactly-once")
#: Sinks without a table outside: their rows do not wait for checkpoints.
_INSIDE = frozenset({"collect", "blackhole"})


def guarantees(
    operators: Sequence[PlannedOperator], config: Mapping[str, str], *, bounded: bool
) -> tuple[ChainGuarantee, ...]:
    """What holds for each sink. ``bounded``: all sources end.

    Raises UnsupportedError for a sink that is asked to be exactly-once over a source that cannot go back.
    """
    above: dict[int, dict[int, PlannedOperator]] = {}
    found = []
    for op in operators:
        sources: dict[int, PlannedOperator] = {}
        for inp in all_inputs(op):
            if inp.source.guarantee and not inp.source.spec.is_sink:
                sources[id(inp.source)] = inp.source
            sources.update(above[id(inp.source)])
        above[id(op)] = sources
        if isinstance(op.spec, SinkSpec):
            found.append(_chain(op, op.spec, list(sources.values()), config, bounded=bounded))
    return tuple(found)


def text(chains: Sequence[ChainGuarantee]) -> str:
    """The section of EXPLAIN: one line for each sink."""
    lines = []
    for chain in chains:
        sources = ", ".join(f"{x.name}: {x.gives}" for x in chain.sources)
        notes = "; ".join(x for x in (chain.because, chain.latency) if x)
        lines.append(f"{chain.sink.name}: {chain.gives}" + (f" ({notes})" if notes else ""))
        lines.append(f"  the sink gives {chain.sink.gives}; {sources or 'no source'}")
    return "\n".join(lines) + "\n"


def _chain(
    op: PlannedOperator,
    spec: SinkSpec,
    sources: Sequence[PlannedOperator],
    config: Mapping[str, str],
    *,
    bounded: bool,
) -> ChainGuarantee:
    lossy = next((x for x in sources if _word(x.guarantee) == "at-most-once"), None)
    if lossy is not None and spec.options.get(_OPTION) == "exactly-once":
        raise UnsupportedError(
            f"exactly-once output of '{lossy.name}', which cannot go back: rows that come while the job is down are lost",
            expected="sources that are read again from a position: kafka, nats, filesystem, CDC, iceberg, delta",
            got=f"{lossy.name} ({lossy.guarantee}), {op.name} with '{_OPTION}' = 'exactly-once'",
            where=op.name,
            remedy="write what the source sends to Kafka or NATS JetStream first, and read it there; or set "
            f"'{_OPTION}' = 'at-least-once', and the chain is at-most-once",
        )
    gives = min((_word(x.guarantee) for x in (op, *sources)), key=_ORDER.index)
    because = ""
    if lossy is not None:
        because = f"what '{lossy.name}' sends while the job is down is lost"
    elif gives != _word(op.guarantee):
        because = "a source gives no more"
    elif gives == "exactly-once" and CHECKPOINT_MODE.read(config) == "AT_LEAST_ONCE":
        gives, because = "at-least-once", f"{CHECKPOINT_MODE.key} = AT_LEAST_ONCE"
    elif gives == "at-least-once" and _by_key(op, spec):
        because = "written by key: what is written again ends as the same row"
    interval_ms = CHECKPOINT_INTERVAL_MS.read(config)
    if not interval_ms and not bounded:
        if gives == "exactly-once" and spec.connector not in _INSIDE:
            gives = "at-least-once"
        because = f"without checkpoints ({CHECKPOINT_INTERVAL_MS.key} = 0) a job that fails starts anew"
    return ChainGuarantee(
        sink=_told(op),
        sources=tuple(_told(x) for x in sources),
        gives=gives,
        because=because,
        latency=_latency(op, spec, interval_ms, bounded=bounded),
    )


def _latency(op: PlannedOperator, spec: SinkSpec, interval_ms: int, *, bounded: bool) -> str:
    """How long the sink keeps rows back until their checkpoint is complete."""
    if _word(op.guarantee) != "exactly-once" or spec.connector in _INSIDE:
        return ""
    if not interval_ms:
        return "rows show when the job ends" if bounded else "rows show at a savepoint, or when the job ends"
    every = duration_text(interval_ms * 1000)
    return f"rows show when their checkpoint is complete: up to {every} later" + (
        ", or at the end" if bounded else ""
    )


def _by_key(op: PlannedOperator, spec: SinkSpec) -> bool:
    return bool(spec.keys) and isinstance(op.node, Sink) and "upsert" in op.node.table.sink_modes


def _word(guarantee: str) -> str:
    """The guarantee without its conditions ("exactly-once while the table does not change"). What is no guarantee of
    delivery, such as that of a lookup, loses and repeats nothing."""
    return next((word for word in _ORDER if guarantee.startswith(word)), "exactly-once")


def _told(op: PlannedOperator) -> Guarantee:
    return Guarantee(uid=op.uid, name=op.name, gives=op.guarantee)
