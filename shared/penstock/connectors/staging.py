"""The common part of staging sinks: the rows of an epoch are kept in the object store until their checkpoint
is complete.

A broker whose transactions cannot stay open from one checkpoint to the next (NATS JetStream, Kafka by
librdkafka) is written exactly once in two steps. ``StagedWriter`` does the first: encoded rows go into
objects of about ``STAGE_BYTES``, and the committables of a checkpoint name them. Its subclass does the
second, ``_publish``: after the checkpoint is complete it sends the rows of an epoch together with a *marker*
that the broker keeps, and a repeated commit reads the marker and sends only what is missing.

Rows of an aborted checkpoint belong to the next one. Objects are deleted when the checkpoint after their
commit is complete.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cancelling import end_tasks
from penstock.connectors.base import SinkWriter
from penstock.errors import BrokerError, InternalError, ObjectStoreError
from penstock.log_events import EventLog
from penstock.messages.layout import staged_prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from penstock.connectors.base import SourceContext

_log = EventLog("penstock.connectors.staging")

#: The approximate size of an object of staged rows, in bytes.
STAGE_BYTES = 4 << 20
#: The number of bytes being staged from which ``ready`` is False.
_MAX_STAGING_BYTES = 32 << 20
_COMMIT_ATTEMPTS = 6

#: One encoded row, in the subclass's own form: a tuple that msgpack can hold.
StagedMessage = Any


class Committable(msgspec.Struct, frozen=True):
    """The rows of one epoch of one subtask: (object key, rows in it) in the order of writing.

    ``marker``: the broker's name for the subtask that staged them; ``job``: the job that did; ``made_ms``:
    the time of staging.
    """

    marker: str
    job: str
    checkpoint_id: int
    objects: tuple[tuple[str, int], ...]
    made_ms: int = 0


def decode_committables(data: bytes) -> list[Committable]:
    """The epochs that a subtask has staged and not committed, oldest first. (In older checkpoints each epoch
    is an entry of its own.)"""
    found = msgspec.json.decode(data, type=Committable | list[Committable])
    return found if isinstance(found, list) else [found]


class StagedWriter(SinkWriter):
    """The first step: stages rows. A subclass connects in
    ``open``, then calls ``_open_staging`` and ``_commit_restored``."""

    #: The broker's name for this subtask; the subclass sets it before rows are written.
    _marker: str

    def __init__(self) -> None:
        self._buffer: list[StagedMessage] = []
        self._buffer_bytes = 0
        self._staging: list[asyncio.Task[None]] = []
        self._staging_bytes = 0
        self._objects: list[tuple[str, int]] = []
        self._number = 0
        self._uncommitted: list[Committable] = []
        self._committed_objects: list[str] = []

    @abstractmethod
    async def _publish(
        self, item: Committable, load: Callable[[str], Awaitable[Sequence[StagedMessage]]]
    ) -> None:
        """Send the rows of an epoch that the broker lacks, with the marker. The call may be repeated; it is
        repeated after a ``BrokerError``."""

    def _open_staging(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        if ctx.store is None:
            raise InternalError("an exactly-once sink has no object store", where=f"operator {ctx.uid}")
        self._store = ctx.store

    async def _commit_restored(self, restored: Iterable[bytes]) -> list[Committable]:
        """Commit the epochs in the restored checkpoint; returns them, oldest first."""
        items = [item for data in restored for item in decode_committables(data)]
        items.sort(key=lambda item: item.checkpoint_id)
        for item in items:
            await self._commit(item)
        return items

    # -- staging ------------------------------------------------------------------------

    def _take(self, messages: Iterable[StagedMessage], size: int) -> None:
        """Add encoded rows of ``size`` bytes to the buffer."""
        self._check_staging()
        self._buffer.extend(messages)
        self._buffer_bytes += size
        if self._buffer_bytes >= STAGE_BYTES:
            self._stage()

    def _stage(self) -> None:
        """Write the buffer to an object, in the background."""
        if not self._buffer:
            return
        messages, size = self._buffer, self._buffer_bytes
        self._buffer, self._buffer_bytes = [], 0
        ctx = self.ctx
        name = f"{ctx.attempt:06d}-{ctx.subtask_index:05d}-{self._number:08d}"
        key = f"{staged_prefix(ctx.job_id)}{re.sub(r'[^A-Za-z0-9_-]', '_', ctx.uid)}/{name}"
        self._number += 1
        self._objects.append((key, len(messages)))
        self._staging_bytes += size

        async def put() -> None:
            try:
                await self._store.put(key, msgspec.msgpack.encode(messages))
            finally:
                self._staging_bytes -= size

        self._staging.append(asyncio.ensure_future(put()))

    def _check_staging(self) -> None:
        for task in [t for t in self._staging if t.done()]:
            self._staging.remove(task)
            task.result()

    def ready(self) -> bool:
        return self._staging_bytes < _MAX_STAGING_BYTES

    async def wait_ready(self) -> None:
        while not self.ready():
            await asyncio.wait(self._staging, return_when=asyncio.FIRST_COMPLETED)
            self._check_staging()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        self._stage()
        if self._objects:
            self._uncommitted.append(
                Committable(
                    self._marker, self.ctx.job_id, checkpoint_id, tuple(self._objects), self.ctx.now_ms()
                )
            )
            self._objects = []
        # All epochs are one entry, so that one subtask restores them and commits them in order. As separate
        # entries, two epochs of one marker could go to two subtasks, and committing the later one would make
        # the earlier one seem committed.
        state = [msgspec.json.encode(self._uncommitted)] if self._uncommitted else []
        staging = list(self._staging)

        async def durable() -> list[bytes]:
            await asyncio.gather(*staging)
            self._check_staging()
            return state

        return durable()

    # -- commit -------------------------------------------------------------------------

    async def commit(self, checkpoint_id: int) -> None:
        # No state that could still be restored contains the epochs committed before.
        done, self._committed_objects = self._committed_objects, []
        try:
            if done:
                await self._store.delete(done)
        except ObjectStoreError as err:
            # Objects that could not be deleted do no harm, so the task need not fail.
            _log.warning("staged_objects_not_deleted", objects=len(done), error=err.message)
            self._committed_objects = done
        for item in [i for i in self._uncommitted if i.checkpoint_id <= checkpoint_id]:
            await self._commit(item)
            self._uncommitted.remove(item)

    async def _commit(self, item: Committable) -> None:
        async def load(key: str) -> Sequence[StagedMessage]:
            return await self._load(key, item)

        for attempt in range(_COMMIT_ATTEMPTS):
            try:
                await self._publish(item, load)
                break
            except BrokerError:
                if attempt == _COMMIT_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.2 * 2**attempt)
        self._committed_objects.extend(key for key, _ in item.objects)

    async def _load(self, key: str, item: Committable) -> Sequence[StagedMessage]:
        try:
            data = await self._store.get(key)
        except KeyError:
            raise InternalError(
                "staged output is gone",
                expected=f"the object {key}",
                got="no such object",
                where=f"transaction '{item.marker}', checkpoint {item.checkpoint_id}",
                remedy="restore the object, or start from an older checkpoint",
            ) from None
        found: list[StagedMessage] = msgspec.msgpack.decode(data)
        return found

    def needs_commit(self) -> bool:
        return bool(self._buffer or self._objects or self._uncommitted)

    async def close(self) -> None:
        await end_tasks(self._staging)


async def commit_left(writer: SinkWriter, ctx: SourceContext, restored: Sequence[bytes]) -> None:
    """Commit what a job staged that wrote exactly once before, for a writer that is at least once from now on.
    ``writer``: one that is exactly once, which is opened and closed here."""
    if not restored:
        return
    try:
        await writer.open(ctx, restored)
    finally:
        await writer.close()
