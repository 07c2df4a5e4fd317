"""``StatementSet``: several INSERTs as one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError, UnsupportedError
from penstock.sql import statements as st
from penstock.table.steps import CallPosition, here

if TYPE_CHECKING:
    from typing import NoReturn

    from penstock.table.environment import TableEnvironment
    from penstock.table.executable import ExecutableTable
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

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plans of the INSERT. ``extra_details``: what to print besides."""
        table = self.insert[0]
        return table._env.create_statement_set().add(self).explain(*extra_details)


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

    def compile_plan(self) -> NoReturn:
        """Not supported as a method.

        Raises:
            UnsupportedError: Always: COMPILE PLAN is a statement.
        """
        raise UnsupportedError(
            "compile_plan()",
            expected="the statement COMPILE PLAN",
            remedy="execute_sql(\"COMPILE PLAN 'plan.json' FOR STATEMENT SET BEGIN … END\")",
        )
