"""``Catalog``: the databases and tables of one catalog, for ``get_catalog``; ``CatalogDescriptor`` declares a catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError, UnsupportedError, nearest
from penstock.sql.catalogs.names import OWN_CATALOG, OWN_DATABASE
from penstock.table.descriptors import Schema
from penstock.table.settings import configuration_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sql.catalog import Table
    from penstock.table.environment import TableEnvironment
    from penstock.table.identifiers import ObjectPath


def quoted_name(*parts: str) -> str:
    """A name as SQL writes it, each part in backticks."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class CatalogDescriptor:
    """A catalog as a program declares it. ``of`` makes one."""

    name: str
    options: Mapping[str, str]
    comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Any, comment: str | None = None) -> CatalogDescriptor:
        """The catalog ``catalog_name``. ``configuration``: a dictionary or Configuration with its type and options."""
        return CatalogDescriptor(catalog_name, configuration_texts(configuration), comment)

    def statement(self, name: str) -> str:
        """The CREATE CATALOG of this catalog under ``name``."""
        options = dict(self.options)
        if self.comment is not None:
            options["comment"] = self.comment
        pairs = ", ".join(f"{quoted_text(k)} = {quoted_text(v)}" for k, v in options.items())
        return f"CREATE CATALOG {quoted_name(name)} WITH ({pairs})"


@dataclass(frozen=True)
class CatalogDatabase:
    """A database of a catalog. ``create_instance`` makes one."""

    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: Mapping[str, str], comment: str | None = None) -> CatalogDatabase:
        """A database with ``properties``."""
        return CatalogDatabase(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """The database's properties."""
        return dict(self.properties)

    def get_comment(self) -> str | None:
        """The database's comment."""
        return self.comment

    def statement(self, name: str) -> str:
        """The CREATE DATABASE of this database under ``name``, which is quoted."""
        comment = f" COMMENT {quoted_text(self.comment)}" if self.comment is not None else ""
        pairs = ", ".join(f"{quoted_text(k)} = {quoted_text(v)}" for k, v in self.properties.items())
        return f"CREATE DATABASE {name}{comment}" + (f" WITH ({pairs})" if pairs else "")


class CatalogBaseTable:
    """A table of a catalog, as it was declared. ``Catalog.get_table`` makes it of ``table``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def get_options(self) -> dict[str, str]:
        """The options of WITH."""
        return dict(self._table.written or self._table.options)

    def get_comment(self) -> str:
        """The comment; empty if there is none."""
        return self._table.comment or ""

    def get_unresolved_schema(self) -> Schema:
        """Columns, watermark and primary key, as they were declared."""
        return Schema.of_table(self._table)


class Catalog:
    """The databases and tables of the catalog ``name``. ``TableEnvironment.get_catalog`` makes it."""

    def __init__(self, env: TableEnvironment, name: str) -> None:
        self._env = env
        self._name = name

    @property
    def _session(self) -> Any:
        return self._env._session.catalog

    def get_default_database(self) -> str:
        """The name of the database in which names are looked up after ``use_catalog``."""
        if self._name == OWN_CATALOG:
            return OWN_DATABASE
        return str(self._session.catalogs.opened(self._name, "get_default_database()").default_database)

    def list_databases(self) -> list[str]:
        """Names of the databases."""
        return list(self._session.catalogs.databases(self._name, "list_databases()"))

    def database_exists(self, database_name: str) -> bool:
        """Whether there is a database of this name."""
        return database_name in self.list_databases()

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool) -> None:
        """Make a database.

        Raises:
            SqlError: There is one of this name, and ``ignore_if_exists`` is False.
        """
        if not (ignore_if_exists and self.database_exists(name)):
            self._env.execute_sql(database.statement(quoted_name(self._name, name)))

    def drop_database(self, name: str, ignore_if_exists: bool) -> None:
        """Drop a database that has no tables.

        Raises:
            SqlError: The database has tables, or there is none of this name and ``ignore_if_exists`` is False.
        """
        quiet = "IF EXISTS " if ignore_if_exists else ""
        self._env.execute_sql(f"DROP DATABASE {quiet}{quoted_name(self._name, name)} RESTRICT")

    def _database(self, name: str) -> str:
        known = self.list_databases()
        if name not in known:
            raise SqlError(
                f"unknown database '{name}' in catalog '{self._name}'",
                expected="one of " + ", ".join(known),
                got=repr(name),
                where=f"catalog '{self._name}'",
                remedy=nearest(name, known),
            )
        return name

    def list_tables(self, database_name: str) -> list[str]:
        """Names of the tables and views of a database that are not temporary."""
        return sorted([*self._listed("tables", database_name), *self._listed("views", database_name)])

    def list_views(self, database_name: str) -> list[str]:
        """Names of the views of a database that are not temporary."""
        return self._listed("views", database_name)

    def _listed(self, kind: str, database: str) -> list[str]:
        names = getattr(self._session, kind)
        found = names.listed(self._name, self._database(database))
        return [name for name in found if not names[self._path(database, name)].temporary]

    def _path(self, database: str, name: str) -> str:
        return f"{self._name}.{database}.{name}"

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Whether there is a table or view of this name that is not temporary."""
        database, name = table_path.get_database_name(), table_path.get_object_name()
        return self.database_exists(database) and name in self.list_tables(database)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """A table as it was declared.

        Raises:
            SqlError: There is none of this name.
        """
        database = self._database(table_path.get_database_name())
        path = self._path(database, table_path.get_object_name())
        return CatalogBaseTable(self._session.table(path, f"get_table({table_path})"))

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drop a table.

        Raises:
            SqlError: There is none of this name, and ``ignore_if_not_exists`` is False.
        """
        quiet = "IF EXISTS " if ignore_if_not_exists else ""
        name = quoted_name(self._name, table_path.get_database_name(), table_path.get_object_name())
        self._env.execute_sql(f"DROP TABLE {quiet}{name}")

    def __getattr__(self, name: str) -> Any:
        """Raise UnsupportedError for a method of PyFlink that Penstock does not have."""
        if name in _STATEMENTS:
            raise UnsupportedError(f"Catalog.{name}: it is a statement", remedy=_STATEMENTS[name])
        raise AttributeError(f"a Catalog has no attribute {name!r}")


_ALTER = "execute_sql('ALTER TABLE …')"
_PARTITIONS = "partitions are the connector's: SELECT the columns of PARTITIONED BY"
#: PyFlink's method → what to do instead.
_STATEMENTS = {
    "alter_database": "execute_sql('ALTER DATABASE …')",
    "alter_table": _ALTER,
    "rename_table": _ALTER,
    "create_table": "TableEnvironment.create_table(…), or execute_sql('CREATE TABLE …')",
    "list_partitions": _PARTITIONS,
    "get_partition": _PARTITIONS,
    "partition_exists": _PARTITIONS,
    "create_partition": _PARTITIONS,
    "drop_partition": _PARTITIONS,
    "alter_partition": _PARTITIONS,
    "list_functions": "TableEnvironment.list_user_defined_functions()",
    "create_function": "TableEnvironment.create_temporary_function(…)",
    "drop_function": "TableEnvironment.drop_temporary_function(…)",
}
