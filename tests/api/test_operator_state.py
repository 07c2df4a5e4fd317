"""Operator state of functions: lists, union lists and broadcast maps through checkpoints, at another parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api import (
    CheckpointedFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    ReduceFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.errors import FunctionError, SnapshotError, SpecError, UnsupportedError
from penstock.testing.harness import JobHarness

LONG, STRING = Types.LONG(), Types.STRING()
ROWS = 300
SEEN = Types.TUPLE([STRING, LONG, LONG])
COUNTS, STARTS = ListStateDescriptor("counts", LONG), ListStateDescriptor("starts", STRING)
NAMES = MapStateDescriptor("names", STRING, LONG)


class Counting(MapFunction, CheckpointedFunction):
    """(subtask, records of this subtask and of those whose count it got, attempts that all subtasks had started)"""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.counts, self.starts = store.get_list_state(COUNTS), store.get_union_list_state(STARTS)
        self.names = store.get_broadcast_state(NAMES)
        assert context.is_restored() == (context.get_restored_checkpoint_id() is not None)
        assert context.is_restored() == (self.names.get("all") == 7)
        self.count = sum(self.counts)
        self.names.put("all", 7)

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.known = len(self.starts.get())
        self.starts.update([f"{self.subtask}"])

    def map(self, value: Any) -> Any:
        self.count += 1
        return str(self.subtask), self.count, self.known

    def snapshot_state(self, context: Any) -> None:
        assert context.get_checkpoint_id() > 0
        self.counts.update([self.count])


class CountingToo(Counting, ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.map(value)


class CountingKeys(Counting, KeyedProcessFunction):
    """With keyed state beside it."""

    def initialize_state(self, context: Any) -> None:
        super().initialize_state(context)
        self.last = context.get_keyed_state_store().get_state(ValueStateDescriptor("last", LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        before = self.last.value()
        assert before != value[0]
        self.last.update(value[0])
        yield self.map(value)


FORMS = {
    "map": lambda numbers: numbers.map(Counting(), SEEN),
    "process": lambda numbers: numbers.process(CountingToo(), SEEN),
    "by key": lambda numbers: numbers.key_by(lambda r: r[0] % 5, LONG).process(CountingKeys(), SEEN),
}


def job(parallelism: int, form: str, function: Any = None) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    schema = Types.ROW_NAMED(["n"], [LONG])
    options = {
        "fields.n.kind": "sequence",
        "fields.n.start": 0,
        "fields.n.end": ROWS - 1,
        "rows-per-second": 1000,
    }
    numbers = env.from_source(Source.connector("datagen", schema, options), None, "numbers")
    made = FORMS[form](numbers) if function is None else numbers.map(function, SEEN)
    made.uid("counting").sink_to(Sink.connector("collect")).set_parallelism(1)
    return env.job_graph()


@pytest.mark.parametrize(
    ("form", "before", "after"), [("map", 3, 1), ("process", 3, 1), ("by key", 2, 1), ("map", 1, 2)]
)
async def test_operator_state_goes_through_a_checkpoint_and_is_dealt_out_again(
    form: str, before: int, after: int
) -> None:
    async with JobHarness(job(before, form)) as first:
        await first.until(lambda: any(m.records_out > 30 for m in first.metrics().values()))
        checkpoint = await first.checkpoint()
        assert not first.ended
    async with JobHarness(job(after, form), restore=checkpoint, store=first.store) as again:
        result = await again.wait()
    rows = [(subtask, count) for subtask, count, known in result.rows if known == before]
    last = {subtask: max(count for s, count in rows if s == subtask) for subtask, _ in rows}
    assert sum(last.values()) == ROWS


class Texts(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        context.get_operator_state_store().get_list_state(ListStateDescriptor("counts", STRING))

    def snapshot_state(self, context: Any) -> None: ...


class Broken(Counting):
    def snapshot_state(self, context: Any) -> None:
        raise ValueError("no state today")


async def test_state_of_another_type_is_refused_and_errors_of_functions_come_out() -> None:
    async with JobHarness(job(1, "map")) as first:
        checkpoint = await first.checkpoint()
    with pytest.raises(SnapshotError, match="another type than the function declares"):
        async with JobHarness(job(1, "", Texts()), restore=checkpoint, store=first.store) as again:
            await again.wait()
    with pytest.raises(FunctionError, match="no state today"):
        async with JobHarness(job(1, "", Broken())) as broken:
            await broken.checkpoint()


class Reducing(ReduceFunction, CheckpointedFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1


class Skipping(FlatMapFunction, CheckpointedFunction):
    def flat_map(self, value: Any) -> Any:
        yield value


def test_where_operator_state_would_not_be_kept_it_is_refused() -> None:
    numbers = StreamExecutionEnvironment.get_execution_environment().from_collection([1], LONG)
    with pytest.raises(UnsupportedError, match="operator state of Reducing"):
        numbers.key_by(lambda v: v).reduce(Reducing())
    with pytest.raises(UnsupportedError, match="on_error='skip'"):
        numbers.flat_map(Skipping(), LONG, on_error="skip")


def test_a_list_needs_a_descriptor_of_a_list() -> None:
    from penstock.operators.operator_state import OperatorStateStore

    class Context:
        uid = name = "x"
        subtask_index = 0

    with pytest.raises(SpecError, match="no list state"):
        OperatorStateStore(Context(), None).get_list_state(NAMES)  # type: ignore[arg-type]
