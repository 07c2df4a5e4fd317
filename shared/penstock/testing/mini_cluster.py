"""A cluster in a test's own process: the real runtime, with tables that the test feeds and a clock that only
the test moves.

The pytest fixture ``penstock`` is a ``MiniCluster``::

    def test_sums(penstock):
        orders = penstock.table("orders", "customer INT, cents BIGINT")
        job = penstock.sql("SELECT customer, SUM(cents) AS total FROM orders GROUP BY customer")
        orders.send((1, 10), (2, 5), (1, 7))
        assert job.rows() == [(1, 17), (2, 5)]
        job.kill()
        job.restore()
        orders.send((2, 1))
        assert job.rows() == [(1, 17), (2, 6)]

No test waits for real time: ``rows`` returns when all sent rows have gone through the whole job.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import InternalError, SpecError
from penstock.sql.session import SqlSession
from penstock.testing.harness import JobHarness, ManualClock
from penstock.testing.memory import MemoryTable
from penstock.testing.results import Checkpoint
from penstock.types import Batch, RowKind
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from penstock.api import StreamExecutionEnvironment
    from penstock.jobgraph import JobGraph

T = TypeVar("T")
#: Rows of a changelog: (kind, row).
Change = tuple[RowKind, tuple[Any, ...]]


class TableFeed:
    """A table that a test writes rows into and reads a job's rows from: ``MiniCluster.table`` makes it.

    Args:
        name: Its name in SQL.
        table: The rows.
    """

    def __init__(self, name: str, table: MemoryTable) -> None:
        self.name = name
        self._table = table

    def send(
        self, *rows: Sequence[Any] | Mapping[str, Any], split: int = 0, kind: RowKind | None = None
    ) -> None:
        """Append rows, which running jobs read at once.

        Args:
            rows: Tuples in the order of the table's physical columns, or mappings by name.
            split: The split that they are appended to.
            kind: What all of them mean, for a table with a changelog.

        Raises:
            SpecError: A row has other columns than the table, or the table has no such split.
        """
        schema, splits = self._table.schema, self._table.splits
        if not 0 <= split < len(splits):
            raise SpecError(
                f"table '{self.name}' has no split {split}",
                expected=f"0 to {len(splits) - 1}",
                got=str(split),
                remedy="penstock.table(…, splits=N) makes more",
            )
        values = [self._ordered(row, schema) for row in rows]
        kinds = None if kind is None else [kind] * len(values)
        splits[split] = Batch.concat([splits[split], Batch.of(schema, values, kinds=kinds)])
        self._table.release(self._table.limit)

    def _ordered(self, row: Sequence[Any] | Mapping[str, Any], schema: t.Schema) -> tuple[Any, ...]:
        names = schema.names
        if isinstance(row, dict):
            unknown = sorted(set(row) - set(names))
            values: tuple[Any, ...] = tuple(row.get(name) for name in names)
        else:
            unknown, values = [], tuple(row)
        if unknown or len(values) != len(names):
            raise SpecError(
                f"a row does not fit table '{self.name}'",
                expected=f"{len(names)} columns: {', '.join(names)}",
                got=f"unknown columns {', '.join(unknown)}"
                if unknown
                else f"{len(values)} values: {values!r}",
            )
        return values

    def finish(self) -> None:
        """Declare that no more rows come: the source ends, event time reaches its end, and windows fire."""
        self._table.bounded = True
        self._table.release(self._table.limit)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that jobs have written into the table, as far as checkpoints have committed them."""
        return self._table.committed_rows()

    @property
    def changes(self) -> list[Change]:
        """The rows of ``rows`` with their kinds."""
        return [(RowKind(kind), row) for kind, row in self._table.committed]


class MiniJob:
    """A running job. Once the job has failed, its methods raise the job's error.

    Args:
        cluster: The cluster whose loop and clock it has.
        graph: The job graph.
        config: Configuration that overrides the graph's.
    """

    def __init__(self, cluster: MiniCluster, graph: JobGraph, config: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._graph = graph
        self._config = config
        self._harness: JobHarness | None = None
        self._last: Checkpoint | None = None
        self._killed = False
        self._start(None, None)

    def _start(self, checkpoint: Checkpoint | None, parallelism: int | None) -> None:
        before = self._harness
        harness = JobHarness(
            self._graph,
            parallelism=parallelism,
            restore=checkpoint,
            config=self._config,
            clock=self._cluster.clock,
            store=None if before is None else before.store,
            attempt=1 if before is None else before.attempt + 1,
        )
        self._cluster.do(harness.start())
        self._harness = harness

    @property
    def _running(self) -> JobHarness:
        if self._harness is None or self._killed:
            raise SpecError("the job does not run", expected="a running job", got="one that was killed or stopped",
                            remedy="restore() starts it again")  # fmt: skip
        return self._harness

    def checkpoint(self) -> Checkpoint:
        """Wait until all sent rows have been read, take a checkpoint, and return when it is complete."""

        async def taken() -> Checkpoint:
            harness = self._running
            await harness.until(self._cluster.all_read)
            return await harness.checkpoint()

        self._last = self._cluster.do(taken())
        return self._last

    def settle(self) -> None:
        """Wait until all sent rows have gone through the job, or the job has ended."""
        if self._cluster.all_finished() or self._running.ended:
            self.wait()
        else:
            self.checkpoint()

    def wait(self) -> None:
        """Wait until the job has ended by itself, as bounded jobs do."""
        self._cluster.do(self._running.wait())

    def rows(self) -> list[tuple[Any, ...]]:
        """The result rows of a SELECT once all sent rows have gone through it: its materialized changelog.
        The rows are sorted, unless the query has an order."""
        self.settle()
        found = self._cluster.do(self._running.result()).rows
        return sorted(found, key=repr)

    def changelog(self) -> list[Change]:
        """The changelog of a SELECT once all sent rows have gone through it, in the order of arrival."""
        self.settle()
        return self._cluster.do(self._running.result()).changelog

    def counter(self, name: str) -> int:
        """The counter ``name``, such as ``numLateRecordsDropped``, summed over all operators; 0 if none has counted."""
        return self._cluster.do(self._running.result()).counters.get(name, 0)

    def kill(self) -> None:
        """End the job at once, as a crash would: everything after the last checkpoint is lost."""
        self._cluster.do(self._running.close())
        self._killed = True

    def restore(self, checkpoint: Checkpoint | None = None, *, parallelism: int | None = None) -> None:
        """Start a killed job again; a running one is killed first.

        Args:
            checkpoint: Where to start from; None: the last one, or the beginning if there is none.
            parallelism: Run at this parallelism from now on.
        """
        if not self._killed:
            self.kill()
        self._killed = False
        self._start(checkpoint or self._last, parallelism)

    def advance(self, ms: int) -> None:
        """Move the clock of the job's cluster forward by ``ms``; timers that are due fire."""
        self._cluster.advance(ms)

    def _wake(self) -> None:
        if self._harness is not None and not self._killed:
            self._harness.advance(0)

    def close(self) -> None:
        """End the job if it runs."""
        if not self._killed:
            self.kill()


class MiniCluster:
    """Tables, jobs and a clock of one test. ``close`` ends all jobs; the fixture calls it.

    Args:
        start_ms: The initial time of the clock, in ms since the epoch.
        config: Configuration of all jobs.
    """

    def __init__(self, *, start_ms: int = 1_700_000_000_000, config: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock(start_ms)
        # The clock stands still, so watermarks must follow rows instead of an interval.
        self._config = {
            "execution.runtime-mode": "STREAMING",
            "pipeline.auto-watermark-interval": "0 ms",
            **(config or {}),
        }
        self._loop = asyncio.new_event_loop()
        self._session = SqlSession({"parallelism.default": "1", **self._config})
        self._tables: dict[str, MemoryTable] = {}
        self._jobs: list[MiniJob] = []

    # -- tables --------------------------------------------------------------------------------

    def table(self, name: str, columns: str, *, splits: int = 1, changelog: bool = False) -> TableFeed:
        """Declare a table that the test feeds, or that a job writes into.

        Args:
            name: Its name in SQL.
            columns: The text in the parentheses of CREATE TABLE: columns, WATERMARK FOR, PRIMARY KEY.
            splits: Parts that are read in parallel, each in its own order.
            changelog: Whether rows are sent with their kinds (``send(…, kind=RowKind.DELETE)``).
        """
        table = MemoryTable(
            name, t.Schema(()), [[] for _ in range(splits)], bounded=False,
            changelog="retract" if changelog else "append",
        )  # fmt: skip
        self._tables[name] = table
        quoted, text = name.replace("`", "``"), name.replace("'", "''")
        self._session.execute(
            f"CREATE TABLE `{quoted}` ({columns}) WITH ('connector' = 'memory', 'name' = '{text}')"
        )
        table.schema = self._session.catalog.table(name, "table()").physical
        table.splits = [Batch.empty(table.schema) for _ in range(splits)]
        return TableFeed(name, table)

    def all_read(self) -> bool:
        """Whether the readers of all tables have taken every row that was sent."""
        return all(table.read_to_limit() for table in self._tables.values() if table._readers)

    def all_finished(self) -> bool:
        """Whether every table that a job reads has ended."""
        read = [table for table in self._tables.values() if table._readers]
        return bool(read) and all(table.bounded for table in read)

    # -- jobs ----------------------------------------------------------------------------------

    def sql(self, script: str, *, parallelism: int = 1, config: Mapping[str, str] | None = None) -> MiniJob:
        """Run a script and start the job of its last statement: a SELECT, an INSERT or a statement set.

        Args:
            script: The statements.
            parallelism: Parallelism of the job.
            config: Configuration of the job.

        Raises:
            SqlError: The script is wrong.
            SpecError: Its last statement starts no job.
        """
        settings = {"parallelism.default": str(parallelism), **(config or {})}
        self._session.config.update(settings)
        results = list(self._session.run_script(script))
        if not results or results[-1].job is None:
            raise SpecError(
                "the script starts no job", expected="SELECT, INSERT INTO or a statement set at its end",
                got=f"{len(results)} statements",
            )  # fmt: skip
        return self._run(results[-1].job.job_graph, settings)

    def program(self, env: StreamExecutionEnvironment, *, parallelism: int | None = None) -> MiniJob:
        """Run the job that a DataStream program has built in ``env``, at ``parallelism`` if that is given. The program
        must not execute it itself."""
        graph = env.job_graph()
        return self._run(graph, {} if parallelism is None else {"parallelism.default": str(parallelism)})

    def _run(self, graph: JobGraph, config: Mapping[str, str]) -> MiniJob:
        job = MiniJob(self, graph, {**self._config, **config})
        self._jobs.append(job)
        return job

    # -- time and the loop ---------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Move processing time forward by ``ms``; timers that are due fire in the next steps of all jobs."""
        self.clock.advance(ms)
        for job in self._jobs:
            job._wake()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine ``work`` in the cluster's loop. Jobs run only while one is awaited.

        Raises:
            InternalError: The test itself runs in an event loop.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        work.close()
        raise InternalError(
            "the fixture penstock is used in an async test",
            remedy="write the test as a plain function, def test_…",
        )

    def close(self) -> None:
        """End all jobs and forget the tables."""
        try:
            for job in self._jobs:
                job.close()
        finally:
            for name, table in self._tables.items():
                if MemoryTable.tables.get(name) is table:
                    del MemoryTable.tables[name]
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
