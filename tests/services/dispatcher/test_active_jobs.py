"""The details of all jobs: how many masters are asked at once, and what an answer says of those who are silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.bus import serve_typed
from penstock.messages import cluster as msg
from penstock.messages import layout
from penstock.messages.job_master import RequestJobDetails
from penstock.messages.states import JobStatus
from penstock_services.dispatcher import active_jobs, directory
from penstock_services.dispatcher.active_jobs import AT_ONCE, asked_in_turn
from tests.services.dispatcher.conftest import Front


async def test_a_few_are_asked_at_once() -> None:
    running, most = 0, 0

    async def ask(job_id: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return job_id.upper()

    ids = [f"j{number}" for number in range(10 * AT_ONCE)]
    assert await asked_in_turn(ask, ids) == [job_id.upper() for job_id in ids]
    assert most == AT_ONCE


async def test_the_silent_hold_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_jobs, "TURN_S", 0.001)
    last_is_asked = asyncio.Event()

    async def ask(job_id: str) -> str:
        if job_id == "last":
            last_is_asked.set()
        await last_is_asked.wait()
        return job_id

    ids = [*(f"silent {number}" for number in range(3 * AT_ONCE)), "last"]
    assert await asked_in_turn(ask, ids) == ids


async def test_an_error_of_a_question_is_raised() -> None:
    async def ask(job_id: str) -> str:
        raise KeyError(job_id)

    with pytest.raises(KeyError, match="one"):
        await asked_in_turn(ask, ["one"])


async def test_an_answer_says_whose_masters_were_silent(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MASTER_TIMEOUT_S", 0.05)

    async def silent(_: str, __: bytes) -> None:
        """Takes the question and answers nothing, as a master that is stopped."""

    async def answer(message: Any) -> Any:
        return msg.JobDetails(
            job_id="answers", name="n", status=JobStatus.RUNNING, attempt=1, epoch=1, start_ms=1
        )

    for job_id in ("silent", "answers", "masterless"):
        await front.store.put(layout.active_key(job_id), b"")
    question = RequestJobDetails(job_id="silent")
    await front.bus.transport().serve(front.subjects.to_job("silent", question), silent)
    await serve_typed(
        front.bus.transport(), front.subjects.to_job("answers", question), RequestJobDetails, answer
    )
    why = (await front.http.get("/jobs/why")).json()
    assert [job["jid"] for job in why["jobs"]] == ["answers"]
    assert why["unanswered"] == ["silent"], "nobody serves the third: its submission was interrupted"
    text = (await front.http.get("/metrics")).text
    assert "penstock_jobmanager_numRunningJobs 1.0" in text
    assert "penstock_jobmanager_numUnansweredJobs 1.0" in text
