"""``StatementSet``: several INSERTs as one job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError
from penstock.sql import statements as st
from penstock.table.identifiers import ObjectIdentifier
from penstock.table.steps import CallPosition, here
from penstock.table.syntax import path_name

if TYPE_CHECKING:
    from penstock.table.environment import TableEnvironment
    from penstock.table.executable import ExecutableTable
    from penstock.table.plans import CompiledPlan
    from penstock.table.results import TableResult
    from penstock.table.settings import ExplainDetail
    from penstock.table.table import Table


class TablePipeline:
    """An INSERT of one table into another. ``Table.insert_into`` makes it."""

    def __init__(self, table: ExecutableTable, target: Any, overwrite: bool) -> None:
        self.insert = (table, target, overwrite)

    def execute(self) -> TableResult:
        """Run the INSERT."""
        table, target, overwrite = self.insert
        return table.execute_insert(target, overwrite)

    def _set(self) -> StatementSet:
        return self.insert[0]._env.create_statement_set().add(self)

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plans of the INSERT. ``extra_details``: what to print besides."""
        return self._set().explain(*extra_details)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print ``explain(…)``."""
        sys.stdout.write(f"{self.explain(*extra_details)}\n")

    def compile_plan(self) -> CompiledPlan:
        """The plan of the INSERT, as COMPILE PLAN makes it."""
        return self._set().compile_plan()

    def get_sink_identifier(self) -> ObjectIdentifier | None:
        """The table that the INSERT writes into; None if a ``TableDescriptor`` declares it."""
        table, target, _ = self.insert
        if not isinstance(target, str):
            return None
        return ObjectIdentifier(*table._env._session.catalog.catalogs.path(path_name(target)))


class StatementSet:
    """INSERTs that run as one job, which reads the parts that they share once.

    Programs get it from ``TableEnvironment.create_statement_set`` (``env``).
    """

    def __init__(self, env: TableEnvironment) -> None:
        self._env = env
        self._inserts: list[st.Insert] = []

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Add an INSERT that ``Table.insert_into`` made."""
        self._inserts.append(self._env.insert_of(*table_pipeline.insert, "add()"))
        return self

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Add an INSERT as text.

        Raises:
            SqlError: The text is not an INSERT.
        """
        statement = self._env.one_statement(stmt)
        if not isinstance(statement, st.Insert):
            raise SqlError(
                "a statement set takes INSERTs",
                expected="INSERT INTO …",
                got=stmt.strip()[:60],
                where=str(statement.position),
            )
        self._inserts.append(statement)
        return self

    def add_insert(
        self, target_path_or_descriptor: Any, table: Table, overwrite: bool = False
    ) -> StatementSet:
        """Add an INSERT of ``table`` into another table. ``overwrite``: the
        rows replace that table's rows."""
        self._inserts.append(self._env.insert_of(table, target_path_or_descriptor, overwrite, "add_insert()"))
        return self

    def _statement(self, call: str) -> st.StatementSet:
        return st.StatementSet(tuple(self._inserts), CallPosition(text=here(call)))

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plans of the INSERTs. ``extra_details``: what to print besides."""
        return self._env.explain_statement(self._statement("explain()"), extra_details)

    def execute(self) -> TableResult:
        """Run the INSERTs as one job. The set is empty afterwards."""
        statement = self._statement("execute()")
        self._inserts = []
        return self._env.run(statement)

    def attach_as_datastream(self) -> None:
        """Let the job of the DataStream program do these INSERTs, too: its ``execute`` runs them.

        Raises:
            UnsupportedError: The environment is no ``StreamTableEnvironment``.
        """
        inserts, self._inserts = self._inserts, []
        self._env.attach(inserts)

    def compile_plan(self) -> CompiledPlan:
        """The plan of the INSERTs, as COMPILE PLAN makes it. The set keeps them."""
        return self._env.compiled(self._statement("compile_plan()"))
