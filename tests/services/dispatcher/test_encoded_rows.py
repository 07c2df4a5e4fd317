"""The rows of jobs as JSON that is made once."""

from __future__ import annotations

import msgspec
import pytest

from penstock.messages.cluster import JobOverview
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.jobs import EncodedRows, JobsOverview, jobs_overview

ODD = 'of "duration":7 and %d %b, \x00 \\u0000, ü, {"last-modification":0}'


def row(job_id: str, name: str = "a job", status: JobStatus = JobStatus.RUNNING, **more: int) -> JobOverview:
    return JobOverview(
        job_id=job_id, name=name, status=status, start_ms=1_000, attempt=2, tasks={"RUNNING": 3}, **more
    )


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row("a")],
        [
            row("a", ODD),
            row("b", "", JobStatus.FAILED, end_ms=1_500),
            row("c", ODD, end_ms=2_000),
            row("d", interactive=True),
        ],
    ],
)
def test_the_json_is_that_of_the_view_at_each_moment(rows: list[JobOverview]) -> None:
    encoded = EncodedRows()
    for now_ms in (1_000, 5_000, 5_000, 90_000_000):
        assert encoded.jobs_overview(rows, now_ms) == msgspec.json.encode(jobs_overview(rows, now_ms))


def test_a_row_that_has_changed_is_encoded_again_and_one_that_is_gone_is_forgotten() -> None:
    def seen(rows: list[JobOverview]) -> list[tuple[str, str]]:
        found = msgspec.json.decode(encoded.jobs_overview(rows, 2_000), type=JobsOverview)
        return [(job.jid, job.state) for job in found.jobs]

    encoded = EncodedRows()
    a, b = row("a"), row("b")
    assert seen([a, b]) == [("a", "RUNNING"), ("b", "RUNNING")]
    assert seen([row("a", status=JobStatus.FAILING), b]) == [("a", "FAILING"), ("b", "RUNNING")]
    assert seen([b]) == [("b", "RUNNING")]
    assert list(encoded._known) == ["b"]
