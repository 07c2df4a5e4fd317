"""Restart strategies, what a job asks of its checkpoints, and what is shown of it while no job
manager leads it, in the real cluster: one job whose function raises, dawdles or waits, for as
long as a file says so."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.client import ClusterClient
from penstock.api.planner import plan_spec
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError, ObjectStoreError
from penstock.messages.cluster import JobSpec
from tests.e2e.support import story_of, until_true

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PROGRAM = """
import time
from pathlib import Path

from penstock.api import (
    KeyedProcessFunction, Sink, StreamExecutionEnvironment, Types, ValueStateDescriptor,
)

TOLD = Path(FOLDER)


class Told(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        if (TOLD / "raise").exists():
            raise ValueError("told to")
        if (TOLD / "dawdle").exists():
            time.sleep(0.1)
        while (TOLD / "hold").exists():
            time.sleep(0.05)
        self.seen.update((self.seen.value() or 0) + 1)
        yield value[0], self.seen.value()


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql(
    \"\"\"CREATE TABLE clicks (who BIGINT) WITH (
         'connector' = 'datagen', 'rows-per-second' = '200',
         'fields.who.min' = '1', 'fields.who.max' = '10')\"\"\"
)
(
    env.from_table("clicks")
    .key_by(lambda row: row[0], key_type=Types.LONG())
    .process(Told(), output_type=Types.TUPLE([Types.LONG(), Types.LONG()]))
    .uid("told")
    .sink_to(Sink.connector("blackhole"))
)
env.execute("told")
"""
EVERY_100_MS = {"execution.checkpointing.interval": "100 ms"}
STUBBORN = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "500 ms",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(taskmanagers=1, slots=1) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Iterator[ClusterClient]:
    with ClusterClient(cluster.rest_url) as made:
        yield made


class Job:
    """A job that does what it is told; what the cluster says of it."""

    def __init__(self, client: ClusterClient, job_id: str, folder: Path, log: Path) -> None:
        self.client, self.id, self.folder, self._log = client, job_id, folder, log

    def tell(self, what: str) -> None:
        (self.folder / what).touch()

    def stop_telling(self) -> None:
        for told in self.folder.iterdir():
            told.unlink()

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return until_true(condition, what, lambda: story_of(self.client, self.id))

    @property
    def state(self) -> str:
        return self.client.job(self.id)["state"]

    @property
    def counts(self) -> dict[str, int]:
        return self.client.checkpoints(self.id)["counts"]

    def failures(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return self.client.exceptions(self.id)["exceptionHistory"]["entries"][::-1]

    def pauses_ms(self) -> list[int]:
        """Before each restart, as the job manager's log says them."""
        lines = [line for line in self._log.read_text().splitlines() if self.id in line]
        restarts = [line for line in lines if "job_restarting" in line]
        assert all("told to" in line and "in process_element" in line for line in restarts), restarts
        return [int(re.search(r"delay_ms=(\d+)", line)[1]) for line in restarts]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which files say what the job is to do."""
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def planned(told: Path) -> dict[str, Any]:
    graph = plan_spec(JobSpec(python=PROGRAM.replace("FOLDER", repr(str(told))), parallelism=1))
    return msgspec.to_builtins(graph)


@pytest.fixture
def begin(
    client: ClusterClient, cluster: EmbeddedCluster, told: Path, planned: dict[str, Any]
) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(config: dict[str, str], tell: str | None = None) -> Job:
        if tell is not None:
            (told / tell).touch()
        job_id = client.submit({"job_graph": planned, "config": config})
        made.append(Job(client, job_id, told, cluster.child("jobmanager-0").log))
        return made[-1]

    yield start
    for job in made:
        job.stop_telling()
        client.cancel(job.id)
        job.until(lambda job=job: job.state in ("CANCELED", "FAILED"), "its end")


FAMILY = "restart-strategy"


@pytest.mark.parametrize(
    ("strategy", "options", "pauses_ms", "because"),
    [
        ("none", {}, [], "restart-strategy.type is 'none'"),
        ("fixed-delay", {"attempts": 2, "delay": "250 ms"}, [250, 250], "fixed-delay allows 2 restarts"),
        (
            "failure-rate",
            {"max-failures-per-interval": 2, "failure-rate-interval": "1 h", "delay": "150 ms"},
            [150, 150],
            "failure-rate allows 2 failures in 3600000 ms",
        ),
        (
            "exponential-delay",
            {
                "initial-backoff": "100 ms", "backoff-multiplier": 2, "max-backoff": "300 ms",
                "jitter-factor": 0, "attempts-before-reset-backoff": 3,
            },
            [100, 200, 300],
            "exponential-delay allows 3 restarts",
        ),
    ],
)  # fmt: skip
def test_a_function_that_raises_for_ever(begin, strategy, options, pauses_ms, because) -> None:
    config = {f"{FAMILY}.type": strategy} | {f"{FAMILY}.{strategy}.{k}": v for k, v in options.items()}
    job = begin(config, tell="raise")
    with pytest.raises(FunctionError, match="told to"):
        job.client.wait(job.id)
    assert job.client.job(job.id)["attempt"] == len(pauses_ms) + 1
    assert job.pauses_ms() == pauses_ms
    failures = job.failures()
    assert [f["attempt"] for f in failures] == list(range(1, len(pauses_ms) + 2))
    assert [f["notRestarted"] for f in failures] == [None] * len(pauses_ms) + [because]
    times = [f["timestamp"] for f in failures]
    waited_ms = [after - before for before, after in itertools.pairwise(times)]
    assert all(real >= wanted for real, wanted in zip(waited_ms, pauses_ms, strict=True)), waited_ms


def test_failures_within_the_rate_are_forgotten(begin) -> None:
    """More failures than are allowed at once, each in an interval of its own."""
    rate = {"max-failures-per-interval": "1", "failure-rate-interval": "100 ms", "delay": "200 ms"}
    config = {f"{FAMILY}.failure-rate.{key}": value for key, value in rate.items()}
    job = begin({**EVERY_100_MS, **config, f"{FAMILY}.type": "failure-rate"})
    job.until(lambda: job.counts["completed"] >= 2, "checkpoints")
    job.tell("raise")
    job.until(lambda: job.client.job(job.id)["attempt"] >= 4, "three restarts")
    job.stop_telling()
    done = job.counts["completed"]
    job.until(lambda: job.state == "RUNNING" and job.counts["completed"] > done, "checkpoints again")
    details = job.client.job(job.id)
    assert details["restored-checkpoint"] >= 2
    assert set(job.pauses_ms()) == {200}
    assert not any(f["notRestarted"] for f in job.failures())


def test_a_checkpoint_that_takes_too_long_is_given_up_and_names_its_culprit(begin) -> None:
    more = {"timeout": "300 ms", "tolerable-failed-checkpoints": "1000"}
    job = begin({**EVERY_100_MS, **{f"execution.checkpointing.{k}": v for k, v in more.items()}})
    job.until(lambda: job.counts["completed"] >= 2, "checkpoints")
    job.tell("dawdle")
    job.until(lambda: job.counts["failed"] >= 2, "checkpoints to expire")

    def culprits() -> list[str]:
        history = job.client.checkpoints(job.id)["history"]
        return [c["failure_message"] for c in history if c["status"] == "FAILED"]

    assert all("expired after 300 ms" in text for text in culprits())
    job.until(lambda: any("held up by KeyedProcess" in text for text in culprits()), "its name")
    job.stop_telling()
    done = job.counts["completed"]
    job.until(lambda: job.counts["completed"] > done + 1, "checkpoints again")
    assert job.client.job(job.id)["attempt"] == 1, "what is tolerated restarts nothing"


def test_more_failed_checkpoints_in_a_row_than_are_tolerated_fail_the_job(begin) -> None:
    more = {"timeout": "2 s", "tolerable-failed-checkpoints": "2"}
    config = {f"execution.checkpointing.{k}": v for k, v in more.items()}
    job = begin({**EVERY_100_MS, **config, f"{FAMILY}.type": "none"})
    job.until(lambda: job.counts["completed"] >= 2, "checkpoints")
    job.tell("hold")
    job.until(lambda: job.state in ("FAILING", "FAILED"), "the job to fail")
    job.stop_telling()
    with pytest.raises(ObjectStoreError, match=r"3 in a row failed, 2 are tolerated") as failed:
        job.client.wait(job.id)
    assert "expired after 2000 ms" in failed.value.message
    assert "tolerable-failed-checkpoints" in (failed.value.remedy or "")
    assert job.failures()[-1]["notRestarted"] == "restart-strategy.type is 'none'"


def test_after_such_a_failure_the_job_restarts_from_its_last_checkpoint(begin) -> None:
    more = {"timeout": "2 s", "tolerable-failed-checkpoints": "0"}
    job = begin({**EVERY_100_MS, **STUBBORN, **{f"execution.checkpointing.{k}": v for k, v in more.items()}})
    job.until(lambda: job.counts["completed"] >= 2, "checkpoints")
    job.tell("hold")
    job.until(lambda: job.state == "RESTARTING", "the job to fail")
    job.stop_telling()
    job.until(lambda: job.client.job(job.id)["restored-checkpoint"] >= 2, "a restart from a checkpoint")
    assert "1 in a row failed, 0 are tolerated" in job.failures()[-1]["stacktrace"]


def test_between_two_checkpoints_is_the_pause_that_was_asked_for(begin) -> None:
    pause_ms = 400
    job = begin({**EVERY_100_MS, "execution.checkpointing.min-pause": f"{pause_ms} ms"})
    job.until(lambda: job.counts["completed"] >= 4, "checkpoints")
    history = job.client.checkpoints(job.id)["history"]
    completed = sorted((c for c in history if c["status"] == "COMPLETED"), key=lambda c: c["id"])
    pauses = [
        later["trigger_timestamp"] - (one["trigger_timestamp"] + one["end_to_end_duration"])
        for one, later in itertools.pairwise(completed)
    ]
    assert len(pauses) >= 3
    assert all(pause >= pause_ms for pause in pauses), pauses


def test_while_no_job_manager_leads_the_job_looks_neither_new_nor_empty(begin, client, cluster) -> None:
    job = begin(EVERY_100_MS)
    job.until(lambda: job.counts["completed"] >= 2, "checkpoints")
    before = client.job(job.id)
    seen: list[dict[str, Any]] = []

    def look() -> dict[str, Any]:
        seen.append({**client.job(job.id), "completed": job.counts["completed"]})
        return seen[-1]

    manager = cluster.child("jobmanager-0")
    manager.restart = False
    try:
        os.kill(manager.pid, signal.SIGKILL)
        job.until(lambda: look()["state"] == "RECONCILING", "nobody to lead")
    finally:
        manager.restart = True
    job.until(lambda: (j := look())["state"] == "RUNNING" and j["epoch"] > before["epoch"], "another leader")
    assert {one["state"] for one in seen} == {"RECONCILING", "RUNNING"}
    names = [vertex["name"] for vertex in before["vertices"]]
    assert all([vertex["name"] for vertex in one["vertices"]] == names for one in seen)
    assert {one["attempt"] for one in seen} == {1}
    assert min(one["completed"] for one in seen) >= 2
