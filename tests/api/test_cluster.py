"""A program on a real embedded cluster: services, slots, object store, results over REST."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api import (
    AsyncDataStream,
    AsyncFunction,
    CheckpointedFunction,
    CoGroupFunction,
    CountEvictor,
    JobClient,
    KeyedProcessFunction,
    ListStateDescriptor,
    LongCounter,
    MapFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    TimeWindow,
    Types,
    ValueStateDescriptor,
    Watermark,
    WatermarkGenerator,
    WatermarkStrategy,
    WindowAssigner,
)
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import FunctionError, PenstockError
from tests.api.wheels import NAME, make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Counting(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield value[0], n


pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(slots=2) as made:
        yield made


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
def test_programs_run_on_a_cluster(cluster: EmbeddedCluster, backend: str) -> None:
    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, "restart-strategy.type": "none"})
    env.set_parallelism(2).set_state_backend(backend)
    rows = [(f"k{i % 5}", i) for i in range(5_000)]
    counted = env.from_collection(rows, PAIR).key_by(lambda r: r[0]).process(Counting(), PAIR)
    got = list(counted.execute_and_collect("counting"))
    assert Counter(got) == Counter((f"k{k}", n) for k in range(5) for n in range(1, 1_001))

    broken = env.from_collection([1, 0]).map(lambda x: 1 // x, Types.LONG())
    with pytest.raises(FunctionError, match="ZeroDivisionError") as err:
        list(broken.execute_and_collect("broken"))
    assert str(err.value).startswith("Traceback")


def test_packages_and_archives_come_with_a_job(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(NAME)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "n.txt").write_text("3")
    shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "data")

    def answer(x: int) -> int:
        package = importlib.import_module(NAME)
        return int(package.ANSWER) * x + int(Path("numbers/n.txt").read_text())

    def answers(version: str, code: str) -> list[Any]:
        make_wheel(tmp_path / version, version, code)
        env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, "restart-strategy.type": "none"})
        env.set_parallelism(2)
        env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / version))
        env.add_python_archive(str(tmp_path / "packed.zip"), "numbers")
        numbers = env.from_collection([1, 2], Types.LONG()).rebalance()
        return sorted(numbers.map(answer, Types.LONG()).execute_and_collect("packages"))

    # Jobs with other versions do not see each other's, nor does this process see any.
    assert answers("1.0", "ANSWER = 10\n") == [13, 23]
    assert answers("2.0", "ANSWER = 100\n") == [103, 203]
    assert importlib.util.find_spec(NAME) is None
    (tmp_path / "requirements.txt").write_text("penstock_no_such_package")
    with pytest.raises(FunctionError, match="cannot be installed"):
        answers("3.0", "")


def test_the_life_of_a_job_is_told_as_events(cluster: EmbeddedCluster) -> None:
    import httpx

    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, "restart-strategy.type": "none"})
    env.from_collection([1, 2, 3], Types.LONG()).map(lambda x: x + 1, Types.LONG()).print()
    with httpx.Client(base_url=cluster.rest_url, timeout=120) as http:
        with http.stream("GET", "/jobs/events") as everything:
            lines = everything.iter_lines()
            next(lines)  # it listens
            job = env.execute_async("told")
            assert job is not None
            told = []
            for line in lines:
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    told += [event] if event["job_id"] == job.get_job_id() else []
                    if told and told[-1].get("status") == "FINISHED":
                        break
        again = http.get(f"/jobs/{job.get_job_id()}/events").text
        last = f"{job.get_job_id()}:{told[-1]['epoch']}-{told[-1]['sequence']}"
        after_the_last = http.get(f"/jobs/{job.get_job_id()}/events", headers={"last-event-id": last})
    assert [e["sequence"] for e in told] == list(range(1, len(told) + 1))
    assert told[0]["type"] == "job-master-changed"
    states = {e["state"] for e in told if e["type"] == "execution-state-changed"}
    assert {"CREATED", "DEPLOYING", "RUNNING", "FINISHED"} <= states
    kept = [
        json.loads(line.removeprefix("data: ")) for line in again.splitlines() if line.startswith("data: ")
    ]
    assert kept == told, "the archive tells what was told live"
    assert after_the_last.status_code == 204


def counting_for_ever(cluster: EmbeddedCluster, out: Path, **config: str) -> JobClient:
    """A job that writes how many rows it has seen, with each row."""
    env = StreamExecutionEnvironment(
        {"rest.address": cluster.rest_url, "restart-strategy.type": "none", **config}
    )
    env.enable_checkpointing(500)
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    source = Source.connector("datagen", row, {"rows-per-second": 200})
    counted = (
        env.from_source(source, None, "endless")
        .map(lambda r: ("all", r.n), PAIR)
        .key_by(lambda r: r[0])
        .process(Counting(), PAIR)
        .uid("count")
    )
    counted.sink_to(Sink.connector("filesystem", {"path": str(out), "format": "json"}))
    job = env.execute_async("endless")
    assert job is not None
    return job


def written(out: Path) -> list[int]:
    """The last column of all rows that are committed."""
    files = [f for f in out.glob("part-*") if f.is_file()]
    return sorted(list(json.loads(line).values())[-1] for f in files for line in f.read_text().splitlines())


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.05)


def totals_for_ever(cluster: EmbeddedCluster, out: Path, cls: Any, **config: str) -> JobClient:
    """A job whose records and state are instances of ``cls``; it writes them."""

    class Totals(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            self.total = context.get_state(ValueStateDescriptor("total", cls))

        def process_element(self, value: Any, ctx: Any) -> Any:
            total = self.total.value() or cls("all", 0)
            assert type(total) is cls
            total.n += 1
            self.total.update(total)
            yield total

    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, **config}).enable_checkpointing(500)
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    source = Source.connector("datagen", row, {"rows-per-second": 200})
    made = env.from_source(source, None, "endless").map(lambda r: cls("all", 1), cls)
    totals = made.key_by("who").process(Totals(), cls).uid("totals")
    totals.sink_to(Sink.connector("filesystem", {"path": str(out), "format": "json"}))
    job = env.execute_async("totals")
    assert job is not None
    return job


def test_a_state_with_a_dataclass_goes_through_a_savepoint_and_gets_a_field(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    @dataclasses.dataclass
    class Total:
        who: str
        n: int

    @dataclasses.dataclass
    class Wider:
        who: str
        n: int
        unit: str = "EUR"

    Wider.__qualname__ = Total.__qualname__

    def lines() -> list[dict[str, Any]]:
        files = [f for f in out.glob("part-*") if f.is_file()]
        return [json.loads(line) for f in files for line in f.read_text().splitlines()]

    out = tmp_path / "out"
    first = totals_for_ever(cluster, out, Total)
    until(lambda: bool(lines()))
    savepoint = first.stop_with_savepoint(False, str(tmp_path / "kept")).result()
    first.get_job_execution_result()
    before = len(lines())

    again = totals_for_ever(cluster, out, Wider, **{"execution.state-recovery.path": savepoint})
    until(lambda: len(lines()) > before)
    again.stop_with_savepoint(advance_to_end_of_event_time=False).result()
    again.get_job_execution_result()
    rows = sorted(lines(), key=lambda line: line["n"])
    assert [line["n"] for line in rows] == list(range(1, len(rows) + 1))
    assert [line.get("unit") for line in rows] == [None] * before + ["EUR"] * (len(rows) - before)


class Summing(MapFunction):
    def open(self, context: Any) -> None:
        self.total = LongCounter()
        context.add_accumulator("total", self.total)
        self.records = context.get_int_counter("records")
        self.odd = context.get_metrics_group().counter("odd")

    def map(self, value: int) -> int:
        self.total.add(value)
        self.records.add(1)
        self.odd.inc(value % 2)
        return value


def test_a_jobs_result_has_its_accumulators_and_counters(cluster: EmbeddedCluster) -> None:
    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url}).set_parallelism(2)
    numbers = env.from_collection(list(range(5_000)), Types.LONG()).rebalance()
    numbers.map(Summing(), Types.LONG()).sink_to(Sink.connector("blackhole"))
    result = env.execute("sums")
    assert result.get_accumulator_result("total") == sum(range(5_000))
    assert result.get_all_accumulator_results().items() >= {"records": 5_000, "odd": 2_500}.items()
    assert result.get_accumulator_result("nothing") is None


def test_records_of_two_streams_meet_by_the_clock(cluster: EmbeddedCluster) -> None:
    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url}).set_parallelism(2)
    left, right = (
        env.from_collection(rows, PAIR).key_by(lambda r: r[0]) for rows in ([("a", 1)], [("a", 3), ("b", 4)])
    )
    joined = left.interval_join(right).in_processing_time().between(-60_000, 60_000).inner()
    assert [tuple(row) for row in joined.execute_and_collect("by the clock")] == [("a", 1, "a", 3)]


N = 600


def own_parts(
    cluster: EmbeddedCluster, folder: Path, end: int | None, parallelism: int, **config: str
) -> JobClient:
    """Numbers of a source function, counted in operator state, grouped in windows with every third of them; all of it by
    parts of the program's own. It kills its slot once."""

    def numbers(position: int | None) -> Any:
        n = position or 0
        while end is None or n < end:
            if end is None and (n % 10 == 0 or n >= 500):
                time.sleep(0.02)
            if end is not None or n < 500:
                yield (n, n), n + 1
                n += 1

    class Counting(MapFunction, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            self.kept = context.get_operator_state_store().get_list_state(
                ListStateDescriptor("n", Types.LONG())
            )
            self.n = sum(self.kept)

        def snapshot_state(self, context: Any) -> None:
            self.kept.update([self.n])

        def map(self, value: Any) -> Any:
            if self.n == 200 and not (folder / "killed").exists():
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            self.n += 1
            if self.n == 450:
                (folder / "enough").touch()
            return value[0], self.n

    class Following(WatermarkGenerator):
        def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
            output.emit_watermark(Watermark(event_timestamp))

    class Hundreds(WindowAssigner):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
            return [TimeWindow(timestamp // 100 * 100, timestamp // 100 * 100 + 100)]

    class Both(CoGroupFunction):
        def co_group(self, first: Any, second: Any) -> Any:
            yield min(n for n, _ in first), len(first), len(second), max(count for _, count in first)

    long = Types.LONG()
    pair, four = Types.TUPLE([long, long]), Types.TUPLE([long] * 4)
    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, **config}).enable_checkpointing(200)
    env.set_parallelism(parallelism)
    strategy = WatermarkStrategy.for_generator(Following).with_timestamp_assigner(lambda v, _: v[0])
    source = env.add_source(numbers, "numbers", pair).uid("numbers")
    counted = source.map(Counting(), pair).set_parallelism(1).uid("counting")
    timed = counted.rebalance().assign_timestamps_and_watermarks(strategy)
    thirds = timed.filter(lambda v: v[0] % 3 == 0)
    grouped = timed.co_group(thirds).where(lambda v: v[0] % 2, long).equal_to(lambda v: v[0] % 2, long)
    made = grouped.window(Hundreds()).evictor(CountEvictor.of(1_000)).apply(Both(), four).uid("groups")
    made.sink_to(Sink.connector("filesystem", {"path": str(folder / "out"), "format": "json"}))
    job = env.execute_async("own parts")
    assert job is not None
    return job


def test_a_programs_own_parts_survive_a_kill_and_go_on_at_another_parallelism(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    first = own_parts(cluster, tmp_path, None, 2)
    until(lambda: (tmp_path / "enough").exists())
    savepoint = first.stop_with_savepoint(False, str(tmp_path / "kept")).result()
    first.get_job_execution_result()
    assert (tmp_path / "killed").exists()
    second = own_parts(cluster, tmp_path, N, 1, **{"execution.state-recovery.path": savepoint})
    second.get_job_execution_result()
    files = [f for f in (tmp_path / "out").glob("part-*") if f.is_file()]
    rows = sorted(tuple(json.loads(line).values()) for f in files for line in f.read_text().splitlines())
    assert [row[:3] for row in rows] == [
        (start, 50, sum(n % 3 == 0 for n in range(start, start // 100 * 100 + 100, 2)))
        for hundred in range(0, N, 100)
        for start in (hundred, hundred + 1)
    ]
    assert max(row[3] for row in rows) == N


@pytest.mark.parametrize("drain", [False, True])
def test_job_clients_take_savepoints_and_jobs_start_from_them(
    cluster: EmbeddedCluster, drain: bool, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = counting_for_ever(cluster, out)
    until(lambda: job.get_job_status() == "RUNNING")
    future = job.trigger_savepoint(str(tmp_path / "kept"))
    location = future.result()
    assert location == future.result()
    assert Path(location.removeprefix("file://")).is_relative_to(tmp_path / "kept")
    assert job.get_job_status() == "RUNNING"

    until(lambda: bool(written(out)))
    stopped_at = job.stop_with_savepoint(drain, str(tmp_path / "kept")).result()
    assert stopped_at != location
    job.get_job_execution_result()
    before = written(out)
    assert before == list(range(1, len(before) + 1))

    again = counting_for_ever(cluster, out, **{"execution.state-recovery.path": stopped_at})
    until(lambda: len(written(out)) > len(before))
    again.stop_with_savepoint(advance_to_end_of_event_time=False).result()
    assert again.get_job_execution_result().details["state"] == "FINISHED"
    after = written(out)
    assert after == list(range(1, len(after) + 1))


def test_a_savepoint_of_a_job_that_has_ended_is_an_error(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    job = counting_for_ever(cluster, tmp_path / "out")
    job.cancel()
    until(lambda: job.get_job_status().is_globally_terminal_state())
    with pytest.raises(PenstockError):
        job.trigger_savepoint().result()
    job.close()


class AnswersBehind(AsyncFunction):
    """Answers once the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    async def async_invoke(self, value: int) -> list[int]:
        while not self.file.exists():  # noqa: ASYNC110 (the test makes the file)
            await asyncio.sleep(0.05)
        return [value]


def test_a_checkpoint_that_waits_for_answers_at_the_end_of_the_input_is_given_up(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The function answers only after the checkpoint: this one ends by its timeout, and the job goes on."""
    env = StreamExecutionEnvironment(
        {
            "rest.address": cluster.rest_url,
            "restart-strategy.type": "none",
            "execution.checkpointing.timeout": "1 s",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        }
    )
    answers = tmp_path / "answers"
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    asked = AsyncDataStream.unordered_wait(numbers, AnswersBehind(answers), 0, 10, Types.LONG())
    asked.sink_to(Sink.connector("filesystem", {"path": str(tmp_path / "out"), "format": "json"}))
    job = env.execute_async("asking")
    assert job is not None
    until(lambda: job.get_job_status() == "RUNNING")
    with pytest.raises(PenstockError, match="savepoint of job"):
        job.trigger_savepoint(str(tmp_path / "kept")).result()
    assert job.get_job_status() == "RUNNING"
    answers.touch()
    assert job.get_job_execution_result().details["state"] == "FINISHED"
    assert written(tmp_path / "out") == [1, 2, 3]


def _endless() -> Iterator[tuple[int, str]]:
    n = 0
    while True:
        yield n, f"secret {n}"
        n += 1
        time.sleep(0.01)


def test_rows_of_an_edge_are_tapped(cluster: EmbeddedCluster) -> None:
    """A tap sees rows of a running job on REST and in the command line; it ends with the job."""
    import subprocess
    import sys

    env = StreamExecutionEnvironment({"rest.address": cluster.rest_url, "restart-strategy.type": "none"})
    env.set_parallelism(2)
    rows = env.from_source(
        _endless, type_info=Types.ROW_NAMED(["k", "password"], [Types.LONG(), Types.STRING()])
    )
    rows.key_by(lambda r: r[0] % 7).map(lambda r: r[0], Types.LONG()).print()
    job = env.execute_async("tapped")
    assert job is not None
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "tap",
        job.get_job_id(),
        "--cluster",
        cluster.rest_url,
    ]

    def tap(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=240)

    with ClusterClient(cluster.rest_url) as client:
        while client.job(job.get_job_id())["state"] != "RUNNING":
            time.sleep(0.1)
        listed = json.loads(tap("--format", "json").stdout)
        edge = next(e["name"] for e in listed if not e["source-name"].startswith("Enumerator"))
        shown = tap(edge, "-n", "3", "--format", "json")
        found = [json.loads(line) for line in shown.stdout.splitlines()]
        assert [set(row["values"]) for row in found] == [{"k", "password"}] * 3, shown.stderr
        assert {row["values"]["password"] for row in found} == {"******"}
        table = tap(edge, "-n", "2")
        assert table.stdout.split()[:5] == ["subtask", "kind", "time", "k", "password"], table.stderr
        wrong = tap("e99")
        assert wrong.returncode == 1
        assert f"{edge} (" in wrong.stderr
        events = client.tap(job.get_job_id(), edge, 5)
        name, data = next(events)
        assert (name, data["silent"], data["problem"]) == ("rows", 0, "")
        while not data["rows"]:
            name, data = next(events)
        client.cancel(job.get_job_id())
        *_, last = events
        assert last == ("end", {"reason": "the job is CANCELED"})


def test_a_code_package_is_uploaded_planned_run_and_deleted(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """As Flink's clients do with jars. Its job has a copy of its own: it restarts after the package was deleted."""
    import subprocess
    import sys
    import zipfile

    out, failed = tmp_path / "out", tmp_path / "failed"
    package = tmp_path / "counting.zip"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("counting/__init__.py", "")
        archive.writestr("counting/steps.py", _STEPS)
        archive.writestr("counting/__main__.py", _MAIN)
    with ClusterClient(cluster.rest_url) as client:
        package_id = client.upload_package(package.name, package.read_bytes())
        assert client.upload_package(package.name, package.read_bytes()) == package_id
        [listed] = client._call("GET", "/jars")["files"]
        assert (listed["id"], listed["name"]) == (package_id, "counting.zip")
        assert listed["entry"] == [{"name": "counting", "description": None}]
        asked = {"programArgsList": [str(out), str(failed)], "parallelism": 2}
        plan = client._call("POST", f"/jars/{package_id}/plan", json=asked)["plan"]
        assert plan["name"] == "counted"
        assert len(plan["nodes"]) >= 2
        with pytest.raises(PenstockError, match="No module named"):
            client.run_package(package_id, {"entryClass": "nothing.there"})
        job = client.run_package(package_id, asked)
        while not failed.exists():
            assert client.job(job)["state"] != "FAILED", client.exceptions(job)
            time.sleep(0.1)
        client._call("DELETE", f"/jars/{package_id}")
        assert client._call("GET", "/jars")["files"] == []
        (tmp_path / "go").touch()
        assert client.wait(job)["state"] == "FINISHED"
        assert client.job(job)["attempt"] == 2
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        str(package),
        "--entry",
        "counting.steps:main",
    ]
    ran = subprocess.run(
        [*command, "--cluster", cluster.rest_url, "hello"], capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    assert "(counting): finished" in ran.stderr


_STEPS = """
import os, time
from pathlib import Path
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.common import Types

def fail_once(failed):
    def step(n):
        if n == 3 and not os.path.exists(failed):
            Path(failed).touch()
            while not os.path.exists(os.path.join(os.path.dirname(failed), "go")):
                time.sleep(0.05)
            raise RuntimeError("once")
        return n + 1
    return step

def main(word):
    assert word == "hello"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2], Types.LONG()).map(fail_once("/"), Types.LONG()).print()
    env.execute()
"""
_MAIN = """
import sys
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.common import Types
from .steps import fail_once

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3], Types.LONG()).map(fail_once(sys.argv[2]), Types.LONG()).map(lambda n: n, Types.LONG()).print()
env.execute("counted")
"""
