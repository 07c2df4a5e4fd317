"""The remembered rows about active jobs: when they are asked for anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.messages.cluster import JobOverview
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.overviews import FRESH_MS, LISTED_MS, OLDEST_MS, Overviews


class Masters:
    """The jobs that are active, what their masters answer, and who was asked."""

    def __init__(self, *jobs: str) -> None:
        self.status = dict.fromkeys(jobs, JobStatus.RUNNING)
        self.asked: list[str] = []
        self.listed = 0
        self.now = 1_000_000
        self.during: Any = None
        self.overviews = Overviews(self._list, self._ask, self)

    def now_ms(self) -> int:
        return self.now

    async def _list(self) -> list[str]:
        self.listed += 1
        return list(self.status)

    async def _ask(self, job_id: str) -> JobOverview | None:
        self.asked.append(job_id)
        status = self.status.get(job_id)
        await asyncio.sleep(0)
        if self.during is not None:
            self.during(job_id)
        if status is None:
            return None
        return JobOverview(
            job_id=job_id, name=job_id, status=status, start_ms=0, end_ms=None, attempt=1, tasks={}
        )

    async def seen(self) -> dict[str, JobStatus]:
        return {row.job_id: row.status for row in await self.overviews.active()}


def test_a_second_list_asks_nobody() -> None:
    async def main() -> None:
        masters = Masters("a", "b")
        for _ in range(3):
            assert await masters.seen() == {"a": JobStatus.RUNNING, "b": JobStatus.RUNNING}
        assert masters.asked == ["a", "b"]
        assert masters.listed == 1

    asyncio.run(main())


def test_a_job_that_changed_is_asked_for_before_it_is_shown() -> None:
    async def main() -> None:
        masters = Masters("a", "b")
        await masters.seen()
        masters.status["a"] = JobStatus.FAILING
        masters.overviews.changed("a")
        assert (await masters.seen())["a"] is JobStatus.FAILING
        assert masters.asked == ["a", "b", "a"]

    asyncio.run(main())


def test_a_change_while_the_master_is_asked_makes_the_answer_old() -> None:
    async def main() -> None:
        masters = Masters("a")

        def change(job_id: str) -> None:
            masters.during = None
            masters.status["a"] = JobStatus.RESTARTING
            masters.overviews.changed("a")

        masters.during = change
        await masters.seen()
        assert await masters.seen() == {"a": JobStatus.RESTARTING}

    asyncio.run(main())


def test_a_job_that_an_event_names_is_listed_at_once() -> None:
    async def main() -> None:
        masters = Masters("a")
        await masters.seen()
        masters.status["b"] = JobStatus.CREATED
        masters.overviews.changed("b")
        assert await masters.seen() == {"a": JobStatus.RUNNING, "b": JobStatus.CREATED}

    asyncio.run(main())


def test_without_an_event_the_list_is_read_again_after_a_while() -> None:
    async def main() -> None:
        masters = Masters("a")
        await masters.seen()
        del masters.status["a"]
        masters.now += LISTED_MS + 1
        assert await masters.seen() == {}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("age", "first"), [(FRESH_MS + 1, JobStatus.RUNNING), (OLDEST_MS + 1, JobStatus.FAILED)]
)
def test_an_old_row_is_shown_once_more_and_one_that_is_too_old_is_not(age: int, first: JobStatus) -> None:
    async def main() -> None:
        masters = Masters("a")
        await masters.seen()
        masters.status["a"] = JobStatus.FAILED  # and its event was lost
        masters.now += age
        assert await masters.seen() == {"a": first}
        for _ in range(5):
            await asyncio.sleep(0)
        assert await masters.seen() == {"a": JobStatus.FAILED}

    asyncio.run(main())


def test_a_job_that_was_never_accepted_is_not_shown() -> None:
    async def main() -> None:
        masters = Masters("a")
        masters.status["gone"] = None  # type: ignore[assignment]
        assert await masters.seen() == {"a": JobStatus.RUNNING}

    asyncio.run(main())
