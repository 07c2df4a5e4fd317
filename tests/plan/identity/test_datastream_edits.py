"""What users change in a DataStream program, and whose state is whose then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Time,
    TumblingProcessingTimeWindows,
    Types,
)
from penstock.errors import SpecError
from penstock.jobgraph import JobGraph
from penstock.snapshots.compatibility import compare, operators_of
from tests.plan.identity.test_edits import savepoint_of

ROW = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.LONG()])


class First(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Second(First):
    pass


def program(build: Callable[[Any], None], **config: str) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configuration["execution.engine"] = "streaming"
    for key, value in config.items():
        env.configuration[key] = value
    env.set_parallelism(1)
    build(env)
    return env.job_graph("job")


def source(env: Any, rate: int = 10) -> Any:
    options = {"rows-per-second": rate}
    return env.from_source(Source.connector("datagen", ROW, options), None, "clicks")


def keyed(stream: Any, function: Any = First, by: int = 0) -> Any:
    return stream.key_by(lambda x: x[by]).process(function(), output_type=ROW)


def end(stream: Any) -> None:
    stream.sink_to(Sink.connector("blackhole"))


def one(env: Any) -> None:
    end(keyed(source(env)))


def with_map(env: Any) -> None:
    end(keyed(source(env).filter(lambda x: x[1] > 3)).map(lambda x: x, output_type=ROW))


def other_function(env: Any) -> None:
    end(keyed(source(env), Second))


def faster(env: Any) -> None:
    end(keyed(source(env, rate=99)))


def a_second_sink(env: Any) -> None:
    stream = source(env)
    stream.filter(lambda x: x[1] > 3).sink_to(Sink.connector("print"))
    end(keyed(stream))


def twice(env: Any) -> None:
    end(keyed(keyed(source(env))))


def window(seconds: int, uid: str | None = None) -> Callable[[Any], None]:
    def build(env: Any) -> None:
        windows = (
            source(env).key_by(lambda x: x[0]).window(TumblingProcessingTimeWindows.of(Time.seconds(seconds)))
        )
        made = windows.reduce(lambda a, b: b)
        end(made if uid is None else made.uid(uid))

    return build


@pytest.mark.parametrize("after", [one, with_map, other_function, faster, a_second_sink, twice])
def test_state_of_a_program_without_uids_is_kept(after: Any) -> None:
    difference = compare(operators_of(program(after)), savepoint_of(program(one)))
    assert sorted(o.name for o in difference.mapped if o.rows) == [
        "Enumerator: clicks",
        "KeyedProcess",
        "Source: clicks",
    ]
    assert (difference.changed, difference.ambiguous, difference.dropped) == ((), (), ())


def branches(*least: int, mapped: bool = False) -> Callable[[Any], None]:
    """Steps that differ in a function in front of them alone."""

    def build(env: Any) -> None:
        stream = source(env)
        stream = stream.map(lambda x: x, output_type=ROW) if mapped else stream
        made = [keyed(stream.filter(lambda x, n=n: x[1] > n)) for n in least]
        end(made[0].union(*made[1:]))

    return build


def processes(graph: JobGraph) -> list[str]:
    """Uids, in the order of the program."""
    return [node.uid for vertex in graph.vertices for node in vertex.operators if node.name == "KeyedProcess"]


def test_steps_of_one_shape_are_told_apart_by_their_code() -> None:
    before, after = program(branches(0, 1)), program(branches(1, 0))
    difference = compare(operators_of(after), savepoint_of(before))
    first, second = processes(before)
    assert [difference.uids[uid] for uid in processes(after)] == [second, first]


def test_steps_of_one_shape_that_both_changed_are_a_tie() -> None:
    difference = compare(
        operators_of(program(branches(0, 1, mapped=True))), savepoint_of(program(branches(0, 1)))
    )
    assert [o.name for o in difference.ambiguous] == ["KeyedProcess", "KeyedProcess"]


def test_a_uid_finds_the_state_wherever_the_step_is() -> None:
    def named(*path: str) -> Callable[[Any], None]:
        def build(env: Any) -> None:
            stream = source(env).uid("in")
            for uid in path:
                stream = keyed(stream).uid(uid)
            end(stream)

        return build

    difference = compare(operators_of(program(named("b", "a"))), savepoint_of(program(named("a", "b"))))
    assert {o.uid for o in difference.mapped if o.rows} == {"in", "in-enumerator", "a", "b"}
    assert {difference.uids[uid] for uid in ("a", "b")} == {"a", "b"}
    assert all(difference.uids[uid] == uid for uid in ("a", "b"))


@pytest.mark.parametrize("uid", [None, "w"])
def test_another_window_is_refused(uid: str | None) -> None:
    difference = compare(operators_of(program(window(20, uid))), savepoint_of(program(window(10, uid))))
    [changed] = difference.changed
    assert any(why.startswith("window: ") for why in changed.why)
    # Without a uid the state may be dropped; with one the operator would find it.
    assert bool(difference.problems) == (uid is not None)


def test_a_uid_is_one_operators() -> None:
    def build(env: Any) -> None:
        end(keyed(keyed(source(env)).uid("same")).uid("same"))

    with pytest.raises(SpecError, match="two operators have the uid 'same'"):
        program(build)
