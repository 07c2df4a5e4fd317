"""The seam says which splits are history and where live data begins. It is fixed before a row is read.

The seam is written once, create-only, among the job's objects: a backfill that begins again reads the same
files and hands over the same positions, even if new data came meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import Split, TableInfo
from penstock.connectors.hybrid.connector import HybridConnector
from penstock.connectors.hybrid.parts import is_live
from penstock.connectors.registry import get_connector
from penstock.jobgraph.specs import EnumeratorSpec, SourceSpec
from penstock.messages.layout import seam_key
from penstock.metrics import MetricGroup
from penstock.operators.connector_context import source_context
from penstock.operators.operator import OperatorContext
from penstock.runtime.environment import Environment

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph, OperatorNode
    from penstock.ports import Store
    from penstock.spark.partition_program import JobContext


class Seam(msgspec.Struct, frozen=True):
    """``history``, ``live``: source uid → splits; ``assigned``: enumerator uid → ids of all these splits. A
    source without a history appears in none of them."""

    history: dict[str, list[Split]] = {}
    live: dict[str, list[Split]] = {}
    assigned: dict[str, list[str]] = {}


async def fix_seam(graph: JobGraph, store: Store, job_id: str, job: JobContext) -> Seam:
    """The job's seam: the one that an earlier attempt fixed, otherwise a new one from the splits that exist
    now."""
    key = seam_key(job_id)
    found = await _stored(store, key)
    if found is not None:
        return found
    made = await _discovered(graph, store, job_id, job)
    if await store.create(key, msgspec.json.encode(made)):
        return made
    stored = await _stored(store, key)
    assert stored is not None
    return stored


async def _stored(store: Store, key: str) -> Seam | None:
    try:
        return msgspec.json.decode(await store.get(key), type=Seam)
    except KeyError:
        return None


async def _discovered(graph: JobGraph, store: Store, job_id: str, job: JobContext) -> Seam:
    seam = Seam()
    for enumerator, source in enumerated_sources(graph):
        spec = source.spec
        assert isinstance(spec, SourceSpec)
        connector = get_connector(spec.connector)
        table = TableInfo(spec.schema, spec.options)
        hybrid = isinstance(connector, HybridConnector)
        if not hybrid and not connector.is_bounded(table):
            continue  # An unbounded source without a history is read by the stream alone.
        splits = await _splits(enumerator, store, job_id, job)
        seam.assigned[enumerator.uid] = [split.id for split in splits]
        seam.history[source.uid] = [s for s in splits if not (hybrid and is_live(s.id))]
        seam.live[source.uid] = [s for s in splits if hybrid and is_live(s.id)]
    return seam


async def _splits(node: OperatorNode, store: Store, job_id: str, job: JobContext) -> list[Split]:
    spec: Any = node.spec
    assert isinstance(spec, EnumeratorSpec)
    enumerator = get_connector(spec.connector).enumerator(TableInfo(spec.schema, spec.options))
    environment = Environment(
        job_id=job_id, job_name=job.job_name, job_attempt=1, config=job.config, local_dir=Path(), store=store,
        function=lambda _: None,
    )  # fmt: skip
    context = OperatorContext(
        job_id=job_id, job_name=job.job_name, vertex_id="", uid=node.uid, name=node.name, subtask_index=0,
        parallelism=1, max_parallelism=1, attempt=1, input_schemas=(), output_schema=node.output,
        config=job.config, metrics=MetricGroup(), key_groups=(0, 0), local_dir=Path(), now_ms=environment.now_ms,
        wake_at=lambda _: None, function=lambda _: None, store=store, run=environment.helper.run,
    )  # fmt: skip
    try:
        given = source_context(
            context, schema=spec.schema, options=spec.options, parallelism=spec.reader_parallelism
        )
        return list(await enumerator.discover(given, set()))
    finally:
        await enumerator.close()
        environment.helper.close()


def enumerated_sources(graph: JobGraph) -> list[tuple[OperatorNode, OperatorNode]]:
    """The pair (enumerator, source) of every scan."""
    found = []
    for edge in graph.edges:
        enumerator = graph.vertex(edge.source).operators[edge.source_operator]
        if not isinstance(enumerator.spec, EnumeratorSpec):
            continue
        for node in graph.vertex(edge.target).operators:
            gates = [i.gate for port in node.inputs for i in port]
            if edge.target_gate in gates and isinstance(node.spec, SourceSpec):
                found.append((enumerator, node))
    return found
