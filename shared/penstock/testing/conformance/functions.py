"""The conformance kits of SQL functions: scalar, aggregate, table."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.sql.functions import user_function
from penstock.sql.parsing import parse_type
from penstock.sql.session import SqlSession
from penstock.testing.conformance.base import Conformance, same_rows
from penstock.testing.harness import JobHarness, run_graph
from penstock.testing.memory import MemoryTable
from penstock.types.batch import Batch
from penstock.types.logical import BigIntType, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph import JobGraph

Row = tuple[Any, ...]
_numbers = itertools.count()


class FunctionConformance(Conformance):
    """The common part of the kits of functions. ``function``: the function that ``@udf``, ``@udaf`` or
    ``@udtf`` decorates; ``arguments``: the SQL types of its arguments."""

    function: Any
    arguments: Sequence[str]

    def _graph(self, query: str, rows: Sequence[Row], *, splits: int, batch_rows: int | None) -> JobGraph:
        """The job of ``query``, in which ``f`` is the function and ``t`` a table of ``rows``: a number (or
        the number of a case), then the arguments."""
        columns = [("k", BigIntType()), *((f"a{i}", parse_type(x)) for i, x in enumerate(self.arguments))]
        schema = Schema.of(*columns)
        name = f"function-kit-{next(_numbers)}"
        self.table = MemoryTable(
            name,
            schema,
            [[Batch.of(schema, rows[i::splits])] for i in range(splits)],
            batch_rows=batch_rows,
        )
        session = SqlSession({"parallelism.default": str(splits)})
        session.catalog.functions.add(user_function("f", self.function, what="the function", where="the kit"))
        ddl = ", ".join(f"{n} {type_.sql()}" for n, type_ in columns)
        session.execute(f"CREATE TABLE t ({ddl}) WITH ('connector' = 'memory', 'name' = '{name}')")
        job = session.execute(query).job
        assert job is not None, f"'{query}' is no job"
        return job.job_graph

    def _ask(
        self, query: str, rows: Sequence[Row], *, splits: int = 1, batch_rows: int | None = None
    ) -> list[Row]:
        return run_graph(self._graph(query, rows, splits=splits, batch_rows=batch_rows)).rows

    @property
    def _inputs(self) -> str:
        return ", ".join(f"a{i}" for i in range(len(self.arguments)))


class ScalarConformance(FunctionConformance):
    """Checks a scalar function. ``cases``: (arguments, result), NULL among them."""

    cases: ClassVar[Sequence[tuple[Row, Any]]]

    def test_the_cases_hold(self) -> None:
        self._hold(splits=1, batch_rows=None)

    def test_it_does_not_matter_how_rows_come(self) -> None:
        """Rows come one at a time, and to several subtasks: the function must keep nothing from call to
        call."""
        self._hold(splits=1, batch_rows=1)
        self._hold(splits=2, batch_rows=2)

    def test_it_stands_in_conditions(self) -> None:
        rows = self._rows()
        got = self._ask(f"SELECT k FROM t WHERE f({self._inputs}) IS NULL", rows)
        same_rows(got, [(k,) for k, (_, result) in enumerate(self.cases) if result is None], "IS NULL")

    def _rows(self) -> list[Row]:
        return [(k, *arguments) for k, (arguments, _) in enumerate(self.cases)]

    def _hold(self, *, splits: int, batch_rows: int | None) -> None:
        rows = [row for _ in range(3) for row in self._rows()]
        got = self._ask(f"SELECT k, f({self._inputs}) FROM t", rows, splits=splits, batch_rows=batch_rows)
        want = [(k, result) for _ in range(3) for k, (_, result) in enumerate(self.cases)]
        same_rows(got, want, f"in {splits} subtasks, {batch_rows or 'all'} rows at a time")


class TableConformance(FunctionConformance):
    """Checks a table function. ``cases``: (arguments, rows)."""

    cases: ClassVar[Sequence[tuple[Row, Sequence[Row]]]]

    def test_the_cases_hold(self) -> None:
        self._hold(splits=1, batch_rows=None)

    def test_it_does_not_matter_how_rows_come(self) -> None:
        self._hold(splits=1, batch_rows=1)
        self._hold(splits=2, batch_rows=2)

    def test_a_left_join_keeps_rows_without_results(self) -> None:
        got = self._ask(
            f"SELECT DISTINCT k FROM t LEFT JOIN LATERAL TABLE(f({self._inputs})) ON TRUE", self._rows()
        )
        same_rows(got, [(k,) for k in range(len(self.cases))], "LEFT JOIN LATERAL")

    def _rows(self) -> list[Row]:
        return [(k, *arguments) for k, (arguments, _) in enumerate(self.cases)]

    def _hold(self, *, splits: int, batch_rows: int | None) -> None:
        width = max((len(row) for _, rows in self.cases for row in rows), default=1)
        names = ", ".join(f"r{i}" for i in range(width))
        query = f"SELECT k, {names} FROM t, LATERAL TABLE(f({self._inputs})) AS r({names})"
        got = self._ask(query, self._rows(), splits=splits, batch_rows=batch_rows)
        want = [(k, *row) for k, (_, rows) in enumerate(self.cases) for row in rows]
        same_rows(got, want, f"in {splits} subtasks, {batch_rows or 'all'} rows at a time")


class AggregateConformance(FunctionConformance):
    """Checks an aggregate function. ``cases``: (rows of arguments, result). ``ordered``: the result depends
    on the order of rows, so the kit neither shuffles nor merges nor retracts them."""

    cases: ClassVar[Sequence[tuple[Sequence[Row], Any]]]
    ordered = False

    def test_the_cases_hold(self) -> None:
        self._hold(batch_rows=None)

    def test_it_does_not_matter_how_rows_come(self) -> None:
        self._hold(batch_rows=1)
        if not self.ordered:
            self._hold(batch_rows=2, splits=2)

    def test_the_accumulator_survives_a_crash(self) -> None:
        """The job is killed after a checkpoint in the middle, and the accumulator is restored from the
        snapshot."""
        rows, want = self._rows(), self._want()
        graph = self._graph(self._query(), rows, splits=1, batch_rows=1)
        table = self.table

        async def crash() -> list[Row]:
            half = len(rows) // 2
            table.release(half)
            async with JobHarness(graph) as job:
                await job.until(lambda: table.rows_read >= half)
                checkpoint = await job.checkpoint()
            table.release()
            async with JobHarness(graph, restore=checkpoint) as job:
                return (await job.wait()).rows

        same_rows(self.within_patience(crash()), want, "killed behind a checkpoint in the middle")

    def test_merged_accumulators_are_one(self) -> None:
        instance = self._instance()
        if self.ordered or not _defines(instance, "merge"):
            return
        for rows, result in self.cases:
            for cut in range(len(rows) + 1):
                first, second = (
                    self._accumulated(instance, rows[:cut]),
                    self._accumulated(instance, rows[cut:]),
                )
                merged = instance.merge(first, [second])
                got = instance.get_value(first if merged is None else merged)
                assert got == result, (
                    f"{rows} in two parts of {cut} and {len(rows) - cut} rows: {got}, not {result}"
                )

    def test_what_is_retracted_was_never_there(self) -> None:
        instance = self._instance()
        if self.ordered or not _defines(instance, "retract"):
            return
        extra = [row for rows, _ in self.cases for row in rows]
        for rows, result in self.cases:
            accumulator = self._accumulated(instance, [*extra, *rows])
            for row in extra:
                changed = instance.retract(accumulator, *row)
                accumulator = accumulator if changed is None else changed
            got = instance.get_value(accumulator)
            assert got == result, f"{rows} with {len(extra)} rows added and retracted: {got}, not {result}"

    # -- helpers -----------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        return [(k, *row) for k, (rows, _) in enumerate(self.cases) for row in rows]

    def _want(self) -> list[Row]:
        return [(k, result) for k, (rows, result) in enumerate(self.cases) if rows]

    def _query(self) -> str:
        return f"SELECT k, f({self._inputs}) FROM t GROUP BY k"

    def _hold(self, *, batch_rows: int | None, splits: int = 1) -> None:
        got = self._ask(self._query(), self._rows(), splits=splits, batch_rows=batch_rows)
        same_rows(got, self._want(), f"in {splits} subtasks, {batch_rows or 'all'} rows at a time")

    def _instance(self) -> Any:
        """A new object of the function. None for a function that takes whole batches: its methods get arrays,
        so only jobs call them."""
        function = type(self).function
        if getattr(function, "penstock_function", {}).get("per") == "batch":
            return None
        return function() if isinstance(function, type) else function

    def _accumulated(self, instance: Any, rows: Sequence[Row]) -> Any:
        accumulator = instance.create_accumulator()
        for row in rows:
            changed = instance.accumulate(accumulator, *row)
            accumulator = accumulator if changed is None else changed
        return accumulator


def _defines(instance: Any, method: str) -> bool:
    """Whether the function defines the method itself, instead of inheriting Penstock's."""
    found = getattr(type(instance), method, None)
    return found is not None and not found.__module__.startswith("penstock.api")
