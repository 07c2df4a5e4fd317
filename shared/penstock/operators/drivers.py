"""Operators that reach outside the chain: sources make rows of their own accord, sinks
hand rows to something that may not be ready. The task asks them, on the data thread.
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
    """``start`` is awaited after ``open`` and before any row; ``stop`` before ``close``."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class SourceDriver(AsyncOperator):
    """Makes rows. The task polls it when its input gates are empty-handed."""

    def __init__(self) -> None:
        #: Rows that ``poll`` should give at most, by what they cost here and downstream.
        self.budget = RowBudget(4_096, least=512, most=16_384)

    @abstractmethod
    def poll(self) -> Batch | None:
        """Rows that are there now, or None. Never waits."""

    @abstractmethod
    async def wait(self) -> None:
        """Until ``poll`` or ``ended`` may say something new."""

    @abstractmethod
    def position(self, now_ms: int) -> tuple[int, bool]:
        """(watermark, idle) of the output at this moment."""

    @abstractmethod
    def ended(self) -> bool:
        """Nothing will ever come again."""

    def inputs_idle(self) -> None:
        """Its input gates have said all they know for now (first discovery is over)."""

    def next_position_ms(self, now_ms: int) -> int | None:
        """When ``position`` should be asked again at the latest."""
        return None

    def not_polled(self, for_ms: int) -> None:
        """Back-pressure kept the task from polling for so long."""

    def stop_reading(self) -> None:
        """Stop with a savepoint: behave as if the end were here (no more rows)."""

    def watermark_holder(self) -> str | None:
        return None


class PausingOperator(AsyncOperator):
    """May have to wait for something outside, also in the middle of a batch: it then yields
    an empty batch, and the task pulls on when it is ready again."""

    @abstractmethod
    def ready(self) -> bool:
        """False: the task pulls no more until ``wait_ready`` returned."""

    @abstractmethod
    async def wait_ready(self) -> None: ...


class SinkDriver(PausingOperator):
    """Takes rows to the outside."""

    #: ``flush`` does something (spares the task a coroutine per pause).
    has_flush: bool = True

    @abstractmethod
    async def flush(self) -> None:
        """Input ran empty."""

    @abstractmethod
    def commit(self, checkpoint_id: int) -> Awaitable[None]:
        """The checkpoint is complete: make its output visible."""

    @abstractmethod
    def wants_final_checkpoint(self) -> bool:
        """Something written waits for a commit."""

    @abstractmethod
    async def complete(self) -> None:
        """All input has ended and is committed."""
