"""Methods of a table that run its query, or show its columns and plans."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.api.html import columns_html
from penstock.errors import UnsupportedError
from penstock.table.conversions import arrow_of, frame_of
from penstock.table.results import ResolvedSchema, TableResult
from penstock.table.statement_set import TablePipeline

if TYPE_CHECKING:
    from typing import NoReturn

    import pyarrow as pa
    from sqlglot import exp

    from penstock.table.environment import TableEnvironment
    from penstock.table.settings import ExplainDetail
    from penstock.table.steps import Step
    from penstock.table.table import Table
    from penstock.types.logical import Schema


class ExecutableTable:
    """A query and its columns.

    Programs get tables from a ``TableEnvironment`` (``env``). The query is bound from ``step``; ``schema``
    has the columns.
    """

    def __init__(self, env: TableEnvironment, step: Step, schema: Schema) -> None:
        self._env = env
        self._step = step
        self._schema = schema
        #: Set if ``order_by``, ``offset`` or ``fetch`` made this table: the table below, and the clauses.
        self._cut: tuple[Table, dict[str, exp.Expression]] | None = None

    def get_resolved_schema(self) -> ResolvedSchema:
        """Names and types of the columns."""
        return ResolvedSchema(self._schema)

    get_schema = get_resolved_schema

    def print_schema(self) -> None:
        """Print names and types of the columns."""
        sys.stdout.write(f"{self.get_resolved_schema()}\n")

    def execute(self) -> TableResult:
        """Run the query. Reading the result gives the rows as they come.

        Raises:
            UnsupportedError: The engine cannot run the query. The error names the part.
        """
        return self._env.execute_table(self, "Table.execute()")

    def execute_insert(self, table_path_or_descriptor: Any, overwrite: bool = False) -> TableResult:
        """Write the rows into a table. The job runs when the method returns; ``wait()`` waits for its end.

        Args:
            table_path_or_descriptor: The name of the table to write into, or a ``TableDescriptor``.
            overwrite: Replace the table's rows instead of adding to them.
        """
        return self._env.execute_inserts([(self, table_path_or_descriptor, overwrite)], "execute_insert()")

    def insert_into(self, table_path_or_descriptor: Any, overwrite: bool = False) -> TablePipeline:
        """The INSERT of these rows into a table, for a statement set. ``overwrite``:
        they replace that table's rows."""
        return TablePipeline(self, table_path_or_descriptor, overwrite)

    def to_arrow(self) -> pa.Table:
        """Run the query and give its final rows as an Arrow table."""
        return arrow_of(self._schema, self._env.execute_table(self, "to_arrow()").batches())

    def to_pandas(self) -> Any:
        """Run the query and give its final rows as a pandas DataFrame."""
        return frame_of(self.to_arrow(), self._schema)

    def to_polars(self) -> Any:
        """Run the query and give its final rows as a Polars DataFrame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def to_changelog(self, *arguments: Any) -> NoReturn:
        """Not supported.

        Raises:
            UnsupportedError: Always: there are no process table functions.
        """
        raise _no_function(
            "to_changelog", "get_row_kind() of the rows of collect(), or a sink whose format has changes"
        )

    def from_changelog(self, *arguments: Any) -> NoReturn:
        """Not supported.

        Raises:
            UnsupportedError: Always: there are no process table functions.
        """
        raise _no_function("from_changelog", "a table whose format has changes, such as debezium-json")

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plans as text, as EXPLAIN prints them. ``extra_details``: what to print besides."""
        return self._env.explain_table(self, extra_details)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print ``explain(…)``."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def __str__(self) -> str:
        """The name of a new view of this table, for the text of a statement: ``f"SELECT * FROM {table}"``."""
        return self._env.named(self)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self._schema.fields)
        return f"Table({columns})"

    def _repr_html_(self) -> str:
        """What a notebook shows of the table."""
        return columns_html("Table", self._schema, "execute() runs it and shows its rows.")


def _no_function(name: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(
        f"Table.{name}: a process table function", expected="a query of changes as they are", remedy=remedy
    )
