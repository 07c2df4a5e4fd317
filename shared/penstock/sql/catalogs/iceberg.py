"""Catalogs of the type ``iceberg``: the namespaces and tables of an Iceberg catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow.types as at

from penstock.connectors.iceberg.catalog import open_catalog, reached
from penstock.errors import UnsupportedError
from penstock.secrets import resolved
from penstock.sql.catalogs.port import ChangedError, Properties, StoredCatalog
from penstock.sql.catalogs.stating import create_statement

if TYPE_CHECKING:
    import pyarrow as pa


class IcebergCatalog(StoredCatalog):
    """An Iceberg catalog. ``options``: as written, so that a table's statement
    names a secret as its catalog does."""

    def __init__(self, name: str, options: Mapping[str, str], default_database: str) -> None:
        self.default_database = default_database
        self._name = options.get("catalog-name", name)
        self._written = {k: v for k, v in options.items() if k not in ("catalog-name",)}
        self._options = resolved(self._written, where=f"catalog '{name}'")
        self._where = f"catalog '{name}'"

    def _with(self, call: Any) -> Any:
        with closing(open_catalog(self._name, self._options)) as catalog:
            return reached(lambda: call(catalog), self._where)

    def databases(self) -> Sequence[str]:
        return sorted(".".join(name) for name in self._with(lambda c: c.list_namespaces()))

    def properties(self, database: str) -> Properties:
        found: Properties = self._with(lambda c: dict(c.load_namespace_properties(database)))
        return found

    def create_database(self, name: str, properties: Properties) -> None:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        try:
            self._with(lambda c: c.create_namespace(name, dict(properties)))
        except NamespaceAlreadyExistsError:
            raise ChangedError(f"database '{name}' exists already") from None

    def alter_database(self, name: str, properties: Properties) -> None:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            self._with(lambda c: c.update_namespace_properties(name, updates=dict(properties)))
        except NoSuchNamespaceError:
            raise ChangedError(f"there is no database '{name}'") from None

    def drop_database(self, name: str, *, cascade: bool) -> None:
        from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

        try:
            if cascade:
                for table in self.tables(name):
                    self.drop_table(name, table)
            self._with(lambda c: c.drop_namespace(name))
        except NamespaceNotEmptyError:
            raise ChangedError(f"database '{name}' has tables: {', '.join(self.tables(name))}") from None
        except NoSuchNamespaceError:
            raise ChangedError(f"there is no database '{name}'") from None

    def tables(self, database: str) -> Sequence[str]:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            return sorted(name[-1] for name in self._with(lambda c: c.list_tables(database)))
        except NoSuchNamespaceError:
            return []

    def table(self, database: str, name: str) -> str | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from penstock.connectors.iceberg.table import arrow_schema

        try:
            found = self._with(lambda c: c.load_table((*database.split("."), name)))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        columns = [
            (field.name, sql_type(field.type) + ("" if field.nullable else " NOT NULL"))
            for field in arrow_schema(found)
        ]
        return create_statement(name, columns, (), self.given_options(database, name))

    def put_table(self, database: str, name: str, statement: str, *, seen: str | None) -> None:
        raise UnsupportedError(
            "a change of an Iceberg table's options"
            if seen is not None
            else "this table in an Iceberg catalog",
            where=f"{self._where}, table '{database}.{name}'",
            remedy="give options with the hint /*+ OPTIONS(…) */ of a query",
        )

    def create_stored(self, database: str, name: str, columns: pa.Schema, partitions: Sequence[str]) -> None:
        """Make the Iceberg table. Raises ChangedError if the table exists, or the database does not."""
        from penstock.connectors.iceberg.creating import create

        if self.table(database, name) is not None:
            raise ChangedError(f"table '{name}' exists already")
        if database not in self.databases():
            raise ChangedError(f"there is no database '{database}'")
        options = resolved(self.given_options(database, name), where=self._where)
        self._with(lambda c: create(c, options, columns, partitions))

    def drop_table(self, database: str, name: str) -> bool:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            self._with(lambda c: c.drop_table((*database.split("."), name)))
        except (NoSuchTableError, NoSuchNamespaceError):
            return False
        return True

    def rename_table(self, database: str, name: str, new: str) -> None:
        if self.table(database, new) is not None:
            raise ChangedError(f"table '{new}' exists already")
        path = tuple(database.split("."))
        self._with(lambda c: c.rename_table((*path, name), (*path, new)))

    def given_options(self, database: str, name: str) -> Mapping[str, str]:
        return {
            "connector": "iceberg",
            **self._written,
            "catalog-name": self._name,
            "catalog-database": database,
            "catalog-table": name,
        }


def sql_type(type_: pa.DataType) -> str:
    """The type as SQL writes it. Raises UnsupportedError for a type that SQL does not have."""
    if at.is_list(type_):
        return f"ARRAY<{sql_type(type_.value_type)}>"
    if at.is_map(type_):
        return f"MAP<{sql_type(type_.key_type)}, {sql_type(type_.item_type)}>"
    if at.is_struct(type_):
        return "ROW<" + ", ".join(f"`{f.name}` {sql_type(f.type)}" for f in type_) + ">"
    if at.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if at.is_timestamp(type_):
        return "TIMESTAMP(6)" if type_.tz is None else "TIMESTAMP_LTZ(6)"
    if at.is_fixed_size_binary(type_):
        return f"BINARY({type_.byte_width})"
    known = {
        "bool": "BOOLEAN", "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
        "string": "STRING", "binary": "BYTES", "date32[day]": "DATE", "time64[us]": "TIME",
    }  # fmt: skip
    if str(type_) not in known:
        raise UnsupportedError(
            f"a column of Iceberg with the type {type_}", expected=", ".join(known.values())
        )
    return known[str(type_)]
