"""A user's own classes in a whole job: records, keys, state, broadcast, side outputs, across slots."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = """
    import dataclasses, enum, sys, typing, msgspec
    sys.path.insert(0, sys.argv[1])
    import beside
    from penstock.api import (
        BroadcastProcessFunction, KeyedProcessFunction, ListStateDescriptor, MapStateDescriptor, OutputTag,
        StreamExecutionEnvironment, Types, ValueStateDescriptor,
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

    class Count(KeyedProcessFunction):
        def open(self, ctx):
            self.last = ctx.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))
            self.all = ctx.get_list_state(ListStateDescriptor("all", Types.PICKLED_BYTE_ARRAY()))
            self.map = ctx.get_map_state(MapStateDescriptor("map", Types.PICKLED_BYTE_ARRAY(), Types.LONG()))
        def process_element(self, value, ctx):
            key, record = value
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
    for row in sorted(counted.union(side).execute_and_collect()):
        print(row)
"""


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
    assert done.stdout.splitlines() == sorted([*want, *["side Plain"] * 24])
