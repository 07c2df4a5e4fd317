"""Partitioned tables in SQL: PARTITIONED BY, INSERT … PARTITION (…), SHOW PARTITIONS, EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.registry import connector_of, get_connector, table_info
from penstock.errors import PenstockError, SqlError, UnsupportedError
from penstock.functions.evaluate import evaluate_constant
from penstock.functions.expr import Literal, input_refs
from penstock.functions.registry import is_deterministic, make_call
from penstock.jobgraph.specs import SourceSpec, SparkQuerySpec
from penstock.plan.engine import decode_content
from penstock.plan.nodes import Values
from penstock.plan.partition_pruning import PARTITION_FILTER, PARTITION_KEYS
from penstock.sql.consumption import consuming
from penstock.sql.errors import did_you_mean
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from penstock.jobgraph.graph import JobGraph
    from penstock.sql.catalog import Table
    from penstock.sql.queries import QueryBinder
    from penstock.sql.statements import CreateTable, Insert

#: Option that only the planner may set → what a user writes instead.
_NOT_WRITTEN = {
    PARTITION_KEYS: "write PARTITIONED BY (…) between the columns and WITH",
    PARTITION_FILTER: "write the conditions into the query's WHERE",
    "sink.static-partition": "write INSERT OVERWRITE t PARTITION (…)",
}
#: EXPLAIN names at most this many partitions.
_SHOWN = 20


def check_partition_keys(
    statement: CreateTable, keys: Sequence[str], physical: t.Schema, options: Mapping[str, str], where: str
) -> None:
    """Raise SqlError for a column that PARTITIONED BY may not name, and UnsupportedError for
    a connector without partitions."""
    for option, remedy in _NOT_WRITTEN.items():
        if option in options:
            raise SqlError(f"'{option}' is no option of WITH", got=f"'{option}'", where=where, remedy=remedy)
    if not keys:
        return
    place = str(statement.partitions.position) if statement.partitions is not None else where
    connector = connector_of(options, where=f"table '{statement.name}' ({where})")
    if not connector.partitioned:
        raise UnsupportedError(
            f"PARTITIONED BY with connector '{connector.name}'",
            expected="a table of connector 'filesystem'",
            got=f"connector '{connector.name}'",
            where=place,
            remedy="leave it out" if statement.partitions else "LIKE … (EXCLUDING PARTITIONS)",
        )
    for at, key in enumerate(keys):
        if key not in physical.names:
            declared = any(c.name == key for c in statement.columns)
            raise SqlError(
                f"partition column '{key}' is not a physical column",
                expected="one of " + ", ".join(physical.names),
                got=f"'{key}', which is computed or metadata" if declared else repr(key),
                where=place,
                remedy=did_you_mean(key, physical.names) or f"declare '{key}' with a type",
            )
        if key in keys[:at]:
            raise SqlError(
                f"partition column '{key}' is named twice", expected="each column once", got=repr(key), where=place
            )  # fmt: skip
    if len(keys) == len(physical):
        raise SqlError(
            "all columns are partition columns",
            expected="a column besides, to be stored in the files",
            got=", ".join(keys),
            where=place,
            remedy="declare another column, or partition by fewer",
        )


def static_partition(binder: QueryBinder, insert: Insert, table: Table) -> dict[str, Literal]:
    """The values of an INSERT's PARTITION clause, by column."""
    out: dict[str, Literal] = {}
    for column, value in insert.partition:
        if column.name not in table.partition_keys:
            raise binder.source.error(
                f"'{column.name}' is no partition column of table '{table.name}'",
                column,
                expected="one of " + (", ".join(table.partition_keys) or "(it has none: no PARTITIONED BY)"),
                got=repr(column.name),
                remedy=did_you_mean(column.name, table.partition_keys) or "select its value in the query",
            )
        if column.name in out:
            raise binder.source.error(
                f"partition column '{column.name}' is named twice",
                column,
                expected="each column once",
                got=repr(column.name),
            )
        out[column.name] = _constant(binder, value, table.physical.fields[table.physical.index(column.name)])
    return out


def _constant(binder: QueryBinder, value: exp.Expression, field: t.Field) -> Literal:
    relation = Relation.of(Values(schema=t.Schema(()), data=""))
    bind = ExpressionBinder(relation, binder.source, zone=binder.zone, functions=binder.catalog.functions)
    with consuming(value, binder.source):
        bound = bind.bind(value)
    if input_refs(bound) or not is_deterministic(bound):
        raise binder.source.error(
            f"the value of '{field.name}' in PARTITION is no constant", value, expected="a literal",
            remedy="select it in the query: the partition then is where its rows say",
        )  # fmt: skip
    type_ = field.type.with_nullable(True)
    try:
        if bound.type.with_nullable(True) != type_:
            bound = make_call("CAST", [bound], type=type_, zone=binder.zone)
        found = evaluate_constant(bound)
    except PenstockError as err:
        raise binder.source.error(
            f"the value of '{field.name}' in PARTITION does not fit the column",
            value,
            expected=field.type.sql(),
            got=err.got or err.message,
        ) from None
    constant = None if found is None else found.value
    if constant is None and not field.type.nullable:
        raise binder.source.error(f"'{field.name}' is NOT NULL", value, expected=field.type.sql(), got="NULL")
    return Literal(constant, type_ if constant is None else field.type.not_null)


def static_texts(table: Table, fixed: Mapping[str, Literal]) -> list[str | None] | None:
    """The values, as text, of the one partition that PARTITION names in full; None if the rows choose
    partitions."""
    from penstock.connectors.filesystem.partitions import constant_text

    if not fixed or len(fixed) < len(table.partition_keys):
        return None
    return [constant_text(fixed[key].type, fixed[key].value) for key in table.partition_keys]


def table_partitions(table: Table, where: str) -> list[str]:
    """The partitions that exist now, for SHOW PARTITIONS."""
    from penstock.sql.catalog import resolved_table

    if not table.partition_keys:
        raise SqlError(
            f"table '{table.name}' is not partitioned",
            expected="a table with PARTITIONED BY",
            got=repr(table.name),
            where=where,
        )
    found = resolved_table(table)
    return [
        name
        for name, _ in get_connector(found.options["connector"]).partitions(
            table_info(found.physical, found.options)
        )
    ]


def matching_partitions(
    table: Table, names: Sequence[str], wanted: Mapping[str, str], where: str
) -> list[str]:
    """Those of ``names`` (``key=value/…``) whose values are ``wanted`` (key → value as text).

    Raises:
        SqlError: A key of ``wanted`` is no partition column.
    """
    from penstock.connectors.filesystem.partitions import unescape

    for key in wanted:
        if key not in table.partition_keys:
            raise SqlError(
                f"'{key}' is no partition column of table '{table.name}'",
                expected="one of " + ", ".join(table.partition_keys),
                got=repr(key),
                where=where,
                remedy=did_you_mean(key, table.partition_keys),
            )
    out = []
    for name in names:
        values = {key: unescape(value) for key, _, value in (part.partition("=") for part in name.split("/"))}
        if all(values.get(key) == value for key, value in wanted.items()):
            out.append(name)
    return out


def read_partitions(graph: JobGraph) -> str:
    """EXPLAIN's text about partitions: those that exist now and that the job reads, a line for each table."""
    lines: list[str] = []
    for operator in (op for vertex in graph.vertices for op in vertex.operators):
        spec = operator.spec
        if isinstance(spec, SparkQuerySpec):
            return read_partitions(decode_content(spec.graph))
        if isinstance(spec, SourceSpec) and PARTITION_KEYS in spec.options:
            found = get_connector(spec.connector).partitions(table_info(spec.schema, spec.options))
            kept = [name for name, keep in found if keep]
            more = f", … ({len(kept) - _SHOWN} more)" if len(kept) > _SHOWN else ""
            lines.append(
                f"{operator.name}: partitions=[{', '.join(kept[:_SHOWN])}{more}] ({len(kept)} of {len(found)})"
            )
    return "\n== Partitions ==\n" + "\n".join(lines) + "\n" if lines else ""
