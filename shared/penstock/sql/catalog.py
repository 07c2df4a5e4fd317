"""The session's catalog: tables, views and functions, and what DDL changes in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from penstock.connectors.lookup import lookup_settings
from penstock.connectors.registry import resolved_options, table_info, validate_table
from penstock.errors import ConnectorError, SqlError, UnsupportedError
from penstock.functions.expr import Expr
from penstock.jobgraph.specs import WatermarkSpec
from penstock.plan.nodes import MetadataColumn, TableRef
from penstock.plan.partition_pruning import PARTITION_KEYS
from penstock.sql.catalogs.names import Names, SessionCatalogs
from penstock.sql.errors import did_you_mean
from penstock.sql.functions import UserFunctions
from penstock.sql.statements import OptionText
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from penstock.connectors.base import Connector, SourceMode, TableInfo
    from penstock.sql.statements import ColumnDef, WatermarkClause

#: The option ``uid`` of an OPTIONS hint. On a table that is read it is the uid of the source; on a table that
#: is inserted into it is the statement's label, by which the state of its operators is found.
UID_HINT = "uid"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as declared. ``columns`` keep the declaration for LIKE and DESCRIBE."""

    name: str
    columns: tuple[ColumnDef, ...]
    options: dict[str, str]
    physical: t.Schema
    metadata: tuple[MetadataColumn, ...]
    computed: tuple[Expr, ...] | None
    schema: t.Schema
    watermark: WatermarkSpec | None
    watermark_clause: WatermarkClause | None
    primary_key: tuple[str, ...]
    temporary: bool
    where: str
    text: str
    #: The options as the user wrote them, each with its position, once ``options`` holds the resolved ones.
    written: dict[str, str] | None = None
    comment: str | None = None
    #: The columns of PARTITIONED BY.
    partition_keys: tuple[str, ...] = ()

    def info(self) -> TableInfo:
        """The table in the form that connectors take."""
        return table_info(self.physical, self.options, self.primary_key)


@dataclass(frozen=True, slots=True)
class View:
    """A declared view. ``text`` is its statement, ``query_text`` its query."""

    name: str
    query: exp.Expression
    columns: tuple[str, ...]
    schema: t.Schema
    text: str
    temporary: bool = False
    query_text: str = ""
    comment: str | None = None


@dataclass(slots=True)
class Catalog:
    """The tables, views and functions that a session can name. Names of tables and views are case-sensitive,
    as in Flink. A name without a catalog belongs to the current catalog and database of ``catalogs``."""

    tables: Names[Table]
    views: Names[View]
    functions: UserFunctions = field(default_factory=UserFunctions)
    catalogs: SessionCatalogs = field(default_factory=SessionCatalogs)
    #: What the user is to be told about the statement that is being bound, though it is no error.
    warnings: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """The names of all tables and views, sorted."""
        return sorted([*self.tables, *self.views])

    def table(self, name: str, where: str) -> Table:
        """The table ``name``. Raises SqlError if there is none."""
        self.check_path(name, where)
        found = self.tables.get(name)
        if found is None and name in self.views:
            raise SqlError(
                f"'{name}' is a view, not a table",
                expected="a table: " + (", ".join(sorted(self.tables)) or "(none is declared)"),
                got=repr(name),
                where=where,
                remedy=f"SHOW CREATE VIEW {name} shows its query; DROP VIEW {name} drops it",
            )
        if found is None:
            raise self.unknown(name, where, list(self.tables), "table")
        return found

    def view(self, name: str, where: str) -> View:
        """The view ``name``. Raises SqlError if there is none."""
        found = self.views.get(name)
        if found is None and name in self.tables:
            raise SqlError(
                f"'{name}' is a table, not a view",
                expected="a view: " + (", ".join(sorted(self.views)) or "(none is declared)"),
                got=repr(name),
                where=where,
                remedy=f"SHOW CREATE TABLE {name} shows its declaration; DROP TABLE {name} drops it",
            )
        if found is None:
            raise self.unknown(name, where, list(self.views), "view")
        return found

    def check_path(self, name: str, where: str) -> None:
        """Raise SqlError if the catalog or database in ``name`` does not exist."""
        parts = name.split(".")
        if len(parts) > 2 and not self.catalogs.known(parts[0]) and name not in self.tables:
            raise self.catalogs.unknown(parts[0], where)
        if len(parts) == 2 and name not in self.tables and name not in self.views:
            self.catalogs.database_path(parts[0], where)

    def unknown(self, name: str, where: str, known: list[str], what: str) -> SqlError:
        """The error for an unknown name, with the nearest known name."""
        return SqlError(
            f"unknown {what} '{name}'",
            expected="one of " + ", ".join(sorted(known)) if known else f"a declared {what}; there is none",
            got=repr(name),
            where=where,
            remedy=did_you_mean(name, known)
            or f"check the name, or declare it with CREATE {what.upper()} {name} …",
        )

    def check_free(self, name: str, where: str) -> None:
        """Raise SqlError if a table or view has this name, or if the name's database does not exist."""
        self.check_path(name, where)
        if name in self.tables or name in self.views:
            raise SqlError(
                f"'{name}' exists already",
                expected="a new name",
                got=repr(name),
                where=where,
                remedy="DROP it first, or write IF NOT EXISTS",
            )


def source_ref(table: Table, config: Mapping[str, str]) -> TableRef:
    """The table in the form in which a plan reads it. Its connector checks the options."""
    table = resolved_table(table)
    connector = _checked(table, "source")
    info = table.info()
    watermark = table.watermark
    if watermark is not None:
        from penstock.config import IDLE_TIMEOUT_MS, WATERMARK_INTERVAL_MS

        watermark = WatermarkSpec(
            rowtime=watermark.rowtime,
            delay_us=watermark.delay_us,
            expr=watermark.expr,
            idle_timeout_ms=IDLE_TIMEOUT_MS.read(config),
            idle_source=IDLE_TIMEOUT_MS.key in config,
            interval_ms=WATERMARK_INTERVAL_MS.read(config),
        )
    return TableRef(
        name=table.name,
        connector=table.options["connector"],
        options=table.options,
        physical=table.physical,
        schema=table.schema,
        metadata=table.metadata,
        computed=table.computed,
        watermark=watermark,
        primary_key=table.primary_key,
        bounded=connector.is_bounded(info),
        guarantee=connector.source_guarantee(info),
        nested_projection=connector.nested_projection_of(info),
        unread_fields=connector.unread_fields_of(info),
        lookup=_lookup_words(connector, table),
        location=connector.location,
        changelog=_changelog(connector, table),
    )


def input_bytes(table: TableRef) -> int | None:
    """About how many bytes a query reads of the table; None if its connector does not know."""
    from penstock.connectors.registry import get_connector, table_info

    return get_connector(table.connector).estimated_bytes(table_info(table.physical, table.options))


def _changelog(connector: Connector, table: Table) -> SourceMode:
    mode = connector.source_mode(table.info())
    if mode == "upsert" and not table.primary_key:
        raise ConnectorError(
            f"a table of connector '{connector.name}' needs a primary key to be read",
            expected="PRIMARY KEY (…) NOT ENFORCED",
            got="no primary key",
            where=_place(table),
            remedy="declare the columns by which a newer row replaces an older one",
        )
    return mode


def _lookup_words(connector: Connector, table: Table) -> str:
    if not connector.lookup_caches:
        return ""
    return lookup_settings(connector, table.options, where=_place(table)).describe()


def sink_ref(
    table: Table,
    *,
    overwrite: bool = False,
    truncate: bool = False,
    partition: Sequence[str | None] | None = None,
    where: str | None = None,
) -> TableRef:
    """The table in the form in which a plan writes it. ``overwrite``: the query's rows replace the old ones. ``truncate``: the old rows go, and none come.
    ``partition``: they replace the old rows of this partition only."""
    table = resolved_table(table)
    connector = _checked(table, "sink")
    for option, statement in (("sink.truncate", "TRUNCATE TABLE"), ("sink.overwrite", "INSERT OVERWRITE")):
        if option in table.options:  # an INSERT that gives no rows would empty the table
            raise SqlError(
                f"option '{option}' is set by {statement}, not by a table",
                expected=f"a table without it, and {statement} when its rows are to go",
                got=f"'{option}' = '{table.options[option]}'",
                where=_place(table),
            )
    if truncate:
        if not connector.truncates:
            raise UnsupportedError(
                f"TRUNCATE TABLE of connector '{connector.name}'",
                expected="a table of connector 'filesystem', 'jdbc', 'delta' or 'iceberg'",
                got=f"table '{table.name}'",
                where=where,
                remedy="delete the rows in the system in which they lie",
            )
        table = replace(table, options={**table.options, "sink.truncate": "true"})
    if overwrite:
        if not connector.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into connector '{connector.name}'",
                expected="a table of connector 'filesystem'",
                got=f"table '{table.name}'",
                where=where,
                remedy="INSERT INTO it",
            )
        table = replace(table, options={**table.options, "sink.overwrite": "true"})
        if partition is not None:
            table = replace(table, options={**table.options, "sink.static-partition": json.dumps(partition)})
    info = table.info()
    stored = [c for c in table.columns if c.kind == "metadata" and not c.virtual]
    written = connector.writable_metadata
    for column in stored:
        if column.metadata_key not in written:
            raise SqlError(
                f"metadata column '{column.name}' cannot be written",
                expected="METADATA … VIRTUAL in a table that is inserted into"
                + (f", or one of the keys {', '.join(written)}" if written else ""),
                got=f"'{column.name}' without VIRTUAL",
                where=str(column.position),
            )
    physical = _keyed(table.physical, table.primary_key)
    told = [t.Field(c.name, written[str(c.metadata_key)]) for c in stored]
    return TableRef(
        name=table.name,
        connector=table.options["connector"],
        options=table.options,
        physical=table.physical,
        schema=t.Schema((*physical.fields, *told), physical.rowtime),
        metadata=tuple(MetadataColumn(c.name, str(c.metadata_key)) for c in stored),
        primary_key=table.primary_key,
        guarantee=connector.sink_guarantee(info),
        sink_modes=tuple(connector.sink_modes(info)),
        sink_shuffle=connector.sink_shuffle(info),
        location=connector.location,
    )


def _keyed(schema: t.Schema, key: tuple[str, ...]) -> t.Schema:
    """The schema with NOT NULL columns in the primary key."""
    fields = (t.Field(f.name, f.type.with_nullable(False)) if f.name in key else f for f in schema.fields)
    return t.Schema(tuple(fields), schema.rowtime)


def resolved_table(table: Table) -> Table:
    """The table with its options in the form that a connector takes."""
    try:
        options = resolved_options(table.options, where=_place(table))
    except ConnectorError as err:
        raise blame_option(err, table) from None
    # A plan must not depend on positions in the script, so its options are plain text.
    options = {str(k): str(v) for k, v in options.items()}
    if table.partition_keys:
        options[PARTITION_KEYS] = json.dumps(table.partition_keys)
    return replace(table, options=options, written=table.options)


def _place(table: Table) -> str:
    return f"table '{table.name}' ({table.where})"


def _checked(table: Table, role: Literal["source", "sink"]) -> Connector:
    try:
        return validate_table(
            table.physical, table.options, role=role, where=_place(table), primary_key=table.primary_key
        )
    except ConnectorError as err:
        raise blame_option(err, table) from None


_OPTION = re.compile(r"option '([^']+)'")


def blame_option(err: ConnectorError, table: Table) -> ConnectorError:
    """Gives the error the line and column of the option that it names, if it names one."""
    named = _OPTION.search(err.message) or _OPTION.search(err.where or "")
    key = named[1] if named else None
    if err.message.startswith("unknown connector"):
        key = "connector"
    elif err.message.startswith("unknown format"):
        key = "format"
    written = (table.written or table.options).get(key) if key is not None else None
    if isinstance(written, OptionText):
        place = written.key_position if err.message.startswith("unknown option") else written.position
        rest = (err.where or "").rpartition(": ")[2]
        err.where = f"{place}: table '{table.name}'" + (f", {rest}" if rest and rest != _place(table) else "")
    return err


def with_options(table: Table, options: Mapping[str, str]) -> Table:
    """The table with some options changed (an OPTIONS hint)."""
    return replace(table, options={**table.options, **options}) if options else table
