"""``Table``: a query that a program builds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.table.results import ResolvedSchema, TableResult

if TYPE_CHECKING:
    from penstock.table.environment import TableEnvironment
    from penstock.table.settings import ExplainDetail
    from penstock.table.steps import Step
    from penstock.types.logical import Schema


class Table:
    """A query: methods make another one of it, ``execute`` runs it.

    Programs get tables from a ``TableEnvironment`` (``env``); ``step`` is what the query is bound from, and
    ``schema`` its columns.
    """

    def __init__(self, env: TableEnvironment, step: Step, schema: Schema) -> None:
        self._env = env
        self._step = step
        self._schema = schema

    def get_resolved_schema(self) -> ResolvedSchema:
        """Names and types of the columns."""
        return ResolvedSchema(self._schema)

    get_schema = get_resolved_schema

    def print_schema(self) -> None:
        """Print names and types of the columns."""
        sys.stdout.write(f"{self.get_resolved_schema()}\n")

    def execute(self) -> TableResult:
        """Run the query. Its rows come as the result is read.

        Raises:
            UnsupportedError: The engine cannot run the query; the error names what.
        """
        return self._env.execute_table(self, "Table.execute()")

    def execute_insert(self, table_path_or_descriptor: Any, overwrite: bool = False) -> TableResult:
        """Write the rows into a table. The job runs when the method returns; ``wait()`` waits for its end.

        Args:
            table_path_or_descriptor: The name of a table.
            overwrite: Replace the table's rows instead of adding to them.
        """
        return self._env.execute_inserts([(self, table_path_or_descriptor, overwrite)], "execute_insert()")

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plans as text, as EXPLAIN prints them. ``extra_details``: what to say beside them."""
        return self._env.explain_table(self, extra_details)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print ``explain(…)``."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def __str__(self) -> str:
        """The name of a view of this table, for the text of a statement: ``f"SELECT * FROM {table}"``."""
        return self._env.named(self)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self._schema.fields)
        return f"Table({columns})"
