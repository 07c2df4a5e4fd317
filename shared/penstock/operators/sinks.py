"""Sinks: a task drives a connector's writer, with a two-phase commit.

State: the list ``committables``, which a restored sink needs to repeat the commit of an epoch; a union if the writer shares
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.equality import equal_or_both_null
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.registry import get_connector
from penstock.operators.bad_records import BadRecords
from penstock.operators.changes import AFTER, BEFORE, DELETE
from penstock.operators.connector_context import source_context
from penstock.operators.constraints import Constraints
from penstock.operators.drivers import SinkDriver
from penstock.snapshots.contract import OperatorSnapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator, Sequence

    from penstock.jobgraph.specs import SinkSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch


def by_key(batch: Batch, keys: Sequence[int]) -> Batch:
    """The changes of a batch for a table that is written by key.

    A −U that an update of the same key follows is dropped. Any other −U becomes −D: its new row failed a
    filter, or has another key.
    """
    if batch.kinds is None:
        return batch
    before = np.flatnonzero(batch.kinds == BEFORE)
    if not len(before):
        return batch
    follows = np.minimum(before + 1, batch.num_rows - 1)
    in_place = batch.kinds[follows] == AFTER
    for column in (batch.columns[k] for k in keys):
        in_place &= equal_or_both_null(column.take(before), column.take(follows))
    kinds = batch.kinds.copy()
    kinds[before[~in_place]] = DELETE
    kept = np.ones(batch.num_rows, np.bool_)
    kept[before[in_place]] = False
    return batch.with_kinds(kinds).filter(kept)


class SinkOperator(SinkDriver):
    """Drives the writer of a sink connector: checks constraints, writes, flushes, pre-commits and commits."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._constraints = Constraints(spec)
        self._writer: SinkWriter | None = None
        #: The writer while it opens, which may wait for its server.
        self._opening: SinkWriter | None = None
        #: Whether the writer is being closed, or was.
        self._over = False
        self._restored: list[bytes] = []
        #: Those of all subtasks, of which the writer takes some.
        self._shared: list[bytes] = []
        #: The lock under which flushes, pre-commits and commits of the writer run, so that they never overlap.
        self._turn = asyncio.Lock()

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._bad = BadRecords(ctx, self._spec.on_error)
        if restored is not None:
            self._restored = restored.lists.get("committables", [])
            self._shared = restored.unions.get("committables", [])

    async def start(self) -> None:
        spec = self._spec
        connector = get_connector(spec.connector)
        writer = connector.writer(TableInfo(spec.physical, spec.options))
        context = source_context(
            self.ctx,
            schema=spec.physical,
            metadata=spec.metadata,
            options=spec.options,
            on_error=spec.on_error,
            bad_record=self._bad.record,
            pushed={"mode": spec.mode, "keys": list(spec.keys)},
        )
        shared = [item for number, item in enumerate(self._shared) if writer.takes(context, number, item)]
        self._opening = writer
        await writer.open(context, self._restored + shared)
        self._writer, self._opening = writer, None
        self.has_flush = type(writer).flush is not SinkWriter.flush

    @property
    def writer(self) -> SinkWriter:
        """The connector's writer; it exists after ``start``."""
        assert self._writer is not None, "the sink was used before start()"
        return self._writer

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if self._spec.mode == "upsert":
            batch = by_key(batch, self._spec.keys)
        if self._constraints:
            batch = self._constraints.enforce(batch)
        letters = self.ctx.letters
        if letters is None:
            self.writer.write(batch.with_columns(self._spec.schema, batch.columns))
            return iter(())
        letters.of_earlier_rows = False
        try:
            self.writer.write(batch.with_columns(self._spec.schema, batch.columns))
        finally:
            letters.of_earlier_rows = True
        return iter(())

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self.writer.watermark(watermark)
        return iter(())

    def ready(self) -> bool:
        return self.writer.ready()

    async def wait_ready(self) -> None:
        await self.writer.wait_ready()

    async def flush(self) -> None:
        async with self._turn:
            await self.writer.flush()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        # This call ends the epoch at once; only its completion is awaited later.
        cut = self.writer.begin_checkpoint(checkpoint_id)

        snapshot = OperatorSnapshot()
        snapshot.pending = _Durable(cut, self._durable(cut, snapshot))
        return snapshot

    async def _durable(
        self, cut: Awaitable[list[bytes]], snapshot: OperatorSnapshot
    ) -> dict[str, list[bytes]]:
        async with self._turn:
            committables = await cut
        if self.writer.shares_committables:
            snapshot.unions["committables"] = list(committables)
            return {}
        return {"committables": list(committables)}

    def away(self) -> str | None:
        writer = self._writer or self._opening
        return None if writer is None or self._over else writer.away()

    async def commit(self, checkpoint_id: int) -> None:
        async with self._turn:
            await self.writer.commit(checkpoint_id)

    def wants_final_checkpoint(self) -> bool:
        return self.writer.needs_commit()

    async def complete(self, *, stopped: bool) -> None:
        async with self._turn:
            await (self.writer.stopped() if stopped else self.writer.finish())

    async def stop(self) -> None:
        self._over = True
        if self._writer is not None:
            await self._writer.close()


class _Durable:
    """The pending committables of one epoch. ``close`` without an await also closes the writer's part, ``cut``."""

    def __init__(
        self, cut: Awaitable[list[bytes]], items: Coroutine[Any, Any, dict[str, list[bytes]]]
    ) -> None:
        self._cut = cut
        self._items = items

    def __await__(self) -> Generator[Any, Any, dict[str, list[bytes]]]:
        return self._items.__await__()

    def close(self) -> None:
        self._items.close()
        if isinstance(self._cut, Coroutine):
            self._cut.close()
