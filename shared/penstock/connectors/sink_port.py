"""What a sink implements: a writer.

A sink writer takes batches, cuts an epoch at every barrier, and commits an epoch,
repeatably, when its checkpoint is complete.
"""

# Methods that do nothing by default may be overridden.
# ruff: noqa: B027

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.context import SourceContext
    from penstock.types import Batch


class SinkWriter(ABC):
    """Writes batches; two-phase commit when ``exactly_once``.

    ``write`` only buffers or hands over; back-pressure is ``ready()``.
    """

    #: Whether a restored writer chooses its committables with ``takes``; else they are dealt out in turn.
    shares_committables: bool = False

    def takes(self, ctx: SourceContext, number: int, item: bytes) -> bool:
        """Whether this writer takes committable ``number``, ``item``, of those of all writers. Called before ``open``, with the
        ``ctx`` that ``open`` will get; exactly one subtask must take each."""
        return number % ctx.parallelism == ctx.subtask_index

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        """Connect, with ``ctx`` for the table and the subtask.

        ``restored``: committables of the checkpoint that the job was restored from. Commit them again
        (idempotently) before writing anything, and abort everything newer.
        """
        self.ctx = ctx

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take rows (with ``kinds`` when the sink takes changelogs)."""

    def watermark(self, watermark: int) -> None:
        """The rows written so far complete event time up to ``watermark`` (µs); 2**63 - 1: all input has ended."""

    def ready(self) -> bool:
        """Whether the writer takes rows now. If not, the task awaits ``wait_ready`` before the next
        ``write``."""
        return True

    async def wait_ready(self) -> None:
        """Wait until ``ready()`` is True."""

    def away(self) -> str | None:
        """The server that does not answer, and what it said last, without credentials; None: nothing is waited for."""
        return None

    async def flush(self) -> None:
        """The input ran empty: write out buffered rows, if the guarantee allows it."""

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        """Cut the epoch *now*, synchronously; the awaitable gives its committables once
        they are durable. Rows written after the call belong to the next epoch. Raising
        from the awaitable declines the checkpoint and fails the task."""

        async def nothing() -> list[bytes]:
            await self.flush()
            return []

        return nothing()

    async def commit(self, checkpoint_id: int) -> None:
        """Make everything up to this checkpoint's epoch visible. The call may be repeated."""

    def needs_commit(self) -> bool:
        """Whether written rows wait for ``commit``. If so, the task finishes at the end of its input only
        after one more checkpoint is complete."""
        return type(self).commit is not SinkWriter.commit

    async def finish(self) -> None:
        """All input has ended and everything is committed. This is the last call before the final state is
        taken (``begin_checkpoint``, unless there was a final checkpoint) and before ``close``."""

    async def stopped(self) -> None:
        """The job was stopped with a savepoint, and everything up to it is committed. Called instead of ``finish``: the
        input may not have ended, and a job that starts from the savepoint may give more rows."""
        await self.finish()

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""

    async def abandon(self, ctx: SourceContext) -> None:
        """Called instead of all methods above: delete what attempts before ``ctx.attempt`` staged and no
        checkpoint will commit.

        An engine that has no checkpoint to continue from calls this.
        """
