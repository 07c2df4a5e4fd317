"""The filesystem sink: exactly once by pending files.

Rows go to files under ``<path>/_pending/`` that no reader lists. A barrier closes the files; their names are
the committables. When the checkpoint is complete each is renamed to
``<path>/part-<tag>-<subtask>-<checkpoint>-<n>.<format>`` (``tag``: job and operator), of a
partitioned table to its partition's folder below ``<path>``. A rename can be repeated: if the pending file is
gone and its target exists, the file was committed.
Files of an aborted checkpoint belong to the next one. Pending files of earlier attempts are deleted once a
checkpoint of this attempt is complete, because every subtask has then committed the files that it restored.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.cancelling import end_tasks
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.filesystem.files import CountingFile
from penstock.connectors.filesystem.partitions import Partitioning
from penstock.connectors.filesystem.parts import file_format_of
from penstock.connectors.filesystem.paths import LASTING_ERRNOS, Files, join, open_files
from penstock.connectors.filesystem.settings import OPTIONS
from penstock.errors import ConnectorError, ExternalError
from penstock.formats import get_format
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.formats.api import RowFile
    from penstock.types import Batch

_log = EventLog("penstock.connectors.filesystem")

PENDING_FOLDER = "_pending"
#: Rows written at a time on the data thread.
_STEP_ROWS = 4_096
_MAX_QUEUED_ROWS = 65_536


class PendingFile(msgspec.Struct, frozen=True):
    """A committable: rename ``pending`` to ``final``."""

    checkpoint_id: int
    pending: str
    final: str


@dataclass(slots=True)
class _Open:
    """An open file. ``folder``: the partition's folder below the table's; empty without partitions."""

    folder: str
    path: str
    file: CountingFile
    rows: RowFile


@dataclass(slots=True)
class _Cut:
    checkpoint_id: int
    done: asyncio.Future[None]


class FileSink(SinkWriter):
    """Writes files that become visible when their checkpoint is complete."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._format = table.options["format"]
        self._writing = file_format_of(table.options)
        self._queue: deque[Batch | _Cut] = deque()
        self._queued_rows = 0
        self._partitioning = Partitioning.of(table)
        self._schema = table.schema if self._partitioning is None else self._partitioning.data
        #: Open files by folder; the file that was written last comes last.
        self._open_files: dict[str, _Open] = {}
        self._closed: list[_Open] = []  # pending files since the last cut
        self._uncommitted: list[PendingFile] = []
        self._number = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._swept = False

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await self._locate(ctx)
        await self._rename([msgspec.json.decode(item, type=PendingFile) for item in restored])
        self._room.set()
        self._task = asyncio.create_task(self._pump())

    async def _locate(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._files: Files
        self._files, self._folder = await ctx.run(
            lambda: open_files(self._options["path"], self._table.options)
        )
        self._tag = hashlib.sha256(f"{ctx.job_id}/{ctx.uid}".encode()).hexdigest()[:8]
        self._pending_prefix = f"{self._tag}-"

    async def abandon(self, ctx: SourceContext) -> None:
        await self._locate(ctx)
        await ctx.run(self._sweep)

    # -- rows ---------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        self._check()
        step = max(1, len(batch)) if self._writing.native_writer else _STEP_ROWS
        for start in range(0, len(batch), step):
            self._queue.append(batch.slice(start, step))
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
                    else:
                        await self._write_rows(item)
                    self._queue.popleft()
                self._work.clear()
                await self._work.wait()
        except Exception as err:
            self._failure = _describe(err, self._folder)
            self._room.set()
            for item in self._queue:
                if isinstance(item, _Cut) and not item.done.done():
                    item.done.set_exception(self._failure)

    async def _write_rows(self, batch: Batch) -> None:
        if self._partitioning is None:
            await self._write_into("", batch)
        else:
            for folder, rows in self._partitioning.split(batch):
                await self._write_into(folder, rows)
        self._queued_rows -= len(batch)
        if self._queued_rows < _MAX_QUEUED_ROWS:
            self._room.set()

    async def _write_into(self, folder: str, batch: Batch) -> None:
        run = self.ctx.run
        current = self._open_files.pop(folder, None)
        if current is None:
            if len(self._open_files) >= self._options["sink.max-open-files"]:
                await self._close_file(next(iter(self._open_files)))
            current = await run(partial(self._new_file, folder))
        self._open_files[folder] = current
        if self._writing.native_writer:
            await run(partial(current.rows.write, batch))
        else:
            current.rows.write(batch)  # Python encodes the rows, so this must not run in the helper thread
            await asyncio.sleep(0)
        if current.file.written >= self._options["sink.rolling-policy.file-size"]:
            await self._close_file(folder)

    def _new_file(self, folder: str) -> _Open:
        ctx = self.ctx
        name = f"{self._pending_prefix}{ctx.attempt:06d}-{ctx.subtask_index}-{self._number}"
        self._number += 1
        path = join(self._folder, PENDING_FOLDER, name)
        file = CountingFile(self._files.open_output(path))
        return _Open(folder, path, file, self._writing.writer(file, self._schema, self._table.options))

    async def _close_file(self, folder: str) -> None:
        current = self._open_files.pop(folder)

        def close() -> None:
            current.rows.close()
            current.file.close()
            self._files.sync(current.path)

        await self.ctx.run(close)
        self._closed.append(current)

    # -- commit -------------------------------------------------------------------------

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        cut = _Cut(checkpoint_id, asyncio.get_running_loop().create_future())
        self._queue.append(cut)
        self._work.set()

        async def durable() -> list[bytes]:
            self._check()
            await cut.done
            return [msgspec.json.encode(f) for f in self._uncommitted if f.checkpoint_id <= checkpoint_id]

        return durable()

    async def _cut(self, cut: _Cut) -> None:
        try:
            for folder in list(self._open_files):
                await self._close_file(folder)
        except Exception as err:
            cut.done.set_exception(_describe(err, self._folder))
            raise
        begin = self._options["sink.part-prefix"]
        end = self._options["sink.part-suffix"] or f".{get_format(self._format).extension}"
        for n, pending in enumerate(self._closed):
            name = f"{begin}-{self._tag}-{self.ctx.subtask_index}-{cut.checkpoint_id}-{n}{end}"
            names = (pending.folder, name) if pending.folder else (name,)
            final = join(self._folder, *names)
            self._uncommitted.append(PendingFile(cut.checkpoint_id, pending.path, final))
        self._closed = []
        if not cut.done.done():
            cut.done.set_result(None)

    async def commit(self, checkpoint_id: int) -> None:
        ripe = [f for f in self._uncommitted if f.checkpoint_id <= checkpoint_id]
        await self._rename(ripe)
        self._uncommitted = [f for f in self._uncommitted if f.checkpoint_id > checkpoint_id]
        if not self._swept:
            self._swept = True
            await self.ctx.run(self._sweep)

    async def _rename(self, files: Sequence[PendingFile]) -> None:
        def rename() -> None:
            for item in files:
                if not self._files.rename(item.pending, item.final) and not self._files.exists(item.final):
                    raise _gone(item)

        if files:
            await self.ctx.run(rename)

    def _sweep(self) -> None:
        """Delete the uncommitted files of earlier attempts of this operator; only subtask 0 does this."""
        if self.ctx.subtask_index:
            return
        for info in self._files.list(join(self._folder, PENDING_FOLDER)):
            name = info.path.rsplit("/", 1)[1]
            if not name.startswith(self._pending_prefix):
                continue
            attempt = int(name.removeprefix(self._pending_prefix).split("-")[0])
            if attempt < self.ctx.attempt:
                self._files.delete(info.path)

    def needs_commit(self) -> bool:
        return bool(self._queue or self._open_files or self._closed or self._uncommitted)

    async def close(self) -> None:
        if self._task is not None:
            await end_tasks([self._task])
        if self._open_files or self._closed:
            await self.ctx.run(self._discard)

    def _discard(self) -> None:
        """Delete the rows after the last barrier: no checkpoint contains them, so they will not be committed."""
        opened, self._open_files = list(self._open_files.values()), {}
        for current in opened:
            try:
                current.rows.close()
                current.file.close()
            except (OSError, ValueError) as err:
                _log.debug("file_close_failed", path=current.path, error=err)
        for file in (*self._closed, *opened):
            self._files.delete(file.path)


def _describe(err: Exception, folder: str) -> Exception:
    if isinstance(err, OSError):
        # A full disk may recover by itself; permissions and wrong paths do not.
        kind = ConnectorError if err.errno in LASTING_ERRNOS else ExternalError
        out = kind(
            "cannot write a file",
            got=str(err),
            where=folder,
            remedy="check the disk's space and the folder's permissions on every task manager",
        )
        out.__cause__ = err
        return out
    return err


def _gone(item: PendingFile) -> ConnectorError:
    error = ConnectorError(
        "output that was ready to be committed is gone",
        expected=f"the pending file {item.pending}",
        got="neither it nor its target: somebody else removed it while the job ran",
        where=item.final,
        remedy="restore the file, or begin the job anew with an empty folder; nothing but this job may delete "
        "in _pending",
    )
    error.retryable = True  # the file may come back: a folder that was not mounted
    return error
