"""Programs on the DataStream API, planned and run with the real runtime in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.api import (
    AggregateFunction,
    CoProcessFunction,
    CountTrigger,
    EventTimeSessionWindows,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    Row,
    RuntimeExecutionMode,
    Sink,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    agg,
)
from penstock.errors import FunctionError, SpecError, UnsupportedError

EVENTS = [("ab"[i % 2], i * 700, i) for i in range(60)]
EVENT = Types.ROW_NAMED(["user", "ts", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def events(env: StreamExecutionEnvironment, rows: Any = EVENTS, delay: Any = 5_000) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)
    return env.from_collection(rows, EVENT).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: row.ts)
    )


class TestRecords:
    def test_values_without_any_types(self, env: Any, collect: Any, parallelism: int) -> None:
        stream = env.from_collection(range(10)).filter(lambda x: x % 2).map(lambda x: (x, {"sq": x * x}))
        assert sorted(collect(stream, parallelism)) == [(x, {"sq": x * x}) for x in range(1, 10, 2)]

    def test_word_count_as_in_every_tutorial(self, env: Any, collect: Any, parallelism: int) -> None:
        def split(line: str) -> Iterator[str]:
            yield from line.split()

        stream = (
            env.from_collection(["to be or not", "to be"])
            .flat_map(split)
            .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
            .key_by(lambda x: x[0])
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
        got = collect(stream, parallelism)
        assert sorted(got) == [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]

    def test_pickled_records_may_be_keyed(self, env: Any, collect: Any, parallelism: int) -> None:
        stream = (
            env.from_collection(["a", "b", "a"])
            .map(lambda w: (w, 1))
            .key_by(lambda x: x[0])
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
        assert sorted(collect(stream, parallelism)) == [("a", 1), ("a", 2), ("b", 1)]

    def test_rows_have_names(self, env: Any, collect: Any) -> None:
        rows = env.from_collection([Row(name="x", age=3)])
        assert rows.schema.names == ["name", "age"]
        (got,) = collect(rows.map(lambda r: Row(age=r.age + 1, name=r.name), rows.get_type()))
        assert (got.name, got.age) == ("x", 4)

    def test_batch_functions(self, env: Any, collect: Any, parallelism: int) -> None:
        stream = env.from_collection(list(range(100))).map(
            lambda a: pc.multiply(a, pa.scalar(3)), Types.LONG(), batch=True
        )
        assert sorted(collect(stream, parallelism)) == [3 * i for i in range(100)]

    def test_union_and_partitioning(self, env: Any, collect: Any, parallelism: int) -> None:
        a, b = env.from_collection([1, 2]), env.from_collection([3])
        stream = (
            a.union(b).rebalance().map(lambda x: x, Types.LONG()).global_().map(lambda x: -x, Types.LONG())
        )
        assert sorted(collect(stream, parallelism)) == [-3, -2, -1]
        everywhere = b.broadcast().map(lambda x: x, Types.LONG())
        assert collect(everywhere, parallelism) == [3] * parallelism

    def test_names_and_uids_reach_the_graph(self, env: Any) -> None:
        stream = env.from_collection([1]).map(lambda x: x, Types.LONG()).name("double").uid("my-uid")
        stream.set_parallelism(3).disable_chaining()
        stream.sink_to(Sink.connector("blackhole")).name("away").uid("out")
        nodes = {o.uid: (o.name, v.parallelism) for v in env.job_graph().vertices for o in v.operators}
        assert nodes["my-uid"] == ("double", 3)
        assert "away" in nodes["out"][0]


class Counting(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        ctx.timer_service().register_event_time_timer(10**9)
        yield value.user, n

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -self.count.value()


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
EXPECTED = sorted([(u, n) for u in "ab" for n in range(1, 31)] + [("a", -30), ("b", -30)])


class TestKeyed:
    @pytest.mark.parametrize(
        "selector", ["user", 0, lambda r: r.user, lambda r: r["user"], lambda r: r[0] + ""]
    )
    def test_process(self, env: Any, collect: Any, parallelism: int, selector: Any) -> None:
        stream = events(env).key_by(selector, key_type=Types.STRING()).process(Counting(), PAIR)
        assert sorted(collect(stream, parallelism)) == EXPECTED

    def test_process_on_leveldb(self, env: Any, collect: Any, parallelism: int) -> None:
        env.set_state_backend("leveldb")
        stream = events(env).key_by("user").process(Counting(), PAIR)
        assert sorted(collect(stream, parallelism)) == EXPECTED

    def test_a_key_of_several_columns(self, env: Any, collect: Any, parallelism: int) -> None:
        class Keys(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Any:
                key = ctx.get_current_key()
                yield key[0], key[1]

        stream = events(env).key_by(lambda r: (r.user, r.n)).process(Keys(), PAIR)
        assert sorted(collect(stream, parallelism)) == sorted((u, n) for u, _, n in EVENTS)

    def test_running_aggregates(self, env: Any, collect: Any) -> None:
        rows = [("a", 3), ("a", 1), ("a", 5)]
        for how, expected in {
            "sum": [("a", 3), ("a", 4), ("a", 9)],
            "min": [("a", 3), ("a", 1), ("a", 1)],
            "max": [("a", 3), ("a", 3), ("a", 5)],
            "max_by": [("a", 3), ("a", 3), ("a", 5)],
        }.items():
            keyed = env.from_collection(rows, PAIR).key_by(0)
            assert collect(getattr(keyed, how)(1)) == expected, how

    def test_side_outputs(self, env: Any, collect: Any, parallelism: int) -> None:
        odd = OutputTag("odd", Types.LONG())

        class Split(ProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Any:
                if value % 2:
                    yield odd, value
                else:
                    yield value

        main = env.from_collection(list(range(10))).process(Split(), Types.LONG())
        assert sorted(collect(main.get_side_output(odd), parallelism)) == [1, 3, 5, 7, 9]
        assert sorted(collect(main, parallelism)) == [0, 2, 4, 6, 8]
        unread = env.from_collection(list(range(10))).process(Split(), Types.LONG())
        assert sorted(collect(unread, parallelism)) == [0, 2, 4, 6, 8]
        untyped = env.from_collection(list(range(10))).process(Split())
        assert sorted(collect(untyped, parallelism)) == [0, 2, 4, 6, 8]

    def test_connected_streams_share_state(self, env: Any, collect: Any, parallelism: int) -> None:
        class Match(CoProcessFunction):
            def open(self, context: Any) -> None:
                self.seen = context.get_state(ValueStateDescriptor("seen", Types.LONG()))

            def process_element1(self, value: Any, ctx: Any) -> Any:
                return self._match(value[1])

            def process_element2(self, value: Any, ctx: Any) -> Any:
                return self._match(value[1])

            def _match(self, n: int) -> Any:
                other = self.seen.value()
                self.seen.update(n)
                if other is not None:
                    yield other + n

        a = env.from_collection([("x", 1), ("y", 2)], PAIR)
        b = env.from_collection([("x", 10), ("z", 20)], PAIR)
        stream = a.connect(b).key_by(lambda r: r[0], "f0").process(Match(), Types.LONG())
        assert collect(stream, parallelism) == [11]

    def test_broadcast_state(self, env: Any, collect: Any) -> None:
        rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

        class Store(KeyedBroadcastProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Any:
                return []

            def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
                state = ctx.get_broadcast_state(rules)
                state.put(value[0], value[1])
                return [len(state.keys())]

        data = env.from_collection([("x", 1)], PAIR).key_by(0)
        control = env.from_collection([("r1", 1), ("r2", 2)], PAIR)
        stream = data.connect(control.broadcast(rules)).process(Store(), Types.LONG())
        assert sorted(collect(stream, 2)) == [1, 1, 2, 2]


def in_windows(size: int, slide: int) -> dict:
    out: dict = defaultdict(list)
    for user, ts, n in EVENTS:
        for start in range(-size, 60_000, slide):
            if start <= ts < start + size:
                out[user, start].append(n)
    return out


class Average(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value.n, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class WithWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, float(sum(elements))


SPAN = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])


class TestWindows:
    def test_built_in_aggregates_run_on_columns(self, env: Any, collect: Any, parallelism: int) -> None:
        stream = (
            events(env)
            .key_by("user")
            .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
            .aggregate(agg.count("c"), agg.sum("n").alias("s"), ("max", "n"))
        )
        assert stream.schema.names == ["user", "c", "s", "max_n", "window_start", "window_end"]
        got = {(r.user, round(r.window_start.timestamp() * 1000)): (r.c, r.s, r.max_n)
               for r in collect(stream, parallelism)}  # fmt: skip
        assert got == {k: (len(v), sum(v), max(v)) for k, v in in_windows(10_000, 5_000).items()}
        env._sinks.clear()
        stream.print()
        names = [type(o.spec).__name__ for v in env.job_graph().vertices for o in v.operators]
        assert "WindowAggregateSpec" in names
        assert "KeyedWindowSpec" not in names

    def test_a_python_aggregate_with_its_window(self, env: Any, collect: Any, parallelism: int) -> None:
        windowed = events(env).key_by("user").window(TumblingEventTimeWindows.of(Time.seconds(10)))
        stream = windowed.aggregate(
            Average(),
            WithWindow(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=SPAN,
        )
        expected = [(u, s, sum(v) / len(v)) for (u, s), v in in_windows(10_000, 10_000).items()]
        assert sorted(collect(stream, parallelism)) == sorted(expected)

    def test_windows_after_windows(self, env: Any, collect: Any, parallelism: int) -> None:
        inner = (
            events(env)
            .key_by("user")
            .window(TumblingEventTimeWindows.of(Time.seconds(5)))
            .aggregate(agg.sum("n"))
        )
        stream = (
            inner.key_by(lambda r: r.user)
            .window(TumblingEventTimeWindows.of(Time.seconds(20)))
            .reduce(lambda a, b: a if a.sum_n > b.sum_n else b)
        )
        best: dict = defaultdict(int)
        for (user, start), values in in_windows(5_000, 5_000).items():
            key = user, start // 20_000
            best[key] = max(best[key], sum(values))
        assert sorted(r.sum_n for r in collect(stream, parallelism)) == sorted(best.values())

    def test_sessions_and_process(self, env: Any, collect: Any, parallelism: int) -> None:
        rows = [("a", 0, 1), ("a", 900, 2), ("a", 5_000, 4), ("b", 100, 8)]

        class Sums(ProcessWindowFunction):
            def process(self, key: Any, context: Any, elements: Any) -> Any:
                yield key, context.window().end - context.window().start, float(sum(e.n for e in elements))

        stream = (
            events(env, rows)
            .key_by("user")
            .window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
            .process(Sums(), SPAN)
        )
        assert sorted(collect(stream, parallelism)) == [
            ("a", 1_000, 4.0),
            ("a", 1_900, 3.0),
            ("b", 1_000, 8.0),
        ]

    @pytest.mark.parametrize("columnar", [True, False])
    def test_late_records(self, env: Any, collect: Any, columnar: bool) -> None:
        late = OutputTag("late", EVENT)
        n = 40_000
        rows = [("a", i, 1) for i in range(n)] + [("a", 5, 7)]
        env.set("pipeline.auto-watermark-interval", "1 ms")
        source = events(env, rows, Time.milliseconds(0)).rebalance()
        windowed = source.key_by("user").window(TumblingEventTimeWindows.of(Time.seconds(1)))
        windowed = windowed.side_output_late_data(late)
        if columnar:
            result = windowed.aggregate(agg.sum("n").alias("s"))
            on_time = result.map(lambda r: ("on time", r.s), PAIR)
        else:
            result = windowed.reduce(lambda a, b: (a.user, a.ts, a.n + b.n))
            on_time = result.map(lambda r: ("on time", r.n), PAIR)
        missed = result.get_side_output(late).map(lambda r: ("late", r.n), PAIR)
        # One job: what is late depends on when watermarks pass, so it differs from run to run.
        got = collect(on_time.union(missed))
        assert sum(n for _, n in got) == n + 7
        assert {n for kind, n in got if kind == "late"} <= {1, 7}

    def test_count_windows(self, env: Any, collect: Any) -> None:
        stream = env.from_collection([("a", i) for i in range(7)], PAIR).key_by(0).count_window(3)
        assert collect(stream.reduce(lambda a, b: (a[0], a[1] + b[1]))) == [("a", 3), ("a", 12)]


def test_interval_join(env: Any, collect: Any, parallelism: int) -> None:
    left = [("a", 10_000, 1), ("a", 20_000, 2), ("b", 10_000, 3)]
    right = [("a", 9_000, 100), ("a", 11_500, 200), ("a", 50_000, 300), ("b", 90_000, 400)]
    joined = events(env, left).key_by("user").interval_join(events(env, right).key_by("user"))
    joined = joined.between(Time.seconds(-2), Time.seconds(2))
    got = collect(joined.left(), parallelism)
    assert got[0]._fields == ("user", "ts", "n", "user0", "ts0", "n0")
    expected = [(1, 100), (1, 200), (2, None), (3, None)]
    assert sorted(((r.n, r.n0) for r in got), key=str) == sorted(expected, key=str)
    pairs = joined.process(lambda a, b: a.n * b.n, Types.LONG())
    assert sorted(collect(pairs, parallelism)) == [100, 200]


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_in_batch_no_row_is_late(env: Any, mode: RuntimeExecutionMode) -> None:
    """No watermark comes before the end: not from a stream, nor from a table's declaration."""
    env.set_runtime_mode(mode)
    env.execute_sql(
        "CREATE TABLE t (user STRING, ts TIMESTAMP(3), n BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        "WITH ('connector' = 'datagen', 'number-of-rows' = '9')"
    )
    for stream in (events(env), env.from_table("t")):
        windowed = stream.key_by("user").window(TumblingEventTimeWindows.of(Time.seconds(10)))
        windowed.aggregate(agg.sum("n")).print()
    specs = [o.spec for v in env.job_graph().vertices for o in v.operators]
    found = [spec.watermark for spec in specs if getattr(spec, "watermark", None) is not None]
    assert len(found) >= 2
    batch = mode is not RuntimeExecutionMode.STREAMING
    assert all((w.delay_us > 2**60) is batch for w in found)


class TestErrors:
    def test_the_users_error_comes_out(self, env: Any, collect: Any) -> None:
        def bad(value: int) -> int:
            return 10 // (value - 3)

        with pytest.raises(FunctionError, match="ZeroDivisionError") as err:
            collect(env.from_collection(list(range(6))).map(bad))
        assert "in bad" in str(err.value)
        assert "record 3" in str(err.value)

    def test_bad_programs_are_refused_at_once(self, env: Any) -> None:
        stream = env.from_collection([("a", 1)], PAIR)
        cases = {
            "no such column": lambda: stream.key_by("nope"),
            "output type": lambda: stream.map(lambda b: b, batch=True),
            "without a sink": env.execute,
            "different types": lambda: stream.union(env.from_collection([1])),
            "no side outputs": lambda: stream.get_side_output(OutputTag("x", Types.LONG())),
            "unknown on_error": lambda: (
                stream.map(lambda x: x, Types.LONG(), on_error="ignore").print() or env.job_graph()
            ),
            "unknown connector": lambda: stream.sink_to(Sink.connector("kafkaa")),
            "never fires": lambda: _global(stream),
            "does not support merging": lambda: _sessions(stream).trigger(Unmergeable()),
            "does not support merging\\.": lambda: _sessions(stream).trigger(
                PurgingTrigger.of(Unmergeable())
            ),
            "not a trigger": lambda: _sessions(stream).trigger(CountTrigger),
            "twice|different|two types": lambda: _two_types(stream),
        }
        for text, program in cases.items():
            env._sinks.clear()
            with pytest.raises((SpecError, UnsupportedError, Exception), match=text):
                program()

    def test_configuration_typos(self, env: Any) -> None:
        with pytest.raises(SpecError, match="unknown configuration key"):
            env.set("execution.checkpointing.intervall", 5)

    def test_what_cannot_be_pickled_is_named(self, env: Any) -> None:
        import threading

        lock = threading.Lock()

        class Locked(MapFunction):
            def __init__(self) -> None:
                self.lock = lock

            def map(self, value: Any) -> Any:
                return value

        env.from_collection([1]).map(Locked(), Types.LONG()).print()
        with pytest.raises(FunctionError, match="cannot be sent"):
            env.job_graph()


class Unmergeable(Trigger):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        return TriggerResult.FIRE


def _sessions(stream: Any) -> Any:
    return stream.key_by(0).window(EventTimeSessionWindows.with_gap(Time.seconds(1)))


def _global(stream: Any) -> None:
    from penstock.api import GlobalWindows

    stream.key_by(0).window(GlobalWindows.create()).reduce(lambda a, b: a)


def _two_types(stream: Any) -> None:
    made = stream.process(ProcessFunction(), Types.LONG())
    made.get_side_output(OutputTag("x", Types.LONG()))
    made.get_side_output(OutputTag("x", Types.STRING()))


@pytest.mark.parametrize("shuffled", [False, True])
def test_consumers_of_one_stream_do_not_see_what_another_does_to_its_records(
    collect: Any, parallelism: int, shuffled: bool
) -> None:
    def change(record: Any) -> Any:
        record["n"] += 100
        return "changed", record["n"]

    records = (
        StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2]).map(lambda n: {"n": n})
    )
    theirs = records.rebalance() if shuffled else records
    changed = theirs.map(change)
    seen = theirs.map(lambda record: ("seen", record["n"]))
    assert sorted(collect(changed.union(seen), parallelism)) == [
        ("changed", 101), ("changed", 102), ("seen", 1), ("seen", 2),
    ]  # fmt: skip
