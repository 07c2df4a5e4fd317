"""Small classes under Flink's names: groups of slots, states of jobs, futures, count windows, watermark strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.api import (
    ProcessFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from penstock.api.common import Instant
from penstock.api.job_status import CompletableFuture, JobID, JobStatus
from penstock.api.slot_sharing_group import MemorySize, SlotSharingGroup
from penstock.api.windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from penstock.errors import SpecError, UnsupportedError
from penstock.messages.states import JobStatus as Status


def test_amounts_of_memory() -> None:
    size = MemorySize.of_mebi_bytes(3 << 20)
    assert (size.get_bytes(), size.get_kibi_bytes(), size.get_mebi_bytes()) == (3 << 40, 3 << 30, 3 << 20)
    assert (size.get_gibi_bytes(), size.get_tebi_bytes(), str(MemorySize(7))) == (3 << 10, 3, "7 bytes")
    assert MemorySize(1) < MemorySize(2) <= MemorySize(2)


def test_a_group_of_slots_with_resources_is_refused_where_it_is_used() -> None:
    group = (
        SlotSharingGroup.builder("big")
        .set_cpu_cores(1.5)
        .set_task_heap_memory_mb(100)
        .set_task_off_heap_memory_mb(1)
        .set_managed_memory_mb(2)
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert (group.get_name(), group.get_cpu_cores(), group.get_external_resources()) == (
        "big",
        1.5,
        {"gpu": 1.0},
    )
    assert group.get_task_heap_memory() == MemorySize.of_mebi_bytes(100)
    assert group.get_task_off_heap_memory() == MemorySize.of_mebi_bytes(1)
    assert group.get_managed_memory() == MemorySize.of_mebi_bytes(2)
    env = StreamExecutionEnvironment.get_execution_environment()
    step = env.from_collection([1]).map(lambda v: v, Types.LONG())
    with pytest.raises(UnsupportedError, match="resources of the slot sharing group 'big'"):
        step.slot_sharing_group(group)
    with pytest.raises(UnsupportedError, match="resources"):
        env.register_slot_sharing_group(group)
    small = SlotSharingGroup.builder("small").build()
    env.register_slot_sharing_group(small)
    step.slot_sharing_group(small).sink_to(Sink.connector("blackhole"))
    assert "small" in {v.slot_sharing_group for v in env.job_graph().vertices}
    env.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.set_cpu_cores(0),
        lambda b: b.set_task_heap_memory(MemorySize(0)),
        lambda b: b.set_cpu_cores(1).build(),
    ],
)
def test_a_group_that_says_half_is_refused(make: Any) -> None:
    with pytest.raises(SpecError):
        make(SlotSharingGroup.builder("x"))


def test_states_of_a_job_are_their_names() -> None:
    assert [s.value for s in JobStatus] == [s.value for s in Status]
    status = JobStatus("FINISHED")
    assert status == "FINISHED"
    assert status.result() is status
    assert status.is_globally_terminal_state()
    assert JobStatus("SUSPENDED").is_terminal_state()
    assert not JobStatus("RUNNING").is_terminal_state()
    assert str(JobID("ab")) == "ab"


def test_a_future_waits_once() -> None:
    calls: list[int] = []

    def wait() -> str:
        calls.append(1)
        return "there"

    future = CompletableFuture(wait)
    assert not future.done()
    assert (future.result(), future.result(), future.done(), len(calls)) == ("there", "there", True, 1)
    assert CompletableFuture.of(None).done()


def test_count_windows_have_assigners() -> None:
    assert CountTumblingWindowAssigner.of(3).spec.count == 3
    sliding = CountSlidingWindowAssigner.of(3, 2).spec
    assert (sliding.count, sliding.count_slide) == (3, 2)
    with pytest.raises(SpecError, match="count window"):
        CountTumblingWindowAssigner(0)


def test_watermark_alignment_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="watermark alignment of the group 'g'"):
        WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", Time.seconds(1))


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.mark.parametrize(
    "assigner", [lambda r, _: r[1], lambda r, _: int(r[1]) + 0], ids=["column", "function"]
)
@pytest.mark.parametrize("timed_before", [False, True])
def test_without_watermarks_windows_fire_at_the_end(assigner: Any, timed_before: bool, collect: Any) -> None:
    """No row is late, and watermarks from before end at the strategy."""
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = [("a", 61_000), ("a", 1_000), ("a", 999_000), ("a", 2_000)]
    stream: Any = env.from_collection(rows, PAIR)
    if timed_before:
        before = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            lambda r, _: r[1] + 10**9
        )
        stream = stream.assign_timestamps_and_watermarks(before)
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(assigner)
    windows = (
        stream.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(collect(windows)) == [("a", 3_000), ("a", 61_000), ("a", 999_000)]


def test_no_watermark_comes_before_the_end(collect: Any) -> None:
    class Marks(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.timestamp(), ctx.timer_service().current_watermark()

    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda r, _: r[1])
    timed = env.from_collection([("a", 5), ("b", 7)], PAIR).assign_timestamps_and_watermarks(strategy)
    found = collect(timed.process(Marks(), Types.TUPLE([Types.LONG(), Types.LONG()])))
    assert [at for at, _ in found] == [5, 7]
    assert {mark for _, mark in found} == {-(2**63)}


def test_a_source_without_watermarks_has_event_times(tmp_path: Path, collect: Any) -> None:
    (tmp_path / "in.csv").write_text("a,61000\na,1000\na,2000\n")
    row = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])
    source = Source.connector("filesystem", row, {"path": str(tmp_path / "in.csv"), "format": "csv"})
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda r, _: r.v)
    windows = (
        env.from_source(source, strategy, "files")
        .map(lambda r: (r.k, r.v), PAIR)
        .key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(collect(windows)) == [("a", 3_000), ("a", 61_000)]


def test_a_module_is_shipped_by_its_file(
    tmp_path: Path, collect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "penstock_added_module.py").write_text("def twice(v):\n    return 2 * v\n")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_file(str(tmp_path / "penstock_added_module.py"))

    def call(value: int) -> int:
        from penstock_added_module import twice

        return twice(value)

    env.from_collection([1, 2], Types.LONG()).map(call, Types.LONG()).sink_to(Sink.connector("blackhole"))
    assert env.job_graph().python_path == (str(tmp_path),)


def test_an_instant_is_a_value_of_a_column(collect: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    row = Types.ROW([Types.INSTANT(), Types.STRING()])
    stream = env.from_collection([(Instant.of_epoch_milli(1_500), "a"), (None, "b")], row)
    found = collect(
        stream.map(lambda r: (r[0] and r[0].timestamp(), r[1]), Types.TUPLE([Types.DOUBLE(), Types.STRING()]))
    )
    assert sorted(found, key=str) == [(1.5, "a"), (None, "b")]
    with pytest.raises(ValueError, match="below the microsecond"):
        Instant(0, 1).to_datetime()


def test_a_source_gives_records_of_its_own_type() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    source = Source.connector("datagen", row, {"number-of-rows": 1})
    assert env.from_source(source, None, "numbers", row).get_type() == row
    with pytest.raises(SpecError, match="another type"):
        env.from_source(source, None, "numbers", Types.STRING())
