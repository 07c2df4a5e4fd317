"""``partition_custom``, and the job's steps as Flink's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.api import KeySelector, Partitioner, ProcessFunction, Sink, StreamExecutionEnvironment, Types
from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.testing.harness import run_graph

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROWS = [("a", 0), ("b", 1), ("c", 2), ("d", 7), ("e", 8)]


class Where(ProcessFunction):
    """(number, subtask that it is in)"""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[1], self.subtask


class Modulo(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        assert num_partitions == 3
        return int(key) % num_partitions


class Number(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[1]


def stream() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(ROWS, PAIR).map(lambda r: r, PAIR).set_parallelism(2)


def subtasks(partitioned: Any) -> list[Any]:
    out = partitioned.process(Where(), Types.TUPLE([Types.LONG(), Types.INT()])).set_parallelism(3)
    out.sink_to(Sink.connector("collect")).set_parallelism(1)
    return sorted(run_graph(out.get_execution_environment().job_graph()).rows)


@pytest.mark.parametrize(
    ("partitioner", "selector"),
    [(Modulo(), Number()), (lambda key, n: key % n, lambda row: row[1])],
    ids=["objects", "functions"],
)
def test_each_record_is_where_the_partitioner_says(partitioner: Any, selector: Any) -> None:
    assert subtasks(stream().partition_custom(partitioner, selector)) == [
        (0, 0),
        (1, 1),
        (2, 2),
        (7, 1),
        (8, 2),
    ]


@pytest.mark.parametrize(
    ("how", "copies", "where"),
    [("broadcast", 3, {0, 1, 2}), ("global_", 1, {0}), ("rebalance", 1, None), ("rescale", 1, None)],
)
def test_a_partition_counts_for_the_next_step(how: str, copies: int, where: set[int] | None) -> None:
    """The next step has a parallelism of its own; the partition had the environment's, and rows were dealt out again."""
    got = subtasks(getattr(stream(), how)())
    assert sorted(number for number, _ in got) == sorted([row[1] for row in ROWS] * copies)
    assert where is None or {subtask for _, subtask in got} == where


@pytest.mark.parametrize(
    ("partitioner", "words"),
    [
        (lambda key, n: key, "names no subtask"),
        (lambda key, n: "x", "names no subtask"),
        (lambda key, n: 1 // key, "raised ZeroDivisionError"),
    ],
)
def test_a_wrong_partition_fails_the_job_by_name(partitioner: Any, words: str) -> None:
    with pytest.raises(FunctionError, match=words):
        subtasks(stream().partition_custom(partitioner, lambda row: row[1]))


def test_an_async_partitioner_is_refused() -> None:
    async def later(key: Any, n: int) -> int:
        return 0

    with pytest.raises(UnsupportedError, match="is async"):
        stream().partition_custom(later, lambda row: row[1])


@pytest.mark.parametrize("how", ["shuffle", "rebalance", "rescale", "broadcast", "forward", "global_"])
def test_a_keyed_stream_has_its_partitions(how: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot override partitioning"):
        getattr(stream().key_by(0), how)()
    with pytest.raises(UnsupportedError, match="cannot override partitioning"):
        stream().key_by(0).partition_custom(Modulo(), Number())


def test_the_steps_as_json() -> None:
    first = stream().name("first")
    second = (
        first.partition_custom(Modulo(), Number()).map(lambda r: r, PAIR).set_parallelism(3).name("second")
    )
    third = second.union(first.broadcast()).key_by(0).process(Where(), PAIR).set_parallelism(2).name("third")
    third.sink_to(Sink.connector("blackhole")).name("out").set_parallelism(1)
    nodes = {
        node["type"]: node
        for node in json.loads(third.get_execution_environment().get_execution_plan())["nodes"]
    }
    by_id = {node["id"]: name for name, node in nodes.items()}

    def fed(name: str) -> list[tuple[str, str]]:
        return sorted((by_id[p["id"]], p["ship_strategy"]) for p in nodes[name]["predecessors"])

    assert fed("second") == [("first", "CUSTOM")]
    assert [by[0] for by in fed("third")] == ["first", "second"]
    assert {nodes[name]["parallelism"] for name in ("first", "third")} == {2}
    assert nodes["second"]["parallelism"] == 3
    assert sorted({node["pact"] for node in nodes.values()}) == ["Data Sink", "Data Source", "Operator"]
    assert [name for name, node in nodes.items() if node["pact"] == "Data Sink"] == ["Sink: out"]


def test_a_collection_has_one_subtask() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    assert env.from_collection([1]).force_non_parallel().execute_and_collect
    with pytest.raises(UnsupportedError, match="parallelism cannot be set"):
        env.from_collection([1]).set_parallelism(2)
    with pytest.raises(SpecError, match="not a parallelism"):
        env.from_collection([1]).set_parallelism(0)
