"""Runs a subtask of the streaming job in a Spark task: processes its share of the history, then writes its
state.

The vertex's own chain of operators runs over the rows, as in a slot. At the end the task writes the state as
a slot does at a barrier: a snapshot object in the format of docs/state-format.md, straight into the job's
object store.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.columnar.hashing import key_group_range
from penstock.config import STATE_MEMORY
from penstock.connectors.base import Split
from penstock.errors import ExternalError, FencedError
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.identity import identities
from penstock.jobgraph.specs import SinkSpec
from penstock.messages.layout import BACKFILL_CHECKPOINT_ID as CHECKPOINT_ID
from penstock.messages.layout import backfill_attempt_key, backfill_prefix
from penstock.messages.slot import StateHandle, StorageSettings, TaskDescriptor
from penstock.operators.budget import RowBudget
from penstock.operators.drivers import AsyncOperator
from penstock.operators.factory import make_operator
from penstock.operators.operator import MIN_WATERMARK, WatermarkMaker
from penstock.operators.sources import SourceOperator
from penstock.runtime.chain import Chain
from penstock.runtime.checkpoints import INLINE_BYTES
from penstock.runtime.contexts import OperatorContexts
from penstock.runtime.environment import Environment
from penstock.snapshots.writing import write_snapshot
from penstock.spark.backfill_edges import REPORT, SegmentReader, SegmentWriter, record_batch, records_of
from penstock.spark.backfill_sink import HistorySink
from penstock.spark.errors import carried
from penstock.spark.partition_program import JobContext, load_job_functions
from penstock.state.memory import StateMemory
from penstock.store.open import open_store
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from penstock.jobgraph import JobEdge, JobVertex
    from penstock.runtime.chain_nodes import ChainNode
    from penstock.spark.backfill_edges import Record

#: A source lets its watermark rise each time after this many rows.
_RISE_ROWS = 65_536


@dataclass(frozen=True)
class Stage:
    """A vertex, as an executor needs it.

    ``subtasks``: number of subtasks. ``inputs``: (edge, number of the edge in the graph). ``finals``: gate →
    the watermark that the gate reaches at the end. ``outputs``: (edge, its number, number of subtasks behind
    it, their max parallelism). ``runs``: the runs of the producers that count.
    """

    job_id: str
    attempt: int
    job: JobContext
    storage: StorageSettings
    vertex: JobVertex
    subtasks: int
    inputs: tuple[tuple[JobEdge, int], ...]
    outputs: tuple[tuple[JobEdge, int, int, int], ...]
    finals: dict[int, int]
    runs: frozenset[str] = frozenset()
    emit: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one subtask at its end. ``watermarks``: uid → watermark; ``edges``: edge number →
    watermark of the output; ``reached``: source uid → the highest watermark that the rows of the source
    allow."""

    run: str
    subtask: int
    handle: StateHandle
    watermarks: dict[str, int]
    edges: dict[int, int]
    reached: dict[str, int] = {}
    rows: int = 0


def source_stage(stage: Stage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a function for ``mapInArrow``. It takes rows of (subtask, splits: JSON of {source uid:
    [split]})."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for index, text in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
                splits = msgspec.json.decode(text, type=dict[str, list[Split]])
                yield from _Subtask(stage, index).read(splits)

    return lambda batches: carried(run(batches), stage.vertex.name)


def vertex_stage(stage: Stage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a function for ``mapInArrow``. It takes segments sorted by target, each target's in their
    order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index, records in itertools.groupby(records_of(batches), key=lambda r: r[1]):
            yield from _Subtask(stage, index).consume(records)

    return lambda batches: carried(run(batches), stage.vertex.name)


class _Subtask:
    def __init__(self, stage: Stage, index: int) -> None:
        self._stage = stage
        self._index = index
        self._run = uuid.uuid4().hex
        self._rows = 0
        self._writers = {
            number: SegmentWriter(edge, number, consumers, groups, index, self._run)
            for edge, number, consumers, groups in stage.outputs
        }
        edges = [(e.source_operator, e.tag, self._writers[n]) for e, n, _, _ in stage.outputs]
        self._chain = Chain(stage.vertex, edges, make=self._operator)  # type: ignore[arg-type]

    def _operator(self, spec: Any) -> Any:
        if isinstance(spec, SinkSpec):
            return HistorySink(spec, emit=self._stage.emit)
        return make_operator(spec)

    # -- input -------------------------------------------------------------------------------------

    def read(self, splits: dict[str, list[Split]]) -> Iterator[pa.RecordBatch]:
        """Reads the splits with the vertex's own sources, and yields the records of the output."""

        async def work() -> Any:
            for node in self._chain.sources:
                async for _ in self._read_source(node, splits.get(node.node.uid, [])):
                    yield

        return self._running(work)

    def consume(self, records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        stage = self._stage
        gates = {number: (edge.target_gate, edge.schema) for edge, number in stage.inputs}

        async def work() -> Any:
            now = MIN_WATERMARK
            for gate, watermark, batch in SegmentReader(gates).batches(self._counted(records)):
                if watermark > now:
                    now = watermark
                    await self._rise(now)
                self._rows += batch.num_rows
                await self._pull(self._chain.process(gate, batch))
                yield
            await self._rise(None)

        return self._running(work)

    def _counted(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if record[5] not in self._stage.runs:
                raise ExternalError(
                    "rows of a stage were made a second time while others had used the first",
                    expected="each subtask's output from the run whose state is kept",
                    got=f"another run of subtask {record[3]}",
                    where=self._stage.vertex.name,
                    remedy="an executor was lost: the backfill begins anew",
                )
            yield record

    async def _rise(self, watermark: int | None) -> None:
        """Lets the watermark of every input rise to ``watermark``; None: to its final value."""
        for gate, final in self._stage.finals.items():
            value = final if watermark is None else min(watermark, final)
            if value > MIN_WATERMARK:
                await self._pull(self._chain.watermark(gate, value))

    async def _read_source(self, node: ChainNode, splits: list[Split]) -> Any:
        source: Any = node.operator
        source.budget = RowBudget(16_384, least=16_384, most=16_384)
        if isinstance(source, SourceOperator):
            if not splits:
                return
            rows = [(self._index, msgspec.json.encode(split).decode()) for split in splits]
            await self._pull(iter(source.process(0, Batch.of(ASSIGNMENT_SCHEMA, rows))))
            await self._pull(iter(source.end_input(0)))
        since = 0
        while True:
            batch = source.poll()
            if batch is not None:
                self._rows += batch.num_rows
                since += batch.num_rows
                if isinstance(source, SourceOperator):
                    # Consumers merge the splits of a source by watermark, so it rises to the first row of
                    # each batch.
                    await self._source_time(node, source.begins_us(batch))
                await self._pull(self._chain.emit(node, iter((batch,))))
                if since >= _RISE_ROWS:
                    since = 0
                    await self._source_time(node, _reached(source))
                yield
            elif source.ended():
                break
            else:
                await source.wait()
        await self._source_time(node, _reached(source))

    async def _source_time(self, node: ChainNode, watermark: int | None) -> None:
        if watermark is not None and watermark > node.output_watermark:
            await self._pull(self._chain.made_watermark(node, watermark, False))
        await self._assigned_times()

    async def _assigned_times(self) -> None:
        """Passes on the watermarks of operators in the chain that make watermarks of their own."""
        for node in self._chain.nodes:
            operator = node.operator
            if isinstance(operator, WatermarkMaker):
                operator.on_processing_time(operator.ctx.now_ms())
                await self._pull(self._chain.made_watermark(node, operator.current_watermark(), False))

    async def _pull(self, work: Iterator[Any]) -> None:
        for _ in work:
            for operator in self._chain.pausing:
                while not operator.ready():
                    await operator.wait_ready()
        await asyncio.sleep(0)  # Lets background work of operators run (a file that is read ahead).

    # -- life --------------------------------------------------------------------------------------

    def _running(self, work: Callable[[], Any]) -> Iterator[pa.RecordBatch]:
        function = load_job_functions(self._stage.job)
        loop = asyncio.new_event_loop()
        with tempfile.TemporaryDirectory(prefix="penstock-backfill-") as folder:
            environment = self._environment(Path(folder), function)
            try:
                loop.run_until_complete(self._open(environment))
                steps = work()
                while loop.run_until_complete(_more(steps)):
                    yield from self._segments()
                report = loop.run_until_complete(self._end(environment))
                yield from self._segments()
                yield record_batch(
                    [(REPORT, 0, 0, self._index, 0, self._run, 0, msgspec.json.encode(report))]
                )
            finally:
                loop.run_until_complete(self._close())
                environment.helper.close()
                loop.close()

    def _segments(self) -> Iterator[pa.RecordBatch]:
        records = [record for writer in self._writers.values() for record in writer.taken()]
        if records:
            yield record_batch(records)

    def _environment(self, folder: Path, function: Any) -> Environment:
        stage = self._stage
        return Environment(
            job_id=stage.job_id, job_name=stage.job.job_name, job_attempt=stage.attempt, config=stage.job.config,
            local_dir=folder, store=open_store(stage.storage.url, stage.storage.options), function=function,
            storage=stage.storage, memory=StateMemory(STATE_MEMORY.read(stage.job.config)),
        )  # fmt: skip

    async def _open(self, environment: Environment) -> None:
        stage = self._stage
        descriptor = TaskDescriptor(
            execution_id=self._run,
            vertex_id=stage.vertex.id,
            subtask_index=self._index,
            attempt=stage.attempt,
        )
        gates = {edge.target_gate: edge.schema for edge, _ in stage.inputs}
        schemas = [gates[g] for g in sorted(gates)]
        self._contexts = OperatorContexts(environment, descriptor, self._chain, schemas, lambda _: None)
        self._chain.open(self._contexts.make, {})
        for node in self._chain.nodes:
            if isinstance(node.operator, AsyncOperator):
                await node.operator.start()

    async def _end(self, environment: Environment) -> Report:
        """Does what a task does at a barrier, after the last row: the last output, then the state."""
        chain = self._chain
        await self._pull(chain.prepare_checkpoint(CHECKPOINT_ID))
        if chain.sinks:
            await self._check_attempt(environment)
        for operator in chain.sinks:
            assert isinstance(operator, HistorySink)
            for batch in operator.settled():
                await self._pull(operator.written(batch))
        for writer in self._writers.values():
            writer.finish()
        self._contexts.epochs.begin(0)
        snapshots = chain.snapshot(CHECKPOINT_ID)
        for snapshot in snapshots.values():
            snapshot.copied()
            if snapshot.pending is not None:
                snapshot.lists.update(await snapshot.pending)
                snapshot.pending = None
        return Report(
            run=self._run,
            subtask=self._index,
            handle=await self._write(environment, snapshots),
            watermarks=chain.watermarks(),
            edges={number: writer.watermark for number, writer in self._writers.items()},
            reached={
                node.node.uid: node.operator.reached_us
                for node in chain.sources
                if isinstance(node.operator, SourceOperator) and node.operator.reached_us is not None
            },
            rows=self._rows,
        )

    async def _check_attempt(self, environment: Environment) -> None:
        """Raises FencedError if another attempt has begun: this task must not overwrite rows that the stream
        has written since."""
        assert environment.store is not None
        current = int(await environment.store.get(backfill_attempt_key(self._stage.job_id)))
        if current > self._stage.attempt:
            raise FencedError(
                "another attempt of the backfill has begun",
                expected=f"attempt {current}",
                got=f"attempt {self._stage.attempt}",
                where=self._stage.vertex.name,
            )

    async def _write(self, environment: Environment, snapshots: Any) -> StateHandle:
        stage, vertex = self._stage, self._stage.vertex
        owned = key_group_range(self._index, stage.subtasks, vertex.max_parallelism)
        meta = {
            "job_id": stage.job_id, "vertex_id": vertex.id, "vertex": vertex.name, "subtask_index": self._index,
            "parallelism": stage.subtasks, "max_parallelism": vertex.max_parallelism,
            "operators": {node.uid: node.name for node in vertex.operators},
            "identities": identities(vertex.operators),
        }  # fmt: skip
        data = write_snapshot(snapshots, checkpoint_id=CHECKPOINT_ID, key_groups=owned, meta=meta)
        handle = StateHandle(
            vertex_id=vertex.id, subtask_index=self._index, checkpoint_id=CHECKPOINT_ID, size_bytes=len(data),
            key_groups=owned,
        )  # fmt: skip
        if len(data) <= INLINE_BYTES:
            return msgspec.structs.replace(handle, inline=data)
        key = f"{backfill_prefix(stage.job_id, stage.attempt)}{vertex.id}-{self._index}-{self._run[:8]}"
        assert environment.store is not None
        await environment.store.put(key, data)
        return msgspec.structs.replace(handle, key=key)

    async def _close(self) -> None:
        for node in self._chain.nodes:
            if isinstance(node.operator, AsyncOperator) and hasattr(node.operator, "ctx"):
                await node.operator.stop()
        errors = self._chain.close()
        if errors:
            raise errors[0]


def _reached(source: Any) -> int | None:
    """The watermark that the rows read so far allow."""
    return source.reached_us if isinstance(source, SourceOperator) else source.position(0)[0]


async def _more(steps: Any) -> bool:
    """Takes one step of an asynchronous generator. Returns False at its end."""
    try:
        await anext(steps)
    except StopAsyncIteration:
        return False
    return True
