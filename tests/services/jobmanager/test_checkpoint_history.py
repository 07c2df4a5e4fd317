"""What is known of checkpoints, and who was promised a savepoint, after a change of master."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.cluster import CheckpointDetails
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager.checkpoint_history import (
    HISTORY,
    REPLACED,
    CheckpointHistory,
    Statistics,
    merged,
    newest_statistics,
    statistics_among,
    statistics_key,
)
from penstock_services.jobmanager.checkpoints import Request
from penstock_services.jobmanager.effects import DeleteObjects, KeepStatistics
from penstock_services.jobmanager.stages import Stage
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.simulated import Cluster

CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.tolerable-failed-checkpoints": "100",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
}


def cluster_at(seed: int, completed: int, **config: str) -> Cluster:
    cluster = Cluster(pipeline(), seed=seed, unbounded=True, config=CONFIG | config)
    cluster.run(until=lambda: count(cluster, msg.CheckpointCompleted) >= completed)
    cluster.run(until=lambda: not cluster.core.coordinator.in_flight)
    return cluster


def count(cluster: Cluster, kind: type) -> int:
    return sum(isinstance(entry, kind) for entry in cluster.log)


def details(cluster: Cluster) -> msg.JobDetails:
    return cluster.ask(msg.RequestJobDetails(job_id="job"))


def adopted(cluster: Cluster) -> None:
    cluster.take_over()
    cluster.run(until=lambda: cluster.core.stage is Stage.DEPLOYED)


def trigger(cluster: Cluster, trigger_id: str, **more: str) -> msg.Ack | msg.Refused:
    return cluster.ask(msg.TriggerSavepoint(command_id=trigger_id, job_id="job", **more))


def outcome(cluster: Cluster, trigger_id: str) -> CheckpointDetails | None:
    return next((c for c in details(cluster).checkpoints if c.trigger_id == trigger_id), None)


def test_the_successor_shows_the_same():
    cluster = cluster_at(1, 14)
    task = cluster.tasks["sum", 0]
    cluster.run(until=lambda: cluster.core.coordinator.in_flight)
    (doomed,) = cluster.core.coordinator.in_flight
    cluster.decline(task, doomed, finishing=False)
    cluster.run(until=lambda: not cluster.core.coordinator.in_flight)
    before = details(cluster)
    assert before.checkpoint_counts["failed"] == 1
    assert all(c.subtasks and c.slowest for c in before.checkpoints if c.status == "COMPLETED")
    cluster.run(until=lambda: not cluster.core.coordinator.in_flight)
    adopted(cluster)
    after = details(cluster)
    known = [c for c in after.checkpoints if c.status != "IN_PROGRESS"]
    assert known == before.checkpoints
    assert after.checkpoint_counts | {"in_progress": 0, "total": 0} == before.checkpoint_counts | {
        "in_progress": 0, "total": 0,
    }  # fmt: skip
    assert len(cluster.statistics) == 10, "those that are shown"


def test_statistics_do_not_pile_up_whoever_wrote_them():
    cluster = cluster_at(7, 12)
    for masters in range(2, 5):
        adopted(cluster)
        before = count(cluster, msg.CheckpointCompleted)
        cluster.run(until=lambda before=before: count(cluster, msg.CheckpointCompleted) >= before + 3)
        cluster.run(until=lambda: not cluster.core.coordinator.in_flight)
        assert len(cluster.statistics) == HISTORY, f"after {masters} masters"
        shown = {c.id for c in details(cluster).checkpoints if c.status != "IN_PROGRESS"}
        assert {s.details.id for s in cluster.statistics.values()} == shown


def test_a_successor_deletes_what_is_not_shown_with_its_own_first_statistics():
    left = [statistics_key("job", n, 2) for n in range(1, 14)] + [statistics_key("job", 13, 5)]
    history = CheckpointHistory("job", 9)
    history.inherit([], completed=13, failed=0, restored=0, statistics=left)
    history.began(ended(14))
    keep, delete = history.ended(ended(14))
    assert keep.key == statistics_key("job", 14, 9)
    # Of 13 two masters wrote, and with 14 there are ten again.
    assert delete == DeleteObjects(
        frozenset(statistics_key("job", n, 2) for n in (1, 2, 3, 4, 13)),
    )
    history.began(ended(15))
    assert history.ended(ended(15))[1:] == [DeleteObjects(frozenset({statistics_key("job", 5, 2)}))]


def test_what_was_refused_is_shown_among_the_last_and_has_no_statistics():
    history = CheckpointHistory("job", 1)
    for n in range(1, 31):
        history.began(ended(1))
        effects = history.ended(ended(n))
        history.refused(Request(f"t-{n}", "savepoint", None), "no", n)
    assert len(history.newest_first()) == HISTORY
    assert [type(e) for e in effects] == [KeepStatistics, DeleteObjects]
    assert effects[1].keys == {statistics_key("job", 20, 1)}


def test_one_that_was_in_flight_failed_with_its_master():
    cluster = cluster_at(2, 2)
    cluster.run(until=lambda: cluster.core.coordinator.in_flight)
    (in_flight,) = cluster.core.coordinator.in_flight
    cluster.run(until=lambda: any(in_flight in task.passed for task in cluster.tasks.values()))
    adopted(cluster)
    found = next(c for c in details(cluster).checkpoints if c.id == in_flight)
    assert (found.status, found.failure) == ("FAILED", REPLACED)
    assert details(cluster).checkpoint_counts["failed"] == 1


@pytest.mark.parametrize("kind", ["savepoint", "stop"])
def test_a_promised_savepoint_is_the_successors_to_keep(kind):
    cluster = cluster_at(3, 2)
    assert trigger(cluster, "t-1", kind=kind) == msg.Ack()
    assert outcome(cluster, "t-1").status == "IN_PROGRESS"
    adopted(cluster)
    assert outcome(cluster, "t-1").status == "IN_PROGRESS"
    assert trigger(cluster, "t-1", kind=kind) == msg.Ack(), "a repeat asks for no second one"
    if kind == "stop":
        cluster.unbounded = False
    cluster.run(until=lambda: outcome(cluster, "t-1").status != "IN_PROGRESS")
    found = outcome(cluster, "t-1")
    assert found.status == "COMPLETED"
    assert [found.path] == list(cluster.savepoints)
    adopted(cluster)
    assert outcome(cluster, "t-1") == found
    assert trigger(cluster, "t-1", kind=kind) == msg.Ack()
    assert count(cluster, msg.SavepointRequested) == 1


def test_one_that_is_interrupted_by_a_failure_says_so_whoever_leads():
    cluster = cluster_at(4, 2)
    trigger(cluster, "t-1")
    cluster.set_state(
        cluster.tasks["sum", 0],
        ExecutionState.FAILED,
        error=slot_msg.ErrorInfo(error={"type": "FunctionError", "message": "boom"}),
    )
    cluster.run(until=lambda: outcome(cluster, "t-1").status == "FAILED")
    assert outcome(cluster, "t-1").failure == "the job failed"
    cluster.run(until=lambda: count(cluster, msg.SavepointFailed) == 1)
    adopted(cluster)
    assert outcome(cluster, "t-1").failure == "the job failed"
    assert not cluster.savepoints


def test_a_place_where_nothing_can_be_written_is_refused_before_anybody_writes():
    cluster = cluster_at(5, 1)
    answer = trigger(cluster, "t-1", directory="denied/x")
    assert answer == msg.Refused(reason="nobody may write there")
    assert not any(p.kind == "savepoint" for p in cluster.core.coordinator.in_flight.values())
    assert count(cluster, msg.SavepointRequested) == 0
    assert trigger(cluster, "t-2", directory="elsewhere") == msg.Ack()


def test_a_request_while_the_job_ends_gets_its_answer():
    cluster = cluster_at(6, 1)
    token = 10**9
    cluster.apply(cluster_asked(token, "t-1"))
    cluster.ask(msg.CancelJob(command_id="c", job_id="job"))
    cluster.run()
    assert isinstance(cluster.answers[token], msg.Refused)
    assert cluster.stopped.status is JobStatus.CANCELED
    *_, last = cluster.log
    assert isinstance(last, msg.Terminal), "nothing follows it"


def cluster_asked(token: int, trigger_id: str):
    from penstock_services.common.core import Asked

    return Asked(token, msg.TriggerSavepoint(command_id=trigger_id, job_id="job"))


def ended(n: int, status: str = "COMPLETED", **more) -> CheckpointDetails:
    return CheckpointDetails(
        id=n, status=status, trigger_timestamp_ms=n, end_timestamp_ms=more.pop("at", n + 1), **more
    )


def test_what_was_kept_and_what_the_log_says():
    logged = [ended(1), ended(0, "FAILED", trigger_id="t", at=4), ended(4)]
    kept = [
        Statistics(details=ended(1, size_bytes=7), failed=0),
        Statistics(details=ended(2, "FAILED"), failed=3),
        # Another master used the id again, and the log tells what became of that one.
        Statistics(details=ended(4, "FAILED"), failed=2),
    ]
    found, failed = merged(logged, kept)
    assert [(d.id, d.status, d.size_bytes) for d in found] == [
        (1, "COMPLETED", 7), (2, "FAILED", 0), (0, "FAILED", 0), (4, "COMPLETED", 0),
    ]  # fmt: skip
    assert failed == 3


def test_of_two_masters_with_the_same_id_the_later_counts():
    keys = [statistics_key("job", n, epoch) for n, epoch in [(3, 2), (3, 11), (10, 11), (9, 2)]]
    others = ["jobs/job/checkpoints/3/2/manifest", "jobs/job/checkpoints/final/v-0-1"]
    assert newest_statistics("job", keys + others) == [
        statistics_key("job", 10, 11), statistics_key("job", 9, 2), statistics_key("job", 3, 11),
    ]  # fmt: skip
    assert statistics_among("job", others + keys) == tuple(keys)
