"""The events of a job's life cycle, as its master tells them."""

from __future__ import annotations

import msgspec
import pytest

from penstock.messages.job_events import (
    CheckpointChanged,
    ExecutionStateChanged,
    FailureNoted,
    JobEvents,
    JobMasterChanged,
    JobStatusChanged,
    RequestJobEvents,
    after,
    decode_event,
)
from penstock.messages.states import ExecutionState, JobStatus
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster, Faults


def of(cluster: Cluster, kind: type) -> list:
    return [event for event in cluster.published if isinstance(event, kind)]


def test_a_life_from_the_first_event_to_the_last() -> None:
    cluster = Cluster(pipeline(), 3, config={"execution.checkpointing.interval": "50 ms"})
    cluster.run()
    events = cluster.published
    assert isinstance(events[0], JobMasterChanged)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    statuses = of(cluster, JobStatusChanged)
    assert [e.previous for e in statuses[1:]] == [e.status for e in statuses[:-1]]
    assert statuses[-1].status is JobStatus.FINISHED
    assert events[-1] == statuses[-1], "nothing is told after the end"
    # Each of the six subtasks, in the order of its states.
    for vertex, index in (("enumerate", 0), ("read", 0), ("read", 1), ("sum", 0), ("sum", 1), ("sink", 0)):
        states = [
            e.state
            for e in of(cluster, ExecutionStateChanged)
            if (e.vertex_id, e.subtask_index) == (vertex, index)
        ]
        assert states[0] is ExecutionState.CREATED
        assert states[-1] is ExecutionState.FINISHED
        assert ExecutionState.RUNNING in states
    checkpoints = of(cluster, CheckpointChanged)
    begun = {e.checkpoint_id for e in checkpoints if e.status == "IN_PROGRESS"}
    assert begun
    assert begun == {e.checkpoint_id for e in checkpoints if e.status in ("COMPLETED", "FAILED")}
    assert all(e.duration_ms is not None for e in checkpoints if e.status == "COMPLETED")
    # The archive has the last of them, so that a reader can come late.
    assert cluster.archived.details.events[-1] == events[-1]
    assert decode_event(msgspec.json.encode(events[-1])) == events[-1]


def test_failures_and_the_next_attempt() -> None:
    cluster = Cluster(pipeline(), 5, faults=Faults(task_failure=0.05), config={"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "50", "restart-strategy.fixed-delay.delay": "10 ms"})  # fmt: skip
    cluster.run()
    noted = of(cluster, FailureNoted)
    assert noted
    assert all(e.message for e in noted)
    attempts = {e.attempt for e in of(cluster, ExecutionStateChanged)}
    assert len(attempts) > 1
    restarting = [e for e in of(cluster, JobStatusChanged) if e.status is JobStatus.RESTARTING]
    assert restarting


def test_the_master_tells_what_it_remembers() -> None:
    cluster = Cluster(pipeline(), 3, unbounded=True)
    cluster.run(lambda: len(cluster.tasks) == 6)
    all_of_them = cluster.ask(RequestJobEvents(job_id="job"))
    assert isinstance(all_of_them, JobEvents)
    assert all_of_them.complete
    assert list(all_of_them.events) == cluster.published
    some = cluster.published[4]
    rest = cluster.ask(RequestJobEvents(job_id="job", epoch=some.epoch, sequence=some.sequence))
    assert list(rest.events) == cluster.published[5:]
    assert rest.complete


@pytest.mark.parametrize(
    ("asked", "sequences", "complete"),
    [
        ((0, 0), [4, 5, 6], False),  # the first three are forgotten
        ((2, 2), [4, 5, 6], False),
        ((2, 3), [4, 5, 6], True),
        ((2, 5), [6], True),
        ((2, 6), [], True),
        ((1, 9), [4, 5, 6], False),  # of an earlier master
        ((3, 1), [], False),  # of a later one
    ],
)
def test_what_comes_after_a_position(asked: tuple[int, int], sequences: list[int], complete: bool) -> None:
    known = tuple(
        JobMasterChanged(job_id="j", epoch=2, sequence=n, timestamp_ms=0, jobmanager_id="x")
        for n in (4, 5, 6)
    )
    told = after(known, *asked)
    assert [event.sequence for event in told.events] == sequences
    assert told.complete is complete


def test_a_new_master_begins_anew() -> None:
    cluster = Cluster(pipeline(), 3, unbounded=True)
    cluster.run(lambda: len(cluster.tasks) == 6)
    told = len(cluster.published)
    cluster.take_over()
    cluster.run(lambda: len(cluster.published) > told + 6)
    first = cluster.published[told]
    assert isinstance(first, JobMasterChanged)
    assert (first.sequence, first.jobmanager_id) == (1, "jm2")
    assert first.epoch > cluster.published[told - 1].epoch
