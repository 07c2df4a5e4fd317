"""``TableEnvironment``: makes the tables of a program and runs its statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.settings import defaults
from penstock.config import PYTHON_ARCHIVES, PYTHON_REQUIREMENTS
from penstock.errors import SpecError, SqlError, UnsupportedError
from penstock.jobgraph.artifacts import shipped_entry
from penstock.jobgraph.dependencies import archives_value, requirements_value
from penstock.plan.properties import Analysis
from penstock.spark.support import spark_support
from penstock.sql import statements as st
from penstock.sql.errors import Source
from penstock.sql.functions import user_function
from penstock.sql.parsing import parse_script
from penstock.sql.queries import QueryBinder
from penstock.sql.scope import Relation
from penstock.sql.session import SqlSession
from penstock.table.catalogs import CatalogMethods
from penstock.table.conversions import arrow_node
from penstock.table.descriptors import TableDescriptor
from penstock.table.running import explained_statement, run_statement
from penstock.table.settings import EnvironmentSettings, ExplainDetail, TableConfig, configuration_texts
from penstock.table.statement_set import StatementSet
from penstock.table.steps import CallPosition, Step, here
from penstock.table.syntax import path_name, table_node
from penstock.table.table import Table
from penstock.table.udf import UserDefinedFunction, declared_function
from penstock.table.values import declared_schema, elements_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.sql.functions import UserFunctions
    from penstock.table.executable import ExecutableTable
    from penstock.table.results import TableResult

#: The changelog modes of results. As in Flink, an update comes with the row that it replaces.
RESULT_MODES = ("append", "retract")


class TableEnvironment(CatalogMethods):
    """Holds the tables, views and functions of a program, and runs its queries.

    Programs call ``create``. ``session`` is the SQL session that runs the statements.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._names = 0
        #: id of a function object that queries call → (name, object). The reference keeps Python from reusing
        #: the id.
        self._inline: dict[int, tuple[str, UserDefinedFunction]] = {}

    @staticmethod
    def create(environment_settings: Any = None) -> TableEnvironment:
        """A new environment.

        Args:
            environment_settings: ``EnvironmentSettings``, or a dictionary or Configuration of keys. None:
                streaming mode.
        """
        given, python_path = defaults()
        if environment_settings is None:
            environment_settings = EnvironmentSettings.in_streaming_mode()
        if isinstance(environment_settings, EnvironmentSettings):
            chosen = environment_settings.get_configuration().to_dict()
        else:
            chosen = configuration_texts(environment_settings)
        session = SqlSession(
            {**given, **chosen}, python_path=python_path, spark=spark_support(), result_modes=RESULT_MODES
        )
        return TableEnvironment(session)

    def get_config(self) -> TableConfig:
        """The configuration."""
        return TableConfig(self._session)

    # -- SQL -------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Run one statement. A job that the statement starts continues after the method returns.

        Raises:
            SqlError: The text holds no statement or several, or the statement is wrong.
        """
        return run_statement(self._session, self.one_statement(stmt))

    def sql_query(self, query: str) -> Table:
        """The table of a SELECT, WITH, VALUES or set operation.

        Raises:
            SqlError: The text is not a query, or the query is wrong.
        """
        statement = self.one_statement(query)
        if not isinstance(statement, st.Query):
            raise SqlError(
                "sql_query takes a query",
                expected="SELECT, WITH, VALUES or a set operation",
                got=query.strip()[:60],
                where=str(statement.position),
                remedy="run other statements with execute_sql",
            )
        return self.table_of(Step.of_query(statement.query, {}, here("sql_query()"), statement.text))

    def explain_sql(self, stmt: str, *extra_details: ExplainDetail) -> str:
        """The plans of a statement, as EXPLAIN prints them. ``extra_details``: what to print besides."""
        return explained_statement(self._session, self.one_statement(stmt), extra_details)

    def one_statement(self, text: str) -> st.Statement:
        """The one statement of a text. Raises SqlError if the text has none or several."""
        statements = parse_script(text)
        if len(statements) != 1:
            raise SqlError(
                "one statement is expected",
                expected="one statement",
                got=f"{len(statements)} statements",
                where="line 1, column 1",
                remedy="call the method once for each, or put INSERTs into one statement set",
            )
        return statements[0]

    # -- tables ----------------------------------------------------------------------------

    def from_path(self, path: str) -> Table:
        """The table or view ``path``.

        Raises:
            SqlError: There is no table or view of this name.
        """
        return self.table_of(Step.of_query(table_node(path), {}, here(f"from_path({path!r})")))

    def from_elements(self, elements: Iterable[Any], schema: Any = None, verify_schema: bool = True) -> Table:
        """A table of the rows ``elements``.

        Args:
            elements: Tuples, lists, rows or dictionaries; or bare values, which make one column.
            schema: The columns: names, ``DataTypes.ROW([FIELD(name, type) …])``, or a type. None: found from the values.
            verify_schema: Not used: values are always checked against ``schema``.

        Raises:
            SpecError: There are neither rows nor types, or a row does not fit.
        """
        where = here("from_elements()")
        node = elements_node(list(elements), schema, where)
        return self.table_of(Step(lambda ctx: Relation.of(node), {}, Source(""), where))

    def create_temporary_view(self, view_path: str, table_or_query: Any, *fields_or_schema: Any) -> None:
        """Register a table as a view, which SQL and ``from_path`` can name.

        Args:
            view_path: The view's name.
            table_or_query: A ``Table``.
            fields_or_schema: Not used.

        Raises:
            SqlError: The name is taken.
        """
        position = CallPosition(text=here(f"create_temporary_view({view_path!r})"))
        self._session.run(
            st.CreateView(path_name(view_path), position, table_or_query._step.node(), temporary=True)
        )

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool = False) -> bool:
        """Register a table as a view, which SQL and ``from_path`` can name.

        Returns False if the name is taken and ``ignore_if_exists`` is True.

        Raises:
            SqlError: The name is taken, and ``ignore_if_exists`` is False.
        """
        if ignore_if_exists and path_name(view_path) in self.list_tables():
            return False
        position = CallPosition(text=here(f"create_view({view_path!r})"))
        self._session.run(st.CreateView(path_name(view_path), position, table._step.node()))
        return True

    def create_temporary_table(
        self, path: str, descriptor: TableDescriptor, ignore_if_exists: bool = False
    ) -> None:
        """Declare a table.

        Args:
            path: The table's name.
            descriptor: Columns, connector and options.
            ignore_if_exists: Do nothing if the name is taken.

        Raises:
            SqlError: The name is taken and ``ignore_if_exists`` is False, or the declaration is wrong.
        """
        self._declare(path, descriptor, temporary=True, if_not_exists=ignore_if_exists)

    def create_table(self, path: str, descriptor: TableDescriptor, ignore_if_exists: bool = False) -> None:
        """Declare a table that is not temporary, as ``create_temporary_table`` does."""
        self._declare(path, descriptor, temporary=False, if_not_exists=ignore_if_exists)

    def _declare(self, path: str, descriptor: TableDescriptor, **options: bool) -> None:
        try:
            self.execute_sql(descriptor.statement(f"`{path_name(path)}`", **options))
        except SqlError as err:
            whole = f"`{self.get_current_catalog()}`.`{self.get_current_database()}`.`{path_name(path)}`"
            err.message = f"Could not execute CreateTable in path {whole}: {err.message}"
            raise

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """The table that ``descriptor`` declares, without a name."""
        return self.from_path(self._unnamed(descriptor))

    def _unnamed(self, descriptor: TableDescriptor) -> str:
        name = f"UnnamedTable${self._names}"
        self._names += 1
        self.create_temporary_table(name, descriptor)
        return f"`{name}`"

    def from_arrow(self, data: Any, schema: Any = None) -> Table:
        """A table of the rows of an Arrow table or record batch. ``schema``: as in ``from_pandas``."""
        where = here("from_arrow()")
        names = (
            list(schema)
            if isinstance(schema, (list, tuple)) and all(isinstance(x, str) for x in schema)
            else None
        )
        types = None if schema is None or names is not None else declared_schema(schema)
        node = arrow_node(data, types, names)
        return self.table_of(Step(lambda ctx: Relation.of(node), {}, Source(""), where))

    def from_pandas(self, pdf: Any, schema: Any = None, splits_num: int = 1) -> Table:
        """A table of the rows of a pandas DataFrame, without its index.

        Args:
            pdf: The DataFrame.
            schema: Names of the columns, a ROW, or a list of types. None: those of the DataFrame.
            splits_num: Not used: the rows are one split.
        """
        import pyarrow as pa

        return self.from_arrow(pa.Table.from_pandas(pdf, preserve_index=False), schema)

    def from_polars(self, frame: Any, schema: Any = None) -> Table:
        """A table of the rows of a Polars DataFrame. ``schema``: as in ``from_pandas``."""
        return self.from_arrow(frame.to_arrow(), schema)

    def create_statement_set(self) -> StatementSet:
        """A set of INSERTs that run as one job."""
        return StatementSet(self)

    def add_python_file(self, file_path: str) -> None:
        """Put the folder or zip ``file_path`` on ``sys.path`` in the slots; for a module (``utils.py``), its folder.

        Every task manager must have it there. What is added last is found first, as in PyFlink.
        """
        self._session.python_path = (shipped_entry(file_path), *self._session.python_path)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """As ``StreamExecutionEnvironment.set_python_requirements``."""
        value = requirements_value(requirements_file_path, requirements_cache_dir)
        self.get_config().set(PYTHON_REQUIREMENTS.key, value)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """As ``StreamExecutionEnvironment.add_python_archive``."""
        known = self.get_config().get(PYTHON_ARCHIVES.key, "") or ""
        self.get_config().set(PYTHON_ARCHIVES.key, archives_value(known, archive_path, target_dir))

    # -- functions -------------------------------------------------------------------------

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Make a function callable by the name ``path``, in SQL and by ``call``.

        Args:
            path: The function's name.
            function: The result of ``udf``, ``udtf`` or ``udaf``.
        """
        made = declared_function(function)
        name = path_name(path)
        self.functions.add(
            user_function(name, made, what=name, where=here(f"create_temporary_function({path!r})"))
        )

    create_temporary_system_function = create_temporary_function

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a function. Returns False if there is none of this name."""
        return self.functions.remove(path_name(path))

    drop_temporary_system_function = drop_temporary_function

    # -- what tables call --------------------------------------------------------------------

    def table_of(self, step: Step) -> Table:
        """The table of a step. This method checks the step's query."""
        return Table(self, step, self._bound(step).node.schema)

    def _bound(self, step: Step) -> Relation:
        """The relation of a step, bound against the current catalog."""
        session = self._session
        binder = QueryBinder(session.catalog, session.config, Source(""), analysis=Analysis())
        return step.relation(binder)

    @property
    def functions(self) -> UserFunctions:
        """The functions that queries may call."""
        return self._session.catalog.functions

    def inline(self, function: UserDefinedFunction) -> str:
        """The name of a function object that a query calls. A plain name in SQL cannot equal it."""
        known = self._inline.get(id(function))
        if known is not None:
            return known[0]
        name = f"*{function.name}*"
        if any(name == taken for taken, _ in self._inline.values()):
            name = f"*{function.name}*{len(self._inline)}"
        self.functions.add(
            user_function(name, function.target, what=function.name, where=here(f"a call of {function.name}"))
        )
        self._inline[id(function)] = (name, function)
        return name

    def query_of(self, table: ExecutableTable, call: str) -> st.Query:
        """The statement that selects a table's rows."""
        return st.Query(table._step.node(), CallPosition(text=here(call)))

    def execute_table(self, table: ExecutableTable, call: str) -> TableResult:
        """Run a table's query."""
        return run_statement(self._session, self.query_of(table, call))

    def explain_table(self, table: ExecutableTable, details: Sequence[ExplainDetail]) -> str:
        """The plans of a table's query."""
        return explained_statement(self._session, self.query_of(table, "explain()"), details)

    def insert_of(self, table: ExecutableTable, target: Any, overwrite: bool, call: str) -> st.Insert:
        """The statement that writes a table's rows into ``target``."""
        if isinstance(target, TableDescriptor):
            target = self._unnamed(target)
        if not isinstance(target, str):
            raise SpecError("not a table's name", expected="a name", got=repr(target), where=here(call))
        return st.Insert(
            path_name(target), CallPosition(text=here(call)), table._step.node(), overwrite=overwrite
        )

    def execute_inserts(self, inserts: Sequence[tuple[ExecutableTable, Any, bool]], call: str) -> TableResult:
        """Run INSERTs of tables as one job."""
        made = tuple(self.insert_of(t, target, overwrite, call) for t, target, overwrite in inserts)
        return self.run(made[0] if len(made) == 1 else st.StatementSet(made))

    def attach(self, inserts: Sequence[st.Insert]) -> None:
        """Give INSERTs to the job of a DataStream program.

        Raises:
            UnsupportedError: Always: this environment has no such program.
        """
        raise UnsupportedError(
            "attach_as_datastream without a DataStream program",
            expected="a statement set of a StreamTableEnvironment",
            got="a TableEnvironment",
            remedy="run the set with execute()",
        )

    def run(self, statement: st.Statement) -> TableResult:
        """Run a statement."""
        return run_statement(self._session, statement)

    def explain_statement(self, statement: st.Statement, details: Sequence[ExplainDetail]) -> str:
        """The plans of a statement."""
        return explained_statement(self._session, statement, details)

    def named(self, table: ExecutableTable) -> str:
        """Register ``table`` as a view under a new name. Returns the name."""
        name = f"UnnamedTable${self._names}"
        self._names += 1
        self.create_temporary_view(name, table)
        return f"`{name}`"
