"""The conformance kit of operators. The author gives a plan node, input rows, and a reference in plain
Python.

The kit plans the node and runs it as a job, as a job that is killed after every checkpoint, on Spark, and
alone. It snapshots and restores the state at every step, moves it to other parallelisms, evicts nearly all of
it from memory, and retracts rows. Each time the final rows must be those of the reference. See ``penstock.testing.conformance.base`` for how a kit is used.
"""

from __future__ import annotations

import asyncio
import unittest
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest import mock

import cloudpickle
import msgspec
import numpy as np

from penstock.config import PARALLELISM, RUNTIME_MODE, STATE_TTL_MS
from penstock.functions.expr import InputRef
from penstock.jobgraph.graph import FunctionArtifact, Hash
from penstock.jobgraph.specs import Spec
from penstock.operators.factory import make_operator
from penstock.plan import nodes as n
from penstock.plan.physical import plan_job
from penstock.state import cold_tier, memory
from penstock.testing.conformance.base import Conformance
from penstock.testing.harness import run_graph
from penstock.testing.killed import run_killed
from penstock.testing.memory import MemoryTable
from penstock.testing.on_spark import needs_spark, rows_on_spark
from penstock.testing.operator_harness import Cluster, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.graph import JobGraph, OperatorNode
    from penstock.jobgraph.specs import WatermarkSpec
    from penstock.types.logical import Schema

Row = tuple[Any, ...]

#: The attributes by which a spec says how Spark runs it. A stateful operator that defines none of them does
#: not run on Spark.
_OF_SPARK = ("native", "meeting_keys", "event_order", "reads_time", "reads_arrival", "compaction")


class OperatorConformance(Conformance):
    """Checks an operator against ``expected``. The author gives ``schemas``, ``rows``, ``node`` and
    ``expected``, and derived attributes where the operator needs them.

    At parallelism 1 the job must have exactly one operator between its sources and its sink: the kit also
    drives that operator alone. Two inputs get their rows in turns; ``expected`` must not depend on which
    comes first."""

    #: Rows of one batch. Few, so that snapshots are taken at many positions.
    batch_rows = 4
    #: For each input, how watermarks are made from one of its columns; empty: there is no event time.
    watermarks: tuple[WatermarkSpec | None, ...] = ()
    #: Whether inputs may retract rows.
    takes_updates = False
    #: Settings of the job.
    config: dict[str, str] = {}
    #: The user's functions and objects that the node names. Each is pickled.
    functions: dict[str, Any] = {}
    #: The columns by which a row of the output replaces an older one, if the operator emits no old rows (−U).
    upsert_key: tuple[int, ...] = ()
    #: For each input, the column whose times are the records' own event times; empty: they have none.
    times: tuple[int | None, ...] = ()

    def schemas(self) -> list[Schema]:
        """The schema of each input."""
        raise NotImplementedError

    def rows(self) -> list[list[Row]]:
        """The rows of each input, in the order of arrival."""
        raise NotImplementedError

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        """The operator's plan node over ``inputs``."""
        raise NotImplementedError

    def expected(self, rows: list[list[Row]]) -> Sequence[Row]:
        """The final rows, in any order, after the inputs gave ``rows`` and ended."""
        raise NotImplementedError

    # -- as a job ------------------------------------------------------------------------------

    def test_a_job_gives_the_expected_rows(self) -> None:
        for parallelism in (1, 2, 3):
            got = run_graph(self._job(parallelism)).rows
            self._same(Counter(map(_plain, got)), f"a job at parallelism {parallelism}")

    def test_batches_of_one_row(self) -> None:
        got = run_graph(self._job(2, batch_rows=1)).rows
        self._same(Counter(map(_plain, got)), "a job that is given row by row")

    def test_columns_that_nobody_reads_may_go(self) -> None:
        """Reads one output column at a time. The planner then prunes every input column that the node does
        not declare to read."""
        width = len(self.node(self._scans()).schema)
        for column in () if self.upsert_key else range(width):
            got = run_graph(self._job(1, column=column)).rows
            expected = Counter((_plain(row)[column],) for row in self.expected(self.rows()))
            self._same(Counter(map(_plain, got)), f"column {column} alone", expected)

    def test_a_job_killed_behind_every_checkpoint(self) -> None:
        """Everything that an attempt did after its last checkpoint must be without effect, wherever the
        operator kept it."""
        tables = [self._table_name(index) for index in range(len(self.schemas()))]
        run = run_killed(self._job, tables, step_rows=self.batch_rows)
        got = asyncio.run(run).rows
        self._same(Counter(map(_plain, got)), "a job that was killed behind every checkpoint")

    def test_a_job_on_spark(self) -> None:
        """Runs only if the operator says how Spark runs it. Spark gives rows in the order of event time, so
        the reference gets the rows in that order, too."""
        op = self._alone()
        own = type(op.spec.own())
        declared = any(getattr(own, name) is not getattr(Spec, name) for name in _OF_SPARK)
        if op.spec.keeps_state() and not declared:
            words = ", ".join(_OF_SPARK)
            raise unittest.SkipTest(
                f"{own.__name__} keeps state and declares nothing for Spark: none of {words}"
            )
        needs_spark()
        got = rows_on_spark(self._job(1))
        expected = self.expected([self._in_event_order(op, i, rows) for i, rows in enumerate(self.rows())])
        self._same(Counter(map(_plain, got)), "a job on Spark", Counter(map(_plain, expected)))

    def test_it_says_what_it_keeps(self) -> None:
        """A stateful operator describes its state for EXPLAIN, and has a meaning by which savepoints
        recognize it."""
        graph = self._job(1)
        for op in self._own(graph):
            if op.spec.keeps_state():
                line = next(x for x in graph.plan.splitlines() if x.startswith("#") and f" {op.name}" in x)
                assert "keeps " in line, f"EXPLAIN does not say what '{op.name}' keeps: {line}"
                assert op.identity.meaning, (
                    f"the state of '{op.name}' has no meaning: Node.meaning gives none"
                )

    # -- alone, with its state ------------------------------------------------------------------

    def test_spread_over_subtasks(self) -> None:
        for parallelism in (1, 2, 4):
            self._ended(self._cluster(parallelism), self._batches(), f"{parallelism} subtasks")

    def test_restored_at_every_step(self) -> None:
        """At every step the operator is replaced by a new one that is restored from the checkpoint before the
        step."""
        batches = list(self._batches())
        for at in range(len(batches) + 1):
            cluster = self._fed(self._cluster(1), batches[:at]).rescale(1)
            self._ended(cluster, batches[at:], f"restored before step {at}")

    def test_rescaled_on_the_way(self) -> None:
        cluster = self._cluster(1)
        for step, batch in enumerate(self._batches()):
            if step % 3 == 2:
                cluster = cluster.rescale((2, 4, 3, 1)[step // 3 % 4])
            self._fed(cluster, [batch])
        self._ended(cluster, [], "rescaled every three steps")

    def test_key_groups_handed_over_on_the_way(self) -> None:
        """Key groups move from one running subtask to another, as when a running job is rescaled."""
        cluster = self._cluster(1)
        for step, batch in enumerate(self._batches()):
            if step % 3 == 2:
                cluster = cluster.hand_over((2, 4, 3, 1)[step // 3 % 4])
            self._fed(cluster, [batch])
        self._ended(cluster, [], "key groups handed over every three steps")

    def test_checkpoints_that_fail(self) -> None:
        """An aborted checkpoint loses no state."""
        cluster = self._cluster(2, checkpoint_every=2)
        for batch in self._batches():
            given_up = [(subtask, subtask.begin()) for subtask in cluster.subtasks]
            self._fed(cluster, [batch])
            for subtask, snapshot in given_up:
                subtask.abort(snapshot)
        self._ended(cluster.rescale(1), [], "after checkpoints that failed")

    def test_state_beyond_memory(self) -> None:
        """Hardly any key may stay in memory, so the state of each step comes back from the disk."""
        with mock.patch.object(memory, "HARD", 1e9), mock.patch.object(cold_tier, "_EVICT_KEYS", 1):
            cluster = self._cluster(1, limit_bytes=1, folder=self.folder)
            self._ended(cluster, self._batches(), "a state that lies on disk")

    def test_time_to_live(self) -> None:
        """Keys that were not written during the time to live are gone."""
        op = self._alone({STATE_TTL_MS.key: "1000"})
        if not getattr(op.spec.own(), "ttl_ms", 0):
            return
        cluster = self._cluster(1, op=op)
        subtask = self._fed(cluster, self._batches()).subtasks[0]
        for now_ms in range(0, 10_000, 500):
            subtask.processing_time(now_ms)
        gauge = subtask.metrics.gauges.get("numKeysInState")
        kept = 0 if gauge is None else gauge()
        assert not kept, f"{kept} keys are in the state 9 s after their time to live of 1 s"

    def test_rows_that_are_taken_back(self) -> None:
        """A row that was inserted and retracted must be without effect."""
        if not self.takes_updates:
            return
        op = self._alone()
        if hasattr(op.spec, "retracts"):
            op = msgspec.structs.replace(op, spec=msgspec.structs.replace(op.spec, retracts=True))
        cluster = self._cluster(2, op=op)
        for index, batch in self._batches():
            back = batch.with_kinds(np.full(batch.num_rows, RowKind.DELETE, np.uint8))
            for one in (batch, batch, back):
                cluster.process(one, index)
        self._ended(cluster, [], "rows taken back")

    # -- parts ----------------------------------------------------------------------------------

    def _same(
        self, got: Counter[tuple[Any, ...]], what: str, expected: Counter[tuple[Any, ...]] | None = None
    ) -> None:
        wanted = Counter(map(_plain, self.expected(self.rows()))) if expected is None else expected
        missing, surplus = wanted - got, got - wanted
        assert got == wanted, (
            f"{what}: {missing.total()} rows are missing, {surplus.total()} are too many; "
            f"missing {list(missing)[:3]}, too many {list(surplus)[:3]}"
        )

    def _ended(self, cluster: Cluster, batches: Any, what: str) -> None:
        self._fed(cluster, batches).finish()
        self._same(Counter(materialized(cluster.out(), self.upsert_key)), what)
        cluster.close()

    def _fed(self, cluster: Cluster, batches: Any) -> Cluster:
        for index, batch in batches:
            cluster.process(batch, index)
        return cluster

    def _batches(self) -> Iterator[tuple[int, Batch]]:
        """(number of the input, batch) of all inputs in turns."""
        rows, schemas = self.rows(), self.schemas()
        longest = max(map(len, rows))
        for start in range(0, longest, self.batch_rows):
            for index, schema in enumerate(schemas):
                part = rows[index][start : start + self.batch_rows]
                if part:
                    yield index, self._batch(index, schema, part)

    def _batch(self, index: int, schema: Schema, rows: list[Row]) -> Batch:
        column = self.times[index] if self.times else None
        batch = Batch.of(schema, rows)
        if column is None:
            return batch
        return batch.with_times(batch.columns[column].cast_type(t.TimestampType(6)).values)

    def _in_event_order(self, op: OperatorNode, index: int, rows: list[Row]) -> list[Row]:
        """The rows of an input as Spark gives them to an operator that looks at event time."""
        order, schema = op.spec.event_order(index), self.schemas()[index]
        watermark = self.watermarks[index] if self.watermarks else None
        if order is None or (watermark is None and order == "time"):
            return rows
        column = order if watermark is None else watermark.rowtime
        assert column is not None
        if not isinstance(column, int) or not isinstance(schema.types[column], t.TIMESTAMPS):
            return rows
        return sorted(rows, key=lambda row: (row[column] is not None, row[column]))

    def _table_name(self, index: int) -> str:
        return f"{type(self).__name__}-{index}"

    def _scans(self, batch_rows: int | None = None) -> tuple[n.Node, ...]:
        scans: list[n.Node] = []
        for index, (schema, rows) in enumerate(zip(self.schemas(), self.rows(), strict=True)):
            name = self._table_name(index)
            MemoryTable(
                name, schema, [[self._batch(index, schema, rows)]], batch_rows=batch_rows or self.batch_rows
            )
            table = n.TableRef(
                name=name, connector="memory", options={"name": name}, physical=schema, schema=schema,
                bounded=True, watermark=self.watermarks[index] if self.watermarks else None,
            )  # fmt: skip
            scans.append(n.Scan(table=table, schema=schema))
        return tuple(scans)

    def _job(
        self,
        parallelism: int,
        *,
        batch_rows: int | None = None,
        column: int | None = None,
        config: dict[str, str] | None = None,
    ) -> JobGraph:
        node = self.node(self._scans(batch_rows))
        if column is not None:
            expressions = (InputRef(column, node.schema.types[column]),)
            node = n.Project(input=node, expressions=expressions, schema=node.schema.select([column]))
        table = n.TableRef(
            name="out", connector="collect", options={}, physical=node.schema, schema=node.schema,
            sink_modes=("append", "upsert") if self.upsert_key else ("append", "retract"),
            primary_key=tuple(node.schema.names[k] for k in self.upsert_key),
        )  # fmt: skip
        settings = {
            RUNTIME_MODE.key: "STREAMING",
            **self.config,
            **(config or {}),
            PARALLELISM.key: str(parallelism),
        }
        sink = n.Sink(input=node, table=table, schema=node.schema)
        return plan_job(n.LogicalPlan(name="conformance", sinks=(sink,), config=settings), self._artifacts())

    def _artifacts(self) -> dict[str, FunctionArtifact]:
        return {name: FunctionArtifact(data=cloudpickle.dumps(made)) for name, made in self.functions.items()}

    def _own(self, graph: JobGraph) -> list[OperatorNode]:
        """The job's operators except sources and sinks."""
        nodes = [op for vertex in graph.vertices for op in vertex.operators]
        return [op for op in nodes if not op.spec.is_source and not op.spec.is_sink]

    def _alone(self, config: dict[str, str] | None = None) -> OperatorNode:
        found = self._own(self._job(1, config=config))
        assert len(found) == 1, f"not one operator but {[op.name for op in found]}"
        return found[0]

    def _cluster(self, parallelism: int, *, op: OperatorNode | None = None, **options: Any) -> Cluster:
        op = op or self._alone()
        return Cluster(
            lambda: make_operator(op.spec), self._spread(op), self.schemas(), op.output, parallelism,
            function=self._function, **options,
        )  # fmt: skip

    def _function(self, name: str) -> Any:
        return cloudpickle.loads(cloudpickle.dumps(self.functions[name]))

    def _spread(self, op: OperatorNode) -> list[tuple[int, ...]]:
        """The columns by which the planner spreads the rows of each input; empty: not by columns.

        They may be fewer than those that must meet: a window is among these, and no window is a key group.
        """
        graph = self._job(2)
        vertex = next(v for v in graph.vertices if any(own.uid == op.uid for own in v.operators))
        edges = sorted(graph.inputs_of(vertex.id), key=lambda edge: edge.target_gate)
        keys = [e.partitioning.keys if isinstance(e.partitioning, Hash) else () for e in edges]
        return keys if len(keys) == len(self.schemas()) else [()] * len(self.schemas())


def _plain(row: Sequence[Any]) -> Row:
    """The row in a hashable form: lists and maps are replaced by their texts."""
    return tuple(repr(value) if isinstance(value, (list, dict)) else value for value in row)
