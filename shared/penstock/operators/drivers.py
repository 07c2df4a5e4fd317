"""Operators with I/O: sources produce rows on their own, sinks write rows to systems that may not be ready.

The task calls all their methods on the data thread.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from penstock.operators.budget import RowBudget
from penstock.operators.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from penstock.types.batch import Batch


class AsyncOperator(Operator):
    """An operator with asynchronous set-up: the task awaits ``start`` after ``open`` and ``stop`` before ``close``."""

    async def start(self) -> None:
        """Connect to external systems. No row is processed before it returns."""

    async def stop(self) -> None:
        """Disconnect. The task calls it also after a failure or cancellation."""


class SourceDriver(AsyncOperator):
    """Produces rows. The task polls it while the task's input gates are empty."""

    def __init__(self) -> None:
        #: The most rows that ``poll`` should return, estimated from their cost in this task.
        self.budget = RowBudget(4_096, least=512, most=16_384)

    @abstractmethod
    def poll(self) -> Batch | None:
        """The rows that are available now, or None. It never waits."""

    @abstractmethod
    async def wait(self) -> None:
        """Wait until ``poll`` or ``ended`` may return something new."""

    @abstractmethod
    def position(self, now_ms: int) -> tuple[int, bool]:
        """(watermark in µs, whether idle) of the output at ``now_ms`` (ms since the epoch)."""

    @abstractmethod
    def ended(self) -> bool:
        """Whether no more rows will ever come."""

    def inputs_idle(self) -> None:
        """Called when all input gates are idle: the enumerator has sent the result of its first discovery."""

    def next_position_ms(self, now_ms: int) -> int | None:
        """The time (ms) at which the task must call ``position`` again at the latest; None if at no certain time."""
        return None

    def not_polled(self, for_ms: int) -> None:
        """Called when back-pressure kept the task from polling for ``for_ms`` milliseconds."""

    def stop_reading(self) -> None:
        """End the source here, for a stop with a savepoint: no more rows, then ``ended``."""

    def watermark_holder(self) -> str | None:
        """The split that holds the watermark back, for display; None if there is none."""
        return None

    def away(self) -> str | None:
        """The server that the source waits for, and why; None: it waits for none."""
        return None


class PausingOperator(AsyncOperator):
    """An operator that may have to wait for an external system, also in the middle of a batch.

    It then yields an empty batch, and the task continues when ``ready`` is True again.
    """

    @abstractmethod
    def ready(self) -> bool:
        """Whether the task may continue. If False, the task awaits ``wait_ready`` first."""

    @abstractmethod
    async def wait_ready(self) -> None:
        """Wait until ``ready`` may be True."""


class SinkDriver(PausingOperator):
    """Writes rows to an external system."""

    #: False if ``flush`` does nothing; the task then does not call it.
    has_flush: bool = True

    @abstractmethod
    async def flush(self) -> None:
        """Called when the input runs empty: write buffered rows."""

    @abstractmethod
    def commit(self, checkpoint_id: int) -> Awaitable[None]:
        """The checkpoint is complete: make the output up to it visible."""

    @abstractmethod
    def wants_final_checkpoint(self) -> bool:
        """Whether written output waits for a commit."""

    @abstractmethod
    async def complete(self, *, stopped: bool) -> None:
        """Called once, when all input has ended and is committed. ``stopped``: a savepoint has ended it."""

    def away(self) -> str | None:
        """The server that the sink waits for, and why; None: it waits for none."""
        return None
