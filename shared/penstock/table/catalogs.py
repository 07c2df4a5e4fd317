"""Methods of an environment about catalogs and compiled plans: they list and drop, and refuse what Penstock lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.compiled import encode_plan
from penstock.sql import statements as st
from penstock.sql.parsing import parse_script
from penstock.table.syntax import path_name

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from penstock.sql.session import SqlSession
    from penstock.table.catalog import Catalog, CatalogDescriptor
    from penstock.table.environment import TableEnvironment
    from penstock.table.plans import CompiledPlan, PlanReference
    from penstock.table.results import TableResult


class CatalogMethods:
    """The methods of ``TableEnvironment`` that list and drop what an environment can name."""

    _session: SqlSession

    def execute_sql(self, stmt: str) -> TableResult:
        raise NotImplementedError

    def list_catalogs(self) -> list[str]:
        """Names of the catalogs."""
        return self._session.catalog.catalogs.names()

    def list_databases(self) -> list[str]:
        """Names of the current catalog's databases."""
        catalogs = self._session.catalog.catalogs
        return catalogs.databases(catalogs.catalog, "list_databases()")

    def list_modules(self) -> list[str]:
        """Names of the modules. There is one, ``core``."""
        return ["core"]

    def use_modules(self, *module_names: str) -> None:
        """Choose the modules. There is one, ``core``, so that only ``use_modules('core')`` has a meaning.

        Raises:
            SqlError: A module is named twice, or there is none of this name.
            UnsupportedError: No module is named.
        """
        for i, name in enumerate(module_names):
            if name in module_names[:i]:
                raise SqlError(
                    f"Module '{name}' appears more than once", expected="each module once", got=name
                )
            self._check_module(name)
        if not module_names:
            raise UnsupportedError("use_modules() without a module", expected="use_modules('core')")

    def unload_module(self, module_name: str) -> None:
        """Not supported for ``core``, the only module.

        Raises:
            SqlError: There is no module of this name.
            UnsupportedError: It is ``core``.
        """
        self._check_module(module_name)
        raise UnsupportedError(
            "unload_module('core'): no function would be left", remedy="leave it out: core is the only module"
        )

    def _check_module(self, name: str) -> None:
        if name != "core":
            raise SqlError(f"No module with name '{name}' exists", expected="core", got=name)

    def list_tables(self) -> list[str]:
        """Names of the tables and views."""
        return self._session.catalog.names()

    def list_views(self) -> list[str]:
        """Names of the views."""
        return sorted(self._session.catalog.views)

    def list_temporary_tables(self) -> list[str]:
        """Names of the temporary tables and views."""
        catalog = self._session.catalog
        tables = [name for name, table in catalog.tables.items() if table.temporary]
        return sorted([*tables, *self.list_temporary_views()])

    def list_temporary_views(self) -> list[str]:
        """Names of the temporary views."""
        return sorted(name for name, view in self._session.catalog.views.items() if view.temporary)

    def list_user_defined_functions(self) -> list[str]:
        """Names of the functions of the program and of installed packages."""
        return [name for name in self._session.catalog.functions.names() if not name.startswith("*")]

    def list_functions(self) -> list[str]:
        """Names of all functions."""
        rows = self.execute_sql("SHOW FUNCTIONS").collect()
        return [row[0] for row in rows if not row[0].startswith("*")]

    def list_models(self) -> list[str]:
        """Names of the models. The list is empty, because Penstock has no models."""
        return []

    list_temporary_models = list_materialized_tables = list_models

    def get_current_catalog(self) -> str:
        """The name of the current catalog, in which names are looked up."""
        return self._session.catalog.catalogs.catalog

    def get_current_database(self) -> str:
        """The name of the current database, in which names are looked up."""
        return self._session.catalog.catalogs.database

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Declare a catalog, as CREATE CATALOG does. ``catalog_descriptor``: its type and options.

        Raises:
            SqlError: There is a catalog of this name, or its options do not fit.
        """
        self.execute_sql(catalog_descriptor.statement(catalog_name))

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """The databases and tables of a catalog; None if there is no such catalog."""
        from penstock.table.catalog import Catalog

        known = self._session.catalog.catalogs.known(catalog_name)
        return Catalog(cast("TableEnvironment", self), catalog_name) if known else None

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """The plan of an INSERT or a statement set, as COMPILE PLAN makes it.

        Raises:
            SqlError: The text holds another statement, or the statement is wrong.
        """
        [*statements] = parse_script(stmt)
        if len(statements) != 1 or not isinstance(statements[0], (st.Insert, st.StatementSet)):
            raise SqlError(
                "compile_plan_sql takes one INSERT or statement set",
                expected="INSERT INTO …",
                got=stmt.strip()[:60],
                where="line 1, column 1",
            )
        return self.compiled(statements[0])

    def compiled(self, statement: st.Insert | st.StatementSet) -> CompiledPlan:
        """The plan of a statement."""
        from penstock.table.plans import CompiledPlan

        return CompiledPlan(self._session, encode_plan(self._session.compile_job(statement).job_graph))

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """The plan of ``PlanReference.from_file(…)`` or ``PlanReference.from_json_string(…)``.

        Raises:
            SpecError: There is no such file, or it holds no plan.
        """
        from penstock.table.plans import CompiledPlan

        return CompiledPlan(self._session, plan_reference.read(self._session))

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Run the plan of ``plan_reference``, as ``load_plan(…).execute()`` does."""
        return self.load_plan(plan_reference).execute()

    def use_catalog(self, catalog_name: str) -> None:
        """Make ``catalog_name`` the current catalog, in which names are looked up.

        Raises:
            SqlError: There is no such catalog.
        """
        self.execute_sql(f"USE CATALOG `{catalog_name}`")

    def use_database(self, database_name: str) -> None:
        """Make ``database`` or ``catalog.database`` the current database, in which names are looked up.

        Raises:
            SqlError: There is no such database.
        """
        self.execute_sql("USE " + ".".join(f"`{part}`" for part in database_name.split(".")))

    def _drop(self, store: MutableMapping[str, Any], path: str, *, temporary: bool) -> bool:
        name = path_name(path)
        found = store.get(name)
        if found is None or (temporary and not found.temporary):
            return False
        del store[name]
        return True

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drop a temporary table. Returns False if there is none of this name."""
        return self._drop(self._session.catalog.tables, table_path, temporary=True)

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a temporary view. Returns False if there is none of this name."""
        return self._drop(self._session.catalog.views, view_path, temporary=True)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drop a table. Returns False if there is none of this name.

        Raises:
            SqlError: There is none of this name, and ``ignore_if_not_exists`` is False.
        """
        if not ignore_if_not_exists:
            self._session.catalog.table(path_name(table_path), f"drop_table({table_path!r})")
        return self._drop(self._session.catalog.tables, table_path, temporary=False)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drop a view. Returns False if there is none of this name.

        Raises:
            SqlError: There is none of this name, and ``ignore_if_not_exists`` is False.
        """
        if not ignore_if_not_exists:
            self._session.catalog.view(path_name(view_path), f"drop_view({view_path!r})")
        return self._drop(self._session.catalog.views, view_path, temporary=False)

    def __getattr__(self, name: str) -> Any:
        """Raise UnsupportedError, with the reason, for a method of PyFlink that Penstock does not have."""
        if name in _ABSENT:
            reason, remedy = _ABSENT[name]
            raise UnsupportedError(f"TableEnvironment.{name}: {reason}", remedy=remedy)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_JAVA = ("it names a class of Java, and there is no Java here", "write the function in Python: udf(…)")
_ONE = ("catalogs are declared, not made by a program", "create_catalog(name, CatalogDescriptor.of(…))")
_MODELS = ("there are no models", "call the model in an udf")
#: PyFlink's method → (why Penstock does not have it, what to do instead).
_ABSENT = {
    "create_java_function": _JAVA,
    "create_java_temporary_function": _JAVA,
    "create_java_temporary_system_function": _JAVA,
    "register_catalog": _ONE,
    "load_module": ("there is one module, core", "register functions by create_temporary_function"),
    "create_model": _MODELS,
    "create_temporary_model": _MODELS,
    "drop_model": _MODELS,
    "drop_temporary_model": _MODELS,
}
