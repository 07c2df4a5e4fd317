"""A user's own classes in a whole job: records, keys, state, broadcast, side outputs, across slots."""

import dataclasses
import subprocess
import sys
import textwrap

import pytest

from penstock.api import KeyedProcessFunction, Sink, StreamExecutionEnvironment, Types, ValueStateDescriptor
from penstock.testing import MemoryTable
from penstock.testing.harness import JobHarness
from penstock.types import Batch
from penstock.types import logical as t

PROGRAM = """
    import dataclasses, enum, sys, typing, msgspec
    sys.path.insert(0, sys.argv[1])
    import beside
    from penstock.api import (
        AggregateFunction, AggregatingStateDescriptor, KeyedBroadcastProcessFunction, KeyedProcessFunction,
        ListStateDescriptor, MapStateDescriptor, OutputTag, ReducingStateDescriptor, StreamExecutionEnvironment, Types,
        ValueStateDescriptor,
    )

    @dataclasses.dataclass
    class Data:
        n: int
    class Struct(msgspec.Struct):
        n: int
        def twice(self): return Struct(2 * self.n)
    class Named(typing.NamedTuple):
        n: int
    class Color(enum.Enum):
        RED = 1
        BLUE = 2
        @property
        def n(self): return self.value
    class Plain:
        __slots__ = ("n",)
        def __init__(self, n): self.n = n

    def scope():
        @dataclasses.dataclass(frozen=True)
        class Local:
            n: int
        return Local
    Local = scope()
    KEYS = [Data, Struct, Named, Color, beside.Model, Local]
    SIDE = OutputTag("side")

    RULES = MapStateDescriptor("rules", Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY())

    class Latest(AggregateFunction):
        def create_accumulator(self): return Data(0)
        def add(self, value, accumulator): return Data(max(accumulator.n, value.n))
        def get_result(self, accumulator): return Struct(accumulator.n)
        def merge(self, a, b): return Data(max(a.n, b.n))

    class Rules(KeyedBroadcastProcessFunction):
        def process_element(self, value, ctx): return ()
        def process_broadcast_element(self, value, ctx):
            rules = ctx.get_broadcast_state(RULES)
            rules.put(Local(value.n), value)
            [(key, rule)] = rules.items()
            yield f"rule {type(key).__name__} {type(rule).__name__}"

    class Count(KeyedProcessFunction):
        def open(self, ctx):
            self.last = ctx.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))
            self.all = ctx.get_list_state(ListStateDescriptor("all", Types.PICKLED_BYTE_ARRAY()))
            self.map = ctx.get_map_state(MapStateDescriptor("map", Types.PICKLED_BYTE_ARRAY(), Types.LONG()))
            self.sum = ctx.get_reducing_state(
                ReducingStateDescriptor("sum", lambda a, b: Plain(a.n + b.n), Types.PICKLED_BYTE_ARRAY()))
            self.max = ctx.get_aggregating_state(
                AggregatingStateDescriptor("max", Latest(), Types.PICKLED_BYTE_ARRAY()))
        def process_element(self, value, ctx):
            key, record = value
            self.sum.add(record)
            self.max.add(record)
            assert type(self.sum.get()) is Plain and self.sum.get().n == sum(r.n for r in self.all.get() or ()) + record.n
            assert type(self.max.get()) is Struct and self.max.get().n >= record.n
            assert type(ctx.get_current_key()) is type(key), ctx.get_current_key()
            assert self.last.value() is None or type(self.last.value()) is Plain
            self.last.update(record)
            self.all.add(record)
            self.map.put(Local(record.n), 1)
            yield SIDE, record
            yield f"{type(key).__name__} {key.n} {len(list(self.all.get()))} {len(list(self.map.keys()))}"

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.set("execution.runtime-mode", sys.argv[2])
    made = env.from_collection(list(range(24)), Types.LONG()).rebalance().map(
        lambda i: (KEYS[i % 6](1 + i // 6 % 2), Plain(i))
    )
    counted = made.key_by(lambda r: r[0]).process(Count())
    side = counted.get_side_output(SIDE).rebalance().map(lambda r: f"side {type(r).__name__}", Types.PICKLED_BYTE_ARRAY())
    rule = env.from_collection([Plain(7)]).broadcast(RULES)
    ruled = made.key_by(lambda r: r[0]).connect(rule).process(Rules())
    rows = list(counted.union(side, ruled).execute_and_collect())
    rules = {row for row in rows if row.startswith("rule")}
    for row in [*sorted(row for row in rows if row not in rules), *rules]:
        print(row)
"""


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["STREAMING", pytest.param("BATCH", marks=pytest.mark.slow)])
def test_classes_of_the_script_and_beside_it(tmp_path, mode):
    (tmp_path / "beside.py").write_text(
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass Model:\n    n: int\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), mode],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names = ["Color", "Data", "Local", "Model", "Named", "Struct"]
    want = [f"{name} {n} {k} {k}" for name in names for n in (1, 2) for k in (1, 2)]
    assert done.stdout.splitlines() == [*sorted([*want, *["side Plain"] * 24]), "rule Local Plain"]


def visits():
    """A program anew, with a class of its own, as when its script is run again."""

    @dataclasses.dataclass
    class Visit:
        who: str
        pages: list

    class Visits(KeyedProcessFunction):
        def open(self, ctx):
            self.visit = ctx.get_state(ValueStateDescriptor("visit", Types.PICKLED_BYTE_ARRAY()))

        def process_element(self, value, ctx):
            visit = self.visit.value() or Visit(value[0], [])
            assert type(visit) is Visit
            visit.pages.append(value[1])
            self.visit.update(visit)
            yield visit.who, sum(visit.pages), len(visit.pages)

    env = StreamExecutionEnvironment({"execution.engine": "streaming"}).set_parallelism(2)
    env.execute_sql(
        "CREATE TABLE visits (who STRING, page BIGINT) WITH ('connector' = 'memory', 'name' = 'visits')"
    )
    out = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    made = env.from_table("visits").key_by(lambda r: r[0]).process(Visits(), out).uid("visits")
    made.sink_to(Sink.connector("memory", {"name": "seen"}))
    return env.job_graph()


async def test_a_savepoint_with_a_class_in_state_is_restored_by_the_script_run_again():
    schema = t.Schema.of(("who", t.VarCharType()), ("page", t.BigIntType()))
    source = MemoryTable(
        "visits", schema, [[Batch.of(schema, [(f"w{i % 5}", i) for i in range(200)])]], batch_rows=10
    )
    out = MemoryTable(
        "seen", t.Schema.of(("f0", t.VarCharType()), ("f1", t.BigIntType()), ("f2", t.BigIntType()))
    )
    source.release(100)
    async with JobHarness(visits()) as job:
        await job.until(
            lambda: sum(task.records_in for task in job.deployment.tasks.values() if task.chain.sinks) >= 100
        )
        savepoint = await job.checkpoint("savepoint")
    source.release()
    async with JobHarness(visits(), restore=savepoint, store=job.store) as again:
        await again.wait()
    pages = {f"w{k}": list(range(k, 200, 5)) for k in range(5)}
    expected = [(who, sum(of[:n]), n) for who, of in pages.items() for n in range(1, 41)]
    assert sorted(out.committed_rows()) == sorted(expected)
