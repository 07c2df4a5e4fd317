"""Jobs whose savepoints were made by Penstock 0.x, when a uid was a fingerprint of the whole sub-plan.

``python earlier_jobs.py FOLDER``, run with the code of commit e124a95, made what lies in
``savepoints/``: one sealed manifest a job, its state inline. Every table's first half had been read.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.jobgraph import JobGraph
from penstock.snapshots.manifest import CheckpointManifest, VertexState, encode_manifest
from penstock.sql.scripts import plan_script
from penstock.testing.harness import JobHarness
from penstock.testing.memory import MemoryTable
from penstock.types import Batch
from penstock.types import logical as t

SCHEMA = t.Schema(
    (
        t.Field("id", t.BigIntType()),
        t.Field("k", t.VarCharType()),
        t.Field("v", t.BigIntType()),
        t.Field("ts", t.TimestampType(3)),
    )
)
ROWS = 40
HALF = ROWS // 2

TABLES = """
CREATE TABLE orders (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'memory', 'name' = 'orders');
CREATE TABLE payments (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'memory', 'name' = 'payments');
CREATE TABLE one (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'memory', 'name' = 'one');
CREATE TABLE two (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'memory', 'name' = 'two');
CREATE TABLE log (k STRING, n BIGINT) WITH ('connector' = 'memory', 'name' = 'log');
"""
CONFIG = {
    "execution.runtime-mode": "STREAMING",
    "execution.engine": "streaming",
    "table.exec.state.ttl": "1 d",
    "pipeline.max-parallelism": "128",
}

SQL: dict[str, tuple[str, str]] = {
    "aggregates": (
        "1",
        """EXECUTE STATEMENT SET BEGIN
        INSERT INTO one SELECT k, SUM(v) FROM orders GROUP BY k;
        INSERT INTO two SELECT k, MAX(v) FROM orders GROUP BY k HAVING COUNT(*) > 1;
        END""",
    ),
    "windows": (
        "2",
        """INSERT INTO log SELECT k, SUM(v)
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '7' SECOND))
        GROUP BY k, window_start, window_end""",
    ),
    "join": ("2", "INSERT INTO log SELECT o.k, o.v + p.v FROM orders o JOIN payments p ON o.id = p.id"),
    "interval-join": (
        "1",
        """INSERT INTO log SELECT o.k, p.v FROM orders o JOIN payments p ON o.id = p.id
        AND p.ts BETWEEN o.ts - INTERVAL '2' SECOND AND o.ts + INTERVAL '2' SECOND""",
    ),
    "ranked": (
        "1",
        """INSERT INTO one SELECT k, v FROM (
        SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM orders) WHERE n = 1""",
    ),
    "two-scans": (
        "1",
        """INSERT INTO log SELECT a.k, a.v + b.v FROM orders a JOIN (SELECT id, v, ts FROM orders WHERE k <> 'a') b
        ON a.id = b.id""",
    ),
}


class Counting(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.count = ctx.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield value[1], n


def datastream() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    for key, value in CONFIG.items():
        env.configuration[key] = value
    row = Types.TUPLE([Types.STRING(), Types.LONG()])
    rows = env.from_source(Source.connector("memory", SCHEMA, {"name": "orders"}), None, "orders")
    counted = rows.key_by(lambda x: x[1]).process(Counting(), output_type=row)
    sink = Sink.connector(
        "memory",
        {"name": "log"},
        schema=t.Schema((t.Field("k", t.VarCharType()), t.Field("n", t.BigIntType()))),
    )
    counted.sink_to(sink)
    env.set_parallelism(1)
    return env.job_graph("datastream")


def rows_of(table: str) -> Batch:
    start = dt.datetime(2024, 1, 1)
    shift = 0 if table == "orders" else 3
    return Batch.of(
        SCHEMA,
        [(i, "abc"[i % 3], (i * 7 + shift) % 11, start + dt.timedelta(seconds=i)) for i in range(ROWS)],
    )


#: The newest tables of these jobs. Other tests of the process have tables of the same names.
_made: dict[str, MemoryTable] = {}


def tables() -> dict[str, MemoryTable]:
    """Anew: nothing read, nothing committed."""
    pairs = t.Schema((t.Field("k", t.VarCharType()), t.Field("n", t.BigIntType())))
    made = {
        name: MemoryTable(name, SCHEMA, [[rows_of(name)]], batch_rows=5) for name in ("orders", "payments")
    }
    made |= {name: MemoryTable(name, pairs) for name in ("one", "two", "log")}
    _made.update(made)
    return made


def graph_of(job: str, *, script: str | None = None, **config: str) -> JobGraph:
    """``script``: instead of the job's own."""
    if not _made or any(MemoryTable.tables.get(name) is not table for name, table in _made.items()):
        tables()
    if job == "datastream":
        return datastream()
    parallelism, own = SQL[job]
    return plan_script(
        TABLES + (script or own), {**CONFIG, "parallelism.default": parallelism, **config}
    ).job_graph


def readers_of(graph: JobGraph) -> dict[str, int]:
    """Table → how many sources read it."""
    out: dict[str, int] = {}
    for vertex in graph.vertices:
        for node in vertex.operators:
            if type(node.spec).__name__ == "SourceSpec":
                name = node.spec.options["name"]  # type: ignore[union-attr]
                out[name] = out.get(name, 0) + 1
    return out


async def _savepoint(graph: JobGraph) -> tuple[CheckpointManifest, dict[str, list[Any]]]:
    made = tables()
    readers = readers_of(graph)
    for name in readers:
        made[name].release(HALF)
    async with JobHarness(graph) as job:
        await job.until(lambda: all(made[name].rows_read == HALF * n for name, n in readers.items()))
        taken = await job.checkpoint("savepoint")
        manifest = CheckpointManifest(
            job_id="earlier", job_name=graph.name, checkpoint_id=taken.checkpoint_id, kind="savepoint",
            timestamp_ms=0, job_attempt=1, epoch=1, written_by="0.x",
            vertices=tuple(
                VertexState(
                    vertex_id=v.id, name=v.name, uids=tuple(n.uid for n in v.operators),
                    parallelism=v.parallelism, max_parallelism=v.max_parallelism, handles=taken.handles[v.id],
                )
                for v in graph.vertices
            ),
        )  # fmt: skip
        # What the savepoint's commit makes visible: the restored job commits the same again.
        return manifest, {n: [[k.name, list(r)] for k, r in made[n].committed] for n in ("one", "two", "log")}


def main(folder: Path) -> None:
    for job in (*SQL, "datastream"):
        manifest, committed = asyncio.run(_savepoint(graph_of(job)))
        assert all(h is not None and h.inline is not None for v in manifest.vertices for h in v.handles), job
        (folder / job).mkdir(parents=True, exist_ok=True)
        (folder / job / "manifest").write_bytes(encode_manifest(manifest))
        (folder / job / "committed.json").write_text(json.dumps(committed, indent=None) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
