"""The filesystem sink: exactly once by pending files.

Rows go to files under ``<path>/_pending/`` that no reader lists. A barrier closes the files; their names are
the committables. When the checkpoint is complete each is renamed to
``<path>/part-<tag>-<subtask>-<checkpoint>-<n>.<format>`` (``tag``: job and operator), of a
partitioned table to its partition's folder below ``<path>``. A rename can be repeated: if the pending file is
gone and its target exists, the file was committed.
With a time in the rolling policy a file of lines outlives checkpoints: its parts, one for each checkpoint, move to
``<path>/_growing/`` and become one file when it ends (``rolling``). A partition that is complete is committed
behind the checkpoint that shows its last files (``partition_commit``).
Files of an aborted checkpoint belong to the next one. Pending files of earlier attempts are deleted once a
checkpoint of this attempt is complete, because every subtask has then committed the files that it restored.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cancelling import end_tasks
from penstock.connectors.away import Away, patiently
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.filesystem.committables import (
    PENDING_FOLDER,
    GrowingFile,
    OpenPartition,
    PendingFile,
    decoded,
    encode,
    keep,
    show,
    sweep,
)
from penstock.connectors.filesystem.files import CountingFile, OpenFile, make_table_folder, write_error
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.partition_commit import (
    END_OF_TIME,
    CommittedPartition,
    partition_commits,
    policies,
)
from penstock.connectors.filesystem.partitions import Partitioning
from penstock.connectors.filesystem.parts import file_format_of
from penstock.connectors.filesystem.paths import Files, join
from penstock.connectors.filesystem.rolling import GrowingFiles, RollingPolicy
from penstock.connectors.filesystem.settings import OPTIONS
from penstock.connectors.filesystem.writing import shuffled_by
from penstock.errors import ServerAwayError
from penstock.formats import get_format
from penstock.formats.compressing import COMPRESSIONS, CompressedFile
from penstock.formats.lines import LineFiles
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types import Batch

_log = EventLog("penstock.connectors.filesystem")

#: Rows written at a time on the data thread, and rows that may wait.
_STEP_ROWS, _MAX_QUEUED_ROWS = 4_096, 65_536


@dataclass(slots=True)
class _Cut:
    checkpoint_id: int
    watermark: int
    done: asyncio.Future[list[bytes]]


class FileSink(SinkWriter):
    """Writes files that become visible when their checkpoint is complete."""

    shares_committables = True

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
        self._open_files: dict[str, OpenFile] = {}
        self._closed: list[OpenFile] = []  # pending files since the last cut
        self._uncommitted: list[PendingFile] = []
        self._rolling = RollingPolicy.of(self._options, lines=isinstance(self._writing, LineFiles))
        self._growing = GrowingFiles(self._rolling)
        #: Parts of growing files by the checkpoint after which they must outlive a restart.
        self._to_keep: list[tuple[int, str]] = []
        #: Parts that have been moved there, or are shown.
        self._kept: set[str] = set()
        self._next_look_ms = 0
        self._commits = partition_commits(self._options, self._partitioning)
        self._watermark = -END_OF_TIME
        self._number = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._swept = False
        self._server = Away(f"connector 'filesystem', '{self._options['path']}'")

    def takes(self, ctx: SourceContext, number: int, item: bytes) -> bool:
        """A partition, and what grows in it, stay with the writer that gets its rows."""
        (found,) = decoded([item])
        if isinstance(found, PendingFile) or not shuffled_by(self._options, self._table):
            return super().takes(ctx, number, item)
        assert self._partitioning is not None
        owner = self._partitioning.writer_of(found.folder, ctx.parallelism, ctx.max_parallelism)
        return owner == ctx.subtask_index

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await self._locate(ctx)
        await ctx.run(partial(make_table_folder, self._files, self._folder))
        await self._restore(restored)
        self._room.set()
        self._task = asyncio.create_task(self._pump())

    async def _restore(self, restored: Sequence[bytes]) -> None:
        items = decoded(restored)
        await self._show([item for item in items if isinstance(item, PendingFile)])
        growing = [item for item in items if isinstance(item, GrowingFile)]
        await self._run(partial(keep, self._files, [part for file in growing for part in file.parts]))
        self._growing.adopt(growing)
        self._kept = {part for file in growing for part in file.parts}
        if self._commits is not None:
            partitions = [item for item in items if isinstance(item, OpenPartition)]
            self._commits.adopt(partitions, ripe=self.ctx.gathered)

    async def _locate(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._files: Files
        self._files, self._folder = await ctx.run(
            lambda: open_files(self._options["path"], self._table.options)
        )
        self._tag = hashlib.sha256(f"{ctx.job_id}/{ctx.uid}".encode()).hexdigest()[:8]
        self._pending_prefix = f"{self._tag}-"

    async def _run(self, call: Callable[[], Any]) -> Any:
        """Runs ``call``, which may be repeated, in the helper thread until the object store answers."""
        return await patiently(lambda: self.ctx.run(call), self._server, None, ServerAwayError)

    def away(self) -> str | None:
        return self._server.reason

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
            self._failure = write_error(err, self._folder)
            self._room.set()
            for item in self._queue:
                if isinstance(item, _Cut) and not item.done.done():
                    item.done.set_exception(self._failure)

    def watermark(self, watermark: int) -> None:
        self._watermark = max(self._watermark, watermark)

    async def _write_rows(self, batch: Batch) -> None:
        if self._rolling.timed and self.ctx.now_ms() >= self._next_look_ms:
            await self._end_old()
        if self._partitioning is None:
            await self._write_into("", batch)
        else:
            for folder, rows in self._partitioning.split(batch):
                await self._write_into(folder, rows)
        self._queued_rows -= len(batch)
        if self._queued_rows < _MAX_QUEUED_ROWS:
            self._room.set()

    async def _end_old(self) -> None:
        """End the files whose time is over, so that the rows that follow are in new ones."""
        now_ms = self.ctx.now_ms()
        self._next_look_ms = now_ms + self._rolling.check_ms
        for folder, current in list(self._open_files.items()):
            before = self._growing.get(folder)
            created_ms = current.created_ms if before is None else before.created_ms
            if self._rolling.old(created_ms, current.written_ms, now_ms):
                await self._close_file(folder, ends=True)

    async def _write_into(self, folder: str, batch: Batch) -> None:
        run = self.ctx.run
        current = self._open_files.pop(folder, None)
        if current is None:
            if len(self._open_files) >= self._options["sink.max-open-files"]:
                await self._close_file(next(iter(self._open_files)))
            self._growing.before_rows(folder, self.ctx.now_ms())
            current = await run(partial(self._new_file, folder))
        self._open_files[folder] = current
        current.written_ms = self.ctx.now_ms()
        if self._commits is not None:
            self._commits.wrote(folder, current.written_ms)
        if self._writing.native_writer:
            await run(partial(current.rows.write, batch))
        else:
            current.rows.write(batch)  # Python encodes the rows, so this must not run in the helper thread
            await asyncio.sleep(0)
        before = self._growing.get(folder)
        if current.file.written + (before.size if before else 0) >= self._rolling.size:
            await self._close_file(folder, ends=True)

    def _new_file(self, folder: str) -> OpenFile:
        path = join(self._folder, PENDING_FOLDER, self._new_name())
        file = CountingFile(self._files.open_output(path))
        compression = self._options["sink.compression"]
        compressed = None if compression == "none" else CompressedFile(file, compression)
        rows = self._writing.writer(compressed or file, self._schema, self._table.options)
        now_ms = self.ctx.now_ms()
        return OpenFile(folder, path, file, rows, now_ms, now_ms, compressed)

    def _new_name(self) -> str:
        self._number += 1
        ctx = self.ctx
        return f"{self._pending_prefix}{ctx.attempt:06d}-{ctx.subtask_index}-{self._number}"

    async def _close_file(self, folder: str, *, ends: bool = False) -> None:
        current = self._open_files.pop(folder)
        current.ends = ends

        def close() -> None:
            current.close()
            self._files.sync(current.path)

        await self.ctx.run(close)
        self._closed.append(current)

    # -- commit -------------------------------------------------------------------------

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        cut = _Cut(checkpoint_id, self._watermark, asyncio.get_running_loop().create_future())
        self._queue.append(cut)
        self._work.set()

        async def durable() -> list[bytes]:
            self._check()
            others = await cut.done
            return [encode(f) for f in self._uncommitted if f.checkpoint_id <= checkpoint_id] + others

        return durable()

    async def _cut(self, cut: _Cut) -> None:
        try:
            for folder in list(self._open_files):
                await self._close_file(folder)
        except Exception as err:
            cut.done.set_exception(write_error(err, self._folder))
            raise
        now_ms, ended = self.ctx.now_ms(), cut.watermark == END_OF_TIME or self.ctx.gathered
        ripe = set() if self._commits is None else self._commits.cut(
            cut.checkpoint_id, cut.watermark, now_ms, ended=ended
        )  # fmt: skip
        self._name(cut.checkpoint_id, self._ended_files(now_ms, ripe, ended=ended))
        growing = self._growing.all()
        self._to_keep += [(cut.checkpoint_id, part) for file in growing for part in file.parts]
        partitions = [] if self._commits is None else self._commits.state()
        if not cut.done.done():
            cut.done.set_result([*map(encode, growing), *map(encode, partitions)])

    def _ended_files(self, now_ms: int, ripe: set[str], *, ended: bool) -> list[GrowingFile]:
        """The files that end at this barrier. Those that do not stay in ``_growing``."""
        files, closed = [], self._closed
        self._closed = []
        for part in closed:
            file = GrowingFile(part.folder, (part.path,), part.file.written, part.created_ms, part.written_ms)
            if not self._rolling.grows:
                files.append(file)
                continue
            self._growing.add(file)
            if part.ends:
                files.append(self._growing.end(part.folder))
        return files + self._growing.ripe(now_ms, ripe, all_of_them=ended)

    def _name(self, checkpoint_id: int, files: Sequence[GrowingFile]) -> None:
        """Give the files that end their visible names."""
        begin = self._options["sink.part-prefix"]
        end = self._options["sink.part-suffix"] or f".{get_format(self._format).extension}"
        if (compression := self._options["sink.compression"]) != "none":
            end += f".{COMPRESSIONS[compression]}"
        for n, file in enumerate(files):
            name = f"{begin}-{self._tag}-{self.ctx.subtask_index}-{checkpoint_id}-{n}{end}"
            final = join(self._folder, *((file.folder, name) if file.folder else (name,)))
            self._uncommitted.append(PendingFile(checkpoint_id, file.parts[0], final, file.parts[1:]))

    async def commit(self, checkpoint_id: int) -> None:
        await self._show([f for f in self._uncommitted if f.checkpoint_id <= checkpoint_id])
        self._kept |= {
            p for f in self._uncommitted for p in (f.pending, *f.more) if f.checkpoint_id <= checkpoint_id
        }
        self._uncommitted = [f for f in self._uncommitted if f.checkpoint_id > checkpoint_id]
        parts = {p for of, p in self._to_keep if of <= checkpoint_id} - self._kept
        if parts:
            await self._run(partial(keep, self._files, sorted(parts)))
        self._to_keep = [(of, part) for of, part in self._to_keep if of > checkpoint_id]
        self._kept = (self._kept | parts) & {part for file in self._growing.all() for part in file.parts}
        await self._commit_partitions(checkpoint_id)
        if not self._swept:
            self._swept = True
            await self._run(self._sweep)

    async def _commit_partitions(self, checkpoint_id: int) -> None:
        if self._commits is not None and (due := self._commits.due(checkpoint_id)):
            await self._run(partial(self._tell, due))
            self._commits.committed(checkpoint_id)

    def _tell(self, folders: Sequence[str]) -> None:
        """Let the commit policies act on partitions that are complete."""
        assert self._partitioning is not None
        found = policies(self._options)
        for folder in folders:
            texts = self._partitioning.texts("", f"{folder}/file")
            path = join(self._folder, folder)
            partition = CommittedPartition(path, self._partitioning.keys, texts, self._files)
            for policy in found:
                policy.commit(partition)
            _log.info("partition_committed", path=path)

    async def _show(self, files: Sequence[PendingFile]) -> None:
        def show_all() -> None:
            for item in files:
                show(self._files, item, join(self._folder, PENDING_FOLDER, self._new_name()))

        if files:
            await self._run(show_all)

    def _sweep(self) -> None:
        """Delete the uncommitted files of earlier attempts of this operator; only subtask 0 does this."""
        if not self.ctx.subtask_index:
            sweep(self._files, join(self._folder, PENDING_FOLDER), self._pending_prefix, self.ctx.attempt)

    def needs_commit(self) -> bool:
        written = self._queue or self._open_files or self._closed
        return bool(written or self._uncommitted or self._growing or self._commits)

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
                current.close()
            except (OSError, ValueError) as err:
                _log.debug("file_close_failed", path=current.path, error=err)
        for file in (*self._closed, *opened):
            self._files.delete(file.path)
