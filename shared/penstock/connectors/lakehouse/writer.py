"""The sink of a table of data files: rows are written to Parquet files at once; the files join the table with
their checkpoint."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.cancelling import end_tasks
from penstock.connectors.away import Away, patiently
from penstock.connectors.base import SinkWriter
from penstock.connectors.lakehouse.epochs import Committable, Epochs, writer_id
from penstock.connectors.lakehouse.files import OpenFiles
from penstock.connectors.lakehouse.keyed_files import KeyedFiles
from penstock.connectors.lakehouse.keys import KIND
from penstock.connectors.lakehouse.merging import Merger
from penstock.errors import ServerAwayError
from penstock.log_events import EventLog
from penstock.redaction import without_credentials
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.lakehouse.table import DataFile, LakeTable

_log = EventLog("penstock.connectors.lakehouse")

#: The number of rows waiting for the helper thread from which ``ready`` is False.
_MAX_QUEUED_ROWS = 262_144


@dataclass(slots=True)
class _Cut:
    checkpoint_id: int
    done: asyncio.Future[list[bytes]]


class LakeWriter(SinkWriter):
    """Writes exactly once (``epochs``). ``where``: the table, for the log; ``open_table``: opens the stored table, and creates it
    if it is missing, with the columns of its primary key (empty: rows are appended); ``target_bytes``: size at which a
    file is closed; ``most_open``: the most partitions written at a time; ``by_key``: in a table with a primary key, of each
    key the row of the last change is kept. A store or catalog that is away is waited for."""

    def __init__(
        self,
        where: str,
        open_table: Callable[[Sequence[str]], LakeTable],
        target_bytes: int,
        most_open: int,
        *,
        by_key: bool = True,
    ) -> None:
        self._by_key = by_key
        #: Columns of the primary key; empty: rows are appended.
        self._keys: list[str] = []
        self._server = Away(without_credentials(where))
        self._open_table = open_table
        self._target_bytes, self._most_open = target_bytes, most_open
        self._queue: deque[Batch | _Cut] = deque()
        self._queued_rows = 0
        self._table: LakeTable | None = None
        self._files: OpenFiles | KeyedFiles | None = None
        self._number = 0
        #: Files that no commit is known to hold.
        self._uncommitted: list[DataFile] = []
        #: Checkpoints that have a note of this writer.
        self._noted: dict[int, Committable] = {}
        self._commits = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        if self._by_key:
            self._keys = [ctx.schema.names[index] for index in ctx.pushed.get("keys") or ()]
        table: LakeTable = await self._run(partial(self._open_table, self._keys))
        self._table = table
        self._writer_id = writer_id(ctx.job_id, ctx.uid)
        self._epochs, self._files = self._parts(table)
        items = [msgspec.msgpack.decode(data, type=Committable) for data in restored]
        await self._epochs.restored(items)
        if items:
            await self._run(partial(self._epochs.forget, [i for i in items if i.files is None]))
        self._room.set()
        self._task = asyncio.create_task(self._pump())

    def _parts(self, table: LakeTable) -> tuple[Epochs, OpenFiles | KeyedFiles]:
        sizes = self._target_bytes, self._most_open
        if not self._keys:
            return Epochs(table, self._run), OpenFiles(table, self._next_name, *sizes)
        merger = Merger(table, self._keys, self._next_name, *sizes)
        files = KeyedFiles(table, self._next_name, self._key_note, *sizes, self._keys)
        return Epochs(table, self._run, merger.commit), files

    def _key_note(self, name: str) -> str:
        return f"{self._writer_id}/{name.removesuffix('.parquet')}-keys"

    def _arrow(self, batch: Batch) -> pa.RecordBatch:
        rows = batch.to_external_arrow()
        if not self._keys:
            return rows
        kinds = np.zeros(len(batch), np.uint8) if batch.kinds is None else batch.kinds
        return rows.append_column(KIND, pa.array(kinds, pa.uint8()))

    async def abandon(self, ctx: SourceContext) -> None:
        """Does nothing: files that no commit names are not part of the table, and the table's own maintenance
        removes them."""

    def _next_name(self) -> str:
        ctx = self.ctx
        self._number += 1
        return f"{self._writer_id}-{ctx.attempt:06d}-{ctx.subtask_index:05d}-{self._number:06d}.parquet"

    async def _run(self, call: Callable[[], Any]) -> Any:
        """Runs ``call``, which may be repeated, in the helper thread until the store and the catalog answer."""
        return await patiently(lambda: self.ctx.run(call), self._server, None, ServerAwayError)

    def away(self) -> str | None:
        return self._server.reason

    # -- rows ---------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        self._check()
        self._queue.append(batch)
        self._queued_rows += len(batch)
        if self._queued_rows >= _MAX_QUEUED_ROWS:
            self._room.clear()
        self._work.set()

    def ready(self) -> bool:
        return self._room.is_set() or self._failure is not None

    async def wait_ready(self) -> None:
        await self._room.wait()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _pump(self) -> None:
        try:
            while True:
                while self._queue:
                    # The item leaves the queue only when it is done, because until then it needs a commit.
                    item = self._queue[0]
                    if isinstance(item, _Cut):
                        await self._cut(item)
                        self._queue.popleft()
                    else:
                        await self._write_rows()
                self._work.clear()
                await self._work.wait()
        except Exception as err:
            self._failure = err
            self._room.set()
            for item in self._queue:
                if isinstance(item, _Cut) and not item.done.done():
                    item.done.set_exception(err)

    async def _write_rows(self) -> None:
        """Write the batches up to the next cut."""
        batches: list[Batch] = []
        for item in self._queue:
            if isinstance(item, _Cut):
                break
            batches.append(item)
        assert self._files is not None
        rows = [self._arrow(batch) for batch in batches]
        await self.ctx.run(partial(self._files.take, rows))
        await self._run(self._files.store)
        for batch in batches:
            self._queue.popleft()
            self._queued_rows -= len(batch)
        if self._queued_rows < _MAX_QUEUED_ROWS:
            self._room.set()

    # -- checkpoints --------------------------------------------------------------------

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        cut = _Cut(checkpoint_id, asyncio.get_running_loop().create_future())
        self._queue.append(cut)
        self._work.set()

        async def durable() -> list[bytes]:
            self._check()
            return await cut.done

        return durable()

    async def _cut(self, cut: _Cut) -> None:
        files = self._files
        assert files is not None
        if files.busy:
            self._uncommitted += await self._run(partial(files.cut, cut.checkpoint_id))
        committables: list[bytes] = []
        if self._uncommitted:
            item = self._committable(cut.checkpoint_id)
            if item.files is None:
                await self._run(partial(self._epochs.store, item, list(self._uncommitted)))
            self._noted[cut.checkpoint_id] = item
            committables.append(msgspec.msgpack.encode(item))
        if not cut.done.done():
            cut.done.set_result(committables)

    def _committable(self, checkpoint_id: int) -> Committable:
        ctx = self.ctx
        files = list(self._uncommitted) if ctx.gathered else None
        newest = max(file.epoch for file in self._uncommitted)
        return Committable(
            ctx.job_id, ctx.uid, ctx.attempt, checkpoint_id, ctx.subtask_index, ctx.parallelism, newest, files
        )

    async def commit(self, checkpoint_id: int) -> None:
        item = self._noted.get(checkpoint_id)
        if item is None or not any(file.epoch <= checkpoint_id for file in self._uncommitted):
            return
        committed = await self._epochs.complete(item)
        self._uncommitted = [file for file in self._uncommitted if file.epoch > checkpoint_id]
        # The notes of this checkpoint stay for a while, because other writers may still be looking for them.
        old = [n for n in self._noted if n < checkpoint_id]
        await self._run(partial(self._epochs.forget, [self._noted[n] for n in old]))
        for n in old:
            del self._noted[n]
        if committed and self._table is not None:
            self._commits += 1
            if self._commits % self._table.maintenance_every == 0:
                await self.ctx.run(partial(self._table.after_commit, self._next_name))

    def needs_commit(self) -> bool:
        busy = self._files is not None and self._files.busy
        return bool(self._queue or busy or self._uncommitted)

    async def finish(self) -> None:
        await self._run(partial(self._epochs.forget, list(self._noted.values()), done=False))
        self._noted = {}

    async def close(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])
        if self._files is not None and self._files.busy:
            try:
                await self.ctx.run(self._files.discard)
            except ServerAwayError as err:
                # No commit names these files, so they are not part of the table.
                _log.warning("lakehouse_files_left", writer=self._writer_id, error=err)
        if self._table is not None:
            await self.ctx.run(self._table.close)
