"""The remembered rows about active jobs: when they are asked for anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import ObjectStoreError
from penstock.messages.cluster import JobOverview
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.overviews import FRESH_MS, LISTED_MS, OLDEST_MS, Overviews


class Masters:
    """The jobs that are active, what their masters answer, and who was asked."""

    def __init__(self, *jobs: str) -> None:
        self.status = dict.fromkeys(jobs, JobStatus.RUNNING)
        self.ended: list[str] = []
        #: Raised by each request to a master.
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.listed = 0
        self.now = 1_000_000
        self.during: Any = None
        self.overviews = Overviews(self._list, self._list_ended, self._ask, self)

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += int(1000 * seconds)
        await asyncio.sleep(0)

    async def _list(self) -> list[str]:
        self.listed += 1
        await asyncio.sleep(0)
        return list(self.status)

    async def _list_ended(self) -> list[JobOverview]:
        return [_row(job_id, JobStatus.FINISHED) for job_id in self.ended]

    async def _ask(self, job_id: str) -> JobOverview | None:
        self.asked.append(job_id)
        status = self.status.get(job_id)
        await asyncio.sleep(0)
        if self.during is not None:
            self.during(job_id)
        if self.error is not None:
            raise self.error
        return None if status is None else _row(job_id, status)

    async def seen(self) -> dict[str, JobStatus]:
        active, ended = await self.overviews.all()
        return {row.job_id: row.status for row in [*ended, *active]}


def _row(job_id: str, status: JobStatus) -> JobOverview:
    return JobOverview(job_id=job_id, name=job_id, status=status, start_ms=0, attempt=1)


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


def test_a_job_that_has_ended_moves_to_the_other_list_at_once() -> None:
    async def main() -> None:
        masters = Masters("a")
        await masters.seen()
        del masters.status["a"]
        masters.ended.append("a")
        masters.now += LISTED_MS + 1
        assert await masters.seen() == {"a": JobStatus.FINISHED}

    asyncio.run(main())


def test_a_second_request_waits_for_the_lists_that_the_first_one_reads() -> None:
    async def main() -> None:
        masters = Masters("a")
        first, second = await asyncio.gather(masters.seen(), masters.seen())
        assert first == second == {"a": JobStatus.RUNNING}
        assert masters.listed == 1

    asyncio.run(main())


def test_lists_that_cannot_be_read_are_read_again_by_the_next_request() -> None:
    async def main() -> None:
        masters = Masters("a")
        lists, masters.overviews._list_active = masters.overviews._list_active, _fails
        with pytest.raises(ObjectStoreError):
            await masters.seen()
        masters.overviews._list_active = lists
        assert await masters.seen() == {"a": JobStatus.RUNNING}

    asyncio.run(main())


async def _fails() -> list[str]:
    raise ObjectStoreError("the store is away")


def test_a_row_is_the_same_object_until_it_changes() -> None:
    async def main() -> None:
        masters = Masters("a")
        [first], _ = await masters.overviews.all()
        masters.overviews.changed("a")
        [second], _ = await masters.overviews.all()
        assert masters.asked == ["a", "a"]
        assert second is first

    asyncio.run(main())


def test_a_refresh_in_the_background_that_fails_is_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        masters = Masters("a", "b")
        await masters.seen()
        masters.status["a"] = JobStatus.FAILED  # and its event was lost
        masters.error = ObjectStoreError("the store is away")
        masters.now += FRESH_MS + 1
        await masters.seen()
        for _ in range(4):
            await asyncio.sleep(0)
        assert (await masters.seen())["a"] is JobStatus.RUNNING  # what is known
        masters.error = None
        refreshing = masters.overviews._refreshing
        assert refreshing is not None
        await refreshing
        asked = len(masters.asked)
        assert (await masters.seen())["a"] is JobStatus.FAILED
        assert len(masters.asked) == asked

    asyncio.run(main())
    assert "the store is away" in caplog.text


def test_a_row_that_cannot_be_refreshed_is_given_up_when_it_is_too_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        masters = Masters("a")
        await masters.seen()
        masters.error = ObjectStoreError("the store is away")
        masters.now += FRESH_MS + 1
        await masters.seen()
        refreshing = masters.overviews._refreshing
        assert refreshing is not None
        await refreshing
        assert masters.now > 1_000_000 + OLDEST_MS
        with pytest.raises(ObjectStoreError):
            await masters.seen()

    asyncio.run(main())
    assert 5 < caplog.text.count("rows_not_refreshed") < 15


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
