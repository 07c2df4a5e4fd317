"""``JobID``, ``JobStatus`` and ``CompletableFuture``, under Flink's names."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class JobID(str):
    """A job's id: 32 hexadecimal digits."""

    __slots__ = ()


class JobStatus(enum.StrEnum):
    """The state of a job. Each member is also a text: its name."""

    INITIALIZING = "INITIALIZING"
    RECONCILING = "RECONCILING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether the job has ended, or is suspended."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED

    def result(self) -> Self:
        """The state itself: PyFlink's client answers with a future of it."""
        return self


class CompletableFuture:
    """A result that comes later. ``wait`` waits for the result and returns it, or raises the error."""

    def __init__(self, wait: Callable[[], Any]) -> None:
        self._wait = wait
        self._answer: list[Any] = []

    @classmethod
    def of(cls, answer: Any) -> CompletableFuture:
        """A future that is done; its result is ``answer``."""
        made = cls(lambda: answer)
        made.result()
        return made

    def done(self) -> bool:
        """Whether ``result`` has returned once, so that the answer is known."""
        return bool(self._answer)

    def result(self) -> Any:
        """Wait for the answer and return it.

        Raises:
            PenstockError: The requested operation has failed.
        """
        if not self._answer:
            self._answer.append(self._wait())
        return self._answer[0]
