"""Verdicts in tables: what is found about a job, the cause chain and the next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.messages.details import CheckpointDetails, JobDetails, SubtaskDetails, VertexDetails
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher.active_jobs import ActiveJobs
from penstock_services.dispatcher.why.findings import ENDED_WATERMARK_MS, Severity, count, span
from penstock_services.dispatcher.why.verdict import verdict
from penstock_services.dispatcher.why_api import WhyApi

NOW = 1_700_000_000_000


def subtask(index: int = 0, state: str = "RUNNING", **metrics: Any) -> SubtaskDetails:
    found = {"records_in_per_second": 0.0, **metrics}
    times = {"INITIALIZING": NOW - 60_000}
    return SubtaskDetails(
        subtask_index=index,
        execution_id=f"e{index}",
        attempt=1,
        state=ExecutionState(state),
        taskmanager_id="tm1",
        timestamps=times,
        metrics=found if state != "CREATED" else {},
    )


def vertex(
    name: str, *subtasks: SubtaskDetails, after: str | None = None, kind: str = "map"
) -> VertexDetails:
    return VertexDetails(
        id=name,
        name=name,
        parallelism=len(subtasks),
        max_parallelism=128,
        operators=[{"uid": name, "name": name, "kind": kind}],
        inputs=[{"id": after, "ship_strategy": "HASH", "exchange": "pipelined"}] if after else [],
        subtasks=list(subtasks),
    )


def job(*vertices: VertexDetails, **fields: Any) -> JobDetails:
    known: dict[str, Any] = {
        "job_id": "j",
        "name": "clicks",
        "status": JobStatus.RUNNING,
        "attempt": 1,
        "epoch": 1,
        "start_ms": NOW - 120_000,
        "timestamps": {"RUNNING": NOW - 100_000},
    }
    return JobDetails(**{**known, **fields}, vertices=list(vertices))


def checkpoint(number: int, status: str = "COMPLETED", took: int = 100, **more: Any) -> CheckpointDetails:
    start = NOW - 20_000 * (10 - number)
    end = start + took if status != "IN_PROGRESS" else None
    return CheckpointDetails(
        id=number, status=status, trigger_timestamp_ms=start, end_timestamp_ms=end, **more
    )


def codes(details: JobDetails) -> list[str]:
    return [finding.code for finding in verdict(details, NOW).findings]


def waits(share: float, index: int = 0, **more: Any) -> SubtaskDetails:
    return subtask(index, back_pressured_ms_per_second=1000 * share, **more)


def busy(share: float, index: int = 0, **more: Any) -> SubtaskDetails:
    return subtask(index, busy_ms_per_second=1000 * share, **more)


def test_a_job_that_runs_well_has_no_findings() -> None:
    found = verdict(
        job(
            vertex("source", busy(0.2, records_out_per_second=50.0), kind="source"),
            vertex("sink", busy(0.1, records_out_per_second=5.0), after="source"),
            checkpoints=[checkpoint(9)],
        ),
        NOW,
    )
    assert (found.severity, found.findings) == (None, [])
    assert found.summary == (
        "The job runs well: it reads 50 and writes 5 records/s; the last checkpoint took 100 ms, 20 s ago."
    )


def test_the_bottleneck_is_the_first_busy_vertex_behind_those_that_wait() -> None:
    found = verdict(
        job(
            vertex("source", waits(0.8), kind="source"),
            vertex("parse", waits(0.7), after="source"),
            vertex("score", busy(0.97), after="parse"),
            vertex("sink", busy(0.1), after="score"),
        ),
        NOW,
    )
    [finding] = found.findings
    assert (finding.code, finding.severity) == ("bottleneck", Severity.WARNING)
    assert finding.subject.vertex_name == "score"
    assert [cause.split("”")[0] for cause in finding.causes] == ["“source", "“parse", "“score"]
    assert "97 %" in finding.causes[-1]
    assert "parallelism (now 1)" in finding.next_step


def test_a_vertex_that_waits_although_its_readers_idle_waits_for_a_system_outside() -> None:
    details = job(vertex("source", waits(0.8), kind="source"), vertex("sink", waits(0.9), after="source"))
    [finding] = verdict(details, NOW).findings
    assert finding.code == "slow-sink"
    assert finding.subject.vertex_name == "sink"


def test_a_full_vertex_that_nobody_waits_for_yet() -> None:
    details = job(vertex("source", busy(0.1), kind="source"), vertex("score", busy(0.95), after="source"))
    assert codes(details) == ["at-its-limit"]


def test_skew_names_the_subtask_and_its_share() -> None:
    rates = [900.0, 30.0, 40.0, 30.0]
    many = vertex(
        "count", *(busy(0.6 if i == 0 else 0.1, i, records_in_per_second=r) for i, r in enumerate(rates))
    )
    [finding] = verdict(job(many), NOW).findings
    assert (finding.code, finding.severity, finding.subject.subtask) == ("skew", Severity.WARNING, 0)
    assert "90 %" in finding.title
    assert "fair share is 25 %" in finding.causes[0]


@pytest.mark.parametrize("rates", [[30.0, 1.0, 1.0], [500.0, 400.0, 450.0], [600.0, 400.0]])
def test_few_records_or_small_differences_are_no_skew(rates: list[float]) -> None:
    details = job(vertex("count", *(busy(0.3, i, records_in_per_second=r) for i, r in enumerate(rates))))
    assert codes(details) == []


def test_a_bottleneck_with_skew_is_one_finding() -> None:
    hot = [busy(0.99, 0, records_in_per_second=900.0), busy(0.1, 1, records_in_per_second=10.0)]
    found = verdict(
        job(vertex("source", waits(0.9), kind="source"), vertex("count", *hot, after="source")), NOW
    )
    [finding] = found.findings
    assert finding.code == "bottleneck"
    assert any("skewed" in cause for cause in finding.causes)
    assert "hot keys" in finding.next_step


US = 1000


def source(*marks: int | None, holder: str | None = None) -> VertexDetails:
    return vertex(
        "orders",
        *(
            subtask(i, output_watermark=None if ms is None else ms * US, watermark_holder=holder)
            for i, ms in enumerate(marks)
        ),
        kind="source",
    )


def test_the_slowest_split_holds_the_watermark() -> None:
    [finding] = verdict(job(source(NOW, NOW - 600_000, holder="split orders-3")), NOW).findings
    assert (finding.code, finding.subject.subtask) == ("watermark-held", 1)
    assert finding.subject.channel == "split orders-3"
    assert "10 min" in finding.title


def test_a_subtask_without_a_watermark_holds_it_too_after_a_while() -> None:
    details = job(source(NOW, None))
    [finding] = verdict(details, NOW).findings
    assert (finding.code, finding.subject.subtask) == ("watermark-held", 1)
    early = job(source(NOW, None), timestamps={"RUNNING": NOW - 5_000})
    assert codes(early) == []


@pytest.mark.parametrize("marks", [(NOW, NOW - 30_000), (None, None), (NOW, ENDED_WATERMARK_MS)])
def test_watermarks_that_hold_nothing(marks: tuple[int | None, ...]) -> None:
    assert codes(job(source(*marks))) == []


def test_a_source_lags_if_records_wait_longer_than_a_minute() -> None:
    gauges = [{"gauges": {"pendingRecords": 100_000, "currentEmitEventTimeLag": 7_200_000}}]
    slow = vertex("orders", subtask(operators=gauges, records_out_per_second=100.0), kind="source")
    [finding] = verdict(job(slow), NOW).findings
    assert finding.code == "lagging"
    assert "17 min" in finding.causes[0]
    fast = vertex("orders", subtask(operators=gauges, records_out_per_second=5_000.0), kind="source")
    assert codes(job(fast)) == []


ERROR = {
    "timestamp_ms": NOW - 60_000,
    "exception": "…",
    "task": "Check (1/2)",
    "operator": "Check",
    "record": "{'customer': 7}",
    "location": "tm1",
    "attempt": 1,
    "error": {
        "message": "the function raised ValueError",
        "user_traceback": 'Traceback (most recent call last):\n  File "job.py", line 5, in check\nValueError: no contract',
        "remedy": "correct the function",
    },
}


@pytest.mark.parametrize(
    ("status", "severity", "begins"),
    [
        ("FAILED", Severity.ERROR, "The job failed: the function raised ValueError"),
        ("RESTARTING", Severity.ERROR, "The job restarts after a failure (attempt 1)"),
        ("RUNNING", Severity.WARNING, "The job was restarted 60 s ago"),
    ],
)
def test_a_failure_shows_the_users_line(status: str, severity: Severity, begins: str) -> None:
    found = verdict(job(status=JobStatus(status), exceptions=[ERROR]), NOW)
    finding = found.findings[0]
    assert (finding.code, finding.severity, finding.page) == ("failure", severity, "exceptions")
    assert finding.title.startswith(begins)
    assert "Your code raised it in job.py, line 5, in check: ValueError: no contract" in finding.causes
    assert finding.next_step == "Correct the function"


def test_an_old_failure_is_no_news() -> None:
    old = {**ERROR, "timestamp_ms": NOW - 3_600_000}
    assert codes(job(exceptions=[old])) == []


async def test_a_query_that_failed_has_no_verdict_among_jobs() -> None:
    failed = {"status": JobStatus.FAILED, "end_ms": 1_000}
    known = {x: job(job_id=x, name=x, result_schema=y, **failed) for x, y in (("a", None), ("b", {}))}

    async def details(job_id: str) -> JobDetails:
        return known[job_id]

    api = WhyApi(SimpleNamespace(details=details), SimpleNamespace(now_ms=lambda: 2_000))  # type: ignore[arg-type]
    found = await api.verdicts(ActiveJobs([]), [d.overview() for d in known.values()])
    assert [verdict.name for verdict in found.jobs] == ["a"]


def test_a_job_that_waits_for_slots() -> None:
    details = job(status=JobStatus.CREATED, waiting_for="2 slots are missing: 4 are needed, 2 are there")
    [finding] = verdict(details, NOW).findings
    assert (finding.code, finding.page) == ("waiting", "taskmanagers")
    assert "taskmanager.numberOfTaskSlots" in finding.next_step


@pytest.mark.parametrize("state", ["RUNNING", "INITIALIZING"])
def test_a_server_outside_that_is_away(state: str) -> None:
    said = "connector 'kafka', localhost:9092: Connection refused"
    found = verdict(
        job(vertex("orders", subtask(0, state=state, away=[said]), subtask(1, away=[said]), subtask(2))), NOW
    )
    [finding] = [f for f in found.findings if f.code == "server-away"]
    assert found.summary == finding.title
    assert finding.title == "“orders” waits for a server that does not answer."
    assert finding.causes == [said]


def test_a_step_that_hangs_is_shown_with_its_frame() -> None:
    stalled = {"tasks": ["Score (1/2)"], "frame": 'File "job.py", line 9 in f', "since_ms": NOW - 30_000}
    [finding] = verdict(job(stalled=[stalled]), NOW).findings
    assert (finding.code, finding.severity) == ("stalled", Severity.ERROR)
    assert "job.py" in finding.causes[0]


def test_a_long_restore() -> None:
    restores = subtask(state="INITIALIZING", restore_bytes=1_000, restored_bytes=250)
    [finding] = verdict(job(vertex("count", restores)), NOW).findings
    assert finding.code == "restoring"
    assert "250 of 1,000 bytes" in finding.title


SLOWEST = {
    "operator": "count (2/4)",
    "vertex_id": "v",
    "subtask_index": 1,
    "phase": "aligning its inputs",
    "ms": 9,
}


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([checkpoint(9, "FAILED", failure="expired")], ["checkpoint-failing"]),
        ([checkpoint(9), checkpoint(8, "FAILED", failure="expired")], []),
        ([checkpoint(9, took=15_000, slowest=SLOWEST)], ["checkpoint-slow"]),
        ([checkpoint(8, "IN_PROGRESS", slowest=SLOWEST), checkpoint(7)], ["checkpoint-slow"]),
        ([], []),
    ],
)
def test_checkpoints(history: list[CheckpointDetails], expected: list[str]) -> None:
    assert codes(job(checkpoints=history)) == expected


def test_a_slow_checkpoint_says_what_held_it_up_and_what_to_do() -> None:
    [finding] = verdict(job(checkpoints=[checkpoint(9, took=15_000, slowest=SLOWEST)]), NOW).findings
    assert "“count (2/4)” took longest: 9 ms, aligning its inputs." in finding.causes
    assert "execution.checkpointing.unaligned.enabled" in finding.next_step


def test_many_failed_checkpoints_are_an_error() -> None:
    history = [checkpoint(n, "FAILED", failure="no space") for n in (9, 8, 7)]
    found = verdict(job(checkpoints=history), NOW)
    assert found.severity is Severity.ERROR
    assert found.summary == "The last 3 checkpoints failed: no space"


def test_checkpoints_that_are_off() -> None:
    config = {"execution.checkpointing.interval": "0"}
    assert codes(job(config=config)) == ["checkpoints-off"]
    assert codes(job(config=config, bounded=True)) == []


def test_records_set_aside_and_dropped() -> None:
    operators = [{"counters": {"numRecordsInErrors": 3, "numLateRecordsDropped": 4}}]
    assert codes(job(vertex("count", subtask(operators=operators)))) == ["dead-letters", "late-records"]


def test_errors_come_first() -> None:
    found = verdict(
        job(vertex("a", busy(0.95)), status=JobStatus.RUNNING, waiting_for="1 slot is missing", config={}),
        NOW,
    )
    assert [f.severity for f in found.findings] == [Severity.ERROR, Severity.WARNING]
    assert found.summary == found.findings[0].title


@pytest.mark.parametrize(
    ("ms", "text"), [(340, "340 ms"), (1500, "1.5 s"), (60_000, "60 s"), (600_000, "10 min"), (9e6, "2.5 h")]
)
def test_spans(ms: float, text: str) -> None:
    assert span(ms) == text


def test_counts() -> None:
    assert [count(n) for n in (3, 4.25, 1234.6)] == ["3", "4.2", "1,235"]


def test_records_that_a_source_reads_are_counted_before_its_chain() -> None:
    """A local aggregation in the source's chain sends a thousandth of them on."""
    operators = ({"uid": "s", "name": "s", "counters": {"numRecordsOut": 4_000_000}},)
    source = subtask(records_out_per_second=50.0, records_out=4_000, operators=operators)
    read = vertex("read", source, kind="source")
    sink = vertex("sink", subtask(records_out_per_second=5.0), after="read", kind="sink")
    assert "it reads 50,000 and writes 5 records/s" in verdict(job(read, sink), NOW).summary
