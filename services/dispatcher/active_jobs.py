"""The jobs that have not ended, as all their masters tell of them: asked a few at a time, and it is known who did not answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.messages.cluster import JobDetails

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

T = TypeVar("T")

#: Masters that are asked at once. A thousand questions at once queue behind each other for longer than a master may take to
#: answer, and hold up every other request of the dispatcher meanwhile.
AT_ONCE = 16
#: After so many seconds a master that does not answer holds up no other question: a thousand of them cost 3 s.
TURN_S = 0.05


class ActiveJobs(NamedTuple):
    """The jobs that have not ended. Receivers must not change the lists.

    ``details``: in the order of their start. ``unanswered``: the ids of those whose masters did not answer in time. What
    ``details`` says of these is from their logs, without metrics; a job whose log has no entry is missing.
    """

    details: Sequence[JobDetails]
    unanswered: Sequence[str] = ()

    @classmethod
    def of(cls, details: Iterable[JobDetails], unanswered: Iterable[str]) -> ActiveJobs:
        """Both are given in any order."""
        return cls(sorted(details, key=lambda job: (job.start_ms, job.job_id)), sorted(unanswered))


async def asked_in_turn(ask: Callable[[str], Awaitable[T]], job_ids: Iterable[str]) -> list[T]:
    """The answers, in the order of ``job_ids``; ``AT_ONCE`` are asked at a time. Raises what a question raises."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(job_id: str) -> T:
        async with _turn(turns):
            return await ask(job_id)

    return await asyncio.gather(*map(one, job_ids))


@contextlib.asynccontextmanager
async def _turn(turns: asyncio.Semaphore) -> AsyncIterator[None]:
    """Waits for a turn, and gives it back at the end or after ``TURN_S``."""
    await turns.acquire()
    loop = asyncio.get_running_loop()
    given_back = loop.call_later(TURN_S, turns.release)
    try:
        yield
    finally:
        if loop.time() < given_back.when():
            given_back.cancel()
            turns.release()
