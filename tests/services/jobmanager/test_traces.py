"""The spans of a job's life, made of its events."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.messages import job_events as ev
from penstock.messages.states import JobStatus as S
from penstock_services.common.spans import Span
from penstock_services.jobmanager.traces import JobSpans

JOB = "0a" * 16


def told(*events: Any) -> list[Span]:
    spans = JobSpans("orders")
    return [
        span for n, (kind, at, fields) in enumerate(events) for span in spans.spans(made(kind, at, n, fields))
    ]


def made(kind: Any, at: int, n: int, fields: dict[str, Any]) -> ev.JobEvent:
    event: ev.JobEvent = kind(job_id=JOB, epoch=1, sequence=n + 1, timestamp_ms=at, **fields)
    return event


def status(at: int, now: S, before: S, attempt: int = 1) -> tuple[Any, int, dict[str, Any]]:
    return ev.JobStatusChanged, at, {"status": now, "previous": before, "attempt": attempt}


def checkpoint(at: int, **fields: Any) -> tuple[Any, int, dict[str, Any]]:
    return ev.CheckpointChanged, at, {"checkpoint_id": 7, "kind": "checkpoint", **fields}


LED = (ev.JobMasterChanged, 1_000, {"jobmanager_id": "jobmanager-1"})
FAILED = (
    ev.FailureNoted,
    3_000,
    {"code": "PS-FUNCTION", "message": "map raised", "attempt": 1, "task": "map (1/2)"},
)

CASES = {
    "a start": ((LED, status(1_400, S.RUNNING, S.CREATED)), [("JobInitialization", 1_000, 1_400, None)]),
    "a whole life": (
        (LED, status(1_400, S.RUNNING, S.CREATED), status(9_000, S.FINISHED, S.RUNNING)),
        [("JobInitialization", 1_000, 1_400, None), ("Job", 1_000, 9_000, None)],
    ),
    "a recovery": (
        (LED, status(1_400, S.RUNNING, S.CREATED), FAILED, status(3_100, S.RESTARTING, S.RUNNING),
         status(4_000, S.RUNNING, S.RESTARTING, 2)),
        [("JobInitialization", 1_000, 1_400, None), ("JobInitialization", 3_100, 4_000, None),
         ("Recovery", 3_000, 4_000, "map raised")],
    ),
    "a job that fails": (
        (LED, status(1_400, S.RUNNING, S.CREATED), FAILED, status(3_200, S.FAILED, S.FAILING)),
        [("JobInitialization", 1_000, 1_400, None), ("Job", 1_000, 3_200, "map raised")],
    ),
    "a checkpoint": (
        (LED, checkpoint(2_000, status="IN_PROGRESS"), checkpoint(2_500, status="COMPLETED", duration_ms=500, size_bytes=42)),
        [("Checkpoint", 2_000, 2_500, None)],
    ),
    "a checkpoint that fails": (
        (LED, checkpoint(2_500, status="FAILED", duration_ms=100, failure="it expired")),
        [("Checkpoint", 2_400, 2_500, "it expired")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_events_become_spans(events: tuple[Any, ...], expected: list[tuple[Any, ...]]) -> None:
    assert [(s.name, s.start_ms, s.end_ms, s.error) for s in told(*events)] == expected


def test_a_checkpoint_is_a_trace_of_its_own_with_flinks_attributes() -> None:
    (span,) = told(
        LED, checkpoint(2_500, status="COMPLETED", duration_ms=500, size_bytes=42, path="s3://b/7")
    )
    assert span.own_trace
    assert span.attributes == {
        "jobId": JOB,
        "jobName": "orders",
        "checkpointId": 7,
        "checkpointStatus": "COMPLETED",
        "checkpointType": "checkpoint",
        "checkpointedSize": 42,
        "path": "s3://b/7",
    }


def test_only_the_span_of_the_job_is_the_root() -> None:
    spans = told(LED, status(1_400, S.RUNNING, S.CREATED), status(9_000, S.CANCELED, S.CANCELLING))
    assert [(span.name, span.root) for span in spans] == [("JobInitialization", False), ("Job", True)]
