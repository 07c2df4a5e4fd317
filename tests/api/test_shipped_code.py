"""A program whose classes lie in a package that is shipped with the job: planned by the cluster's planner
process, run and restored in processes that have the package from the job's ``files`` alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile

import msgspec
import pytest

MODELS = """
    import dataclasses, enum, msgspec

    @dataclasses.dataclass(frozen=True)
    class Data:
        n: int
    class Struct(msgspec.Struct, frozen=True):
        n: int
    class Color(enum.Enum):
        RED = 1
        BLUE = 2
        @property
        def n(self): return self.value
    class Plain:
        __slots__ = ("n",)
        def __init__(self, n): self.n = n
    LOADED = []
"""
STEPS = """
    from penstock.api import KeyedProcessFunction, Types, ValueStateDescriptor
    from shipped.models import Color, Data, LOADED, Plain, Struct
    KEYS = [Data, Struct, Color]

    def make(row):
        import shipped.models as late  # as a slot that imports while it runs
        i = row[0]
        LOADED.append(i)
        assert late.LOADED is LOADED
        return KEYS[i % 3](1 + i // 3 % 2), (Plain if i % 2 else late.Plain)(i)

    class Count(KeyedProcessFunction):
        def open(self, ctx):
            self.last = ctx.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))
            self.n = ctx.get_state(ValueStateDescriptor("n", Types.LONG()))
        def process_element(self, value, ctx):
            import shipped.models as late
            key, record = value
            kind = getattr(late, type(key).__name__)
            assert type(key) is kind and key == kind(key.n) and ctx.get_current_key() == key
            assert type(record) is late.Plain is Plain
            assert self.last.value() is None or type(self.last.value()) is late.Plain
            self.last.update(record)
            self.n.update((self.n.value() or 0) + 1)
            yield type(key).__name__, key.n, self.n.value()
"""
PROGRAM = """
    from penstock.api import Sink, StreamExecutionEnvironment, Types
    from shipped.steps import Count, make

    env = StreamExecutionEnvironment({"execution.engine": "streaming"}).set_parallelism(2)
    env.execute_sql("CREATE TABLE numbers (i BIGINT) WITH ('connector' = 'memory', 'name' = 'numbers')")
    out = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    made = env.from_table("numbers").rebalance().map(make).key_by(lambda r: r[0]).process(Count(), out).uid("count")
    made.sink_to(Sink.connector("print"))
    env.execute("shipped")
"""
MEMORY = """
    import sys
    from penstock.testing import MemoryTable
    from penstock.types import Batch, logical as t
    schema = t.Schema.of(("i", t.BigIntType()))
    source = MemoryTable("numbers", schema, [[Batch.of(schema, [(i,) for i in range(60)])]], batch_rows=5)
"""
NAMES = ("Color", "Data", "Struct")
PLANNER = "from penstock.api.planner import main\nmain()\n"
RUN = """
    import asyncio, pathlib, pickle
    import msgspec
    from penstock.jobgraph import JobGraph
    from penstock.store.local import LocalStore
    from penstock.testing.harness import JobHarness

    async def main(graph, folder, first):
        saved = folder / "savepoint"
        store = LocalStore(folder / "store")
        if first:
            source.release(30)
            async with JobHarness(graph, store=store) as job:
                await job.until(lambda: sum(x.records_in for x in job.deployment.tasks.values() if x.chain.sinks) >= 30)
                saved.write_bytes(pickle.dumps(await job.checkpoint("savepoint")))
        else:
            async with JobHarness(graph, store=store, restore=pickle.loads(saved.read_bytes())) as job:
                await job.wait()

    graph = msgspec.json.decode(sys.stdin.buffer.read(), type=JobGraph)
    asyncio.run(main(graph, pathlib.Path(sys.argv[1]), sys.argv[2] == "first"))
"""


def process(code: str, given: bytes, *args: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *args], input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize("packed", [True, False], ids=["zip", "folder"])
def test_shipped_classes_are_one_class_in_records_keys_and_state(tmp_path, packed):
    folder = tmp_path / "code"
    (folder / "shipped").mkdir(parents=True)
    for name, text in (("__init__", ""), ("models", MODELS), ("steps", STEPS)):
        (folder / "shipped" / f"{name}.py").write_text(textwrap.dedent(text))
    shipped = folder
    if packed:
        shipped = tmp_path / "code.zip"
        with zipfile.ZipFile(shipped, "w") as archive:
            for file in folder.rglob("*.py"):
                archive.write(file, file.relative_to(folder))
    spec = {"python": textwrap.dedent(PROGRAM), "files": [str(shipped)], "parallelism": 2}
    memory = textwrap.dedent(MEMORY)

    def planned() -> bytes:
        answer = process(memory + PLANNER, msgspec.json.encode(spec)).splitlines()[-1]
        reply = msgspec.json.decode(answer)
        assert "job_graph" in reply, reply
        return msgspec.json.encode(reply["job_graph"])

    def rows(order: str) -> list[str]:
        code = memory + textwrap.dedent(RUN)
        lines = process(code, planned(), str(tmp_path), order).decode().splitlines()
        return sorted(line.split("> ")[-1] for line in lines)

    def expected(first: int, last: int) -> list[str]:
        return sorted(
            f"+I[{name}, {n}, {i}]" for name in NAMES for n in (1, 2) for i in range(first, last + 1)
        )

    assert rows("first") == expected(1, 5)
    assert rows("restored") == expected(6, 10)
