"""Builds a ``Table`` from CREATE TABLE: columns, metadata, computed columns, watermark, key and LIKE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConnectorError, SqlError, UnsupportedError
from penstock.functions.expr import Expr, InputRef, transform
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import WatermarkSpec
from penstock.plan.nodes import MetadataColumn, Values
from penstock.plan.properties import constant_shift
from penstock.sql.catalog import Table
from penstock.sql.consumption import consuming
from penstock.sql.errors import Source, did_you_mean
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.partitions import check_partition_keys
from penstock.sql.scope import Relation
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from penstock.sql.catalog import Catalog
    from penstock.sql.statements import ColumnDef, CreateTable, WatermarkClause


def build_table(statement: CreateTable, catalog: Catalog, *, zone: str) -> Table:
    """The table that the statement declares. Raises SqlError with line and column for a wrong declaration."""
    source = Source(statement.text)
    where = str(statement.position)
    columns, options = list(statement.columns), dict(statement.options)
    watermark_clause, primary_key = statement.watermark, statement.primary_key
    if statement.like is not None:
        base = catalog.table(statement.like.name, str(statement.like.position))
        columns, options, watermark_clause, primary_key = _merge_like(
            base, statement, columns, options, watermark_clause, primary_key
        )
    keys = _partition_keys(statement, base if statement.like is not None else None)
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise SqlError(
                f"column '{column.name}' is declared twice", expected="different names", got=repr(column.name),
                where=str(column.position),
            )  # fmt: skip
        seen.add(column.name)
    if not columns:
        raise SqlError(f"table '{statement.name}' has no columns", expected="a column list", where=where)
    key = _primary_key(columns, primary_key, where)
    physical = t.Schema(
        tuple(
            t.Field(c.name, c.type.not_null if c.name in key else c.type)
            for c in columns
            if c.kind == "physical" and c.type is not None
        )
    )
    check_partition_keys(statement, keys, physical, options, where)
    _check_variants(physical, options, where)
    metadata, schema, computed = _full_schema(columns, physical, options, source, zone, where, catalog)
    watermark = (
        declared_watermark(watermark_clause, schema, source, zone, catalog) if watermark_clause else None
    )
    if watermark is not None and watermark.rowtime is not None:
        schema = t.Schema(schema.fields, schema.fields[watermark.rowtime].name)
    return Table(
        statement.name, tuple(columns), options, physical, metadata, computed, schema, watermark,
        watermark_clause, key, statement.temporary, where, statement.text, comment=statement.comment,
        partition_keys=keys,
    )  # fmt: skip


#: Connectors that show or drop rows as they are. Others write a VARIANT only through format 'json'.
_SHOWS_VARIANTS = ("print", "blackhole", "memory")


def _check_variants(physical: t.Schema, options: dict[str, str], where: str) -> None:
    column = next((f.name for f in physical.fields if t.holds_variant(f.type)), None)
    connector = options.get("connector", "")
    formats = {value for key, value in options.items() if key == "format" or key.endswith(".format")}
    if column is None or connector in _SHOWS_VARIANTS or formats == {"json"}:
        return
    raise UnsupportedError(
        f"column '{column}' of type VARIANT in a table of connector '{connector}'",
        expected="format 'json', or connector " + " or ".join(f"'{c}'" for c in _SHOWS_VARIANTS[:2]),
        got=f"format {', '.join(sorted(formats)) or '(none)'}",
        where=where,
        remedy="declare the column STRING: JSON_STRING(v) writes a VARIANT into it, PARSE_JSON reads it",
    )


def _merge_like(
    base: Table,
    statement: CreateTable,
    columns: list[ColumnDef],
    options: dict[str, str],
    watermark: WatermarkClause | None,
    key: tuple[str, ...],
) -> tuple[list[ColumnDef], dict[str, str], WatermarkClause | None, tuple[str, ...]]:
    """Adds the parts of the base table that the LIKE clause includes. As in Flink, the default is INCLUDING
    for all parts but the options, and OVERWRITING for these."""
    choices = statement.like.options if statement.like else {}

    def policy(feature: str, default: str = "INCLUDING") -> str:
        return choices.get(feature, choices.get("ALL", default))

    if policy("OPTIONS", "OVERWRITING") != "EXCLUDING":
        options = {**base.options, **options}
    names = {c.name for c in columns}
    taken: list[ColumnDef] = []
    for column in base.columns:
        feature = {"computed": "GENERATED", "metadata": "METADATA"}.get(column.kind)
        if feature and policy(feature) == "EXCLUDING":
            continue
        if column.name in names:
            if feature is None or policy(feature) != "OVERWRITING":
                own = next(c for c in columns if c.name == column.name)
                raise SqlError(
                    f"column '{column.name}' exists in '{base.name}' already",
                    expected="a new column",
                    got=repr(column.name),
                    where=str(own.position),
                    remedy="drop it here, or LIKE … (OVERWRITING GENERATED)" if feature else None,
                )
            continue
        taken.append(column)
    if watermark is None and base.watermark_clause and policy("WATERMARKS") != "EXCLUDING":
        watermark = base.watermark_clause
    if not key and policy("CONSTRAINTS") != "EXCLUDING":
        key = base.primary_key
    return taken + columns, options, watermark, key


def _partition_keys(statement: CreateTable, base: Table | None) -> tuple[str, ...]:
    own = statement.partitions
    choices = statement.like.options if statement.like else {}
    taken = choices.get("PARTITIONS", choices.get("ALL")) != "EXCLUDING"
    inherited = base.partition_keys if base is not None and taken else ()
    if own is not None and inherited and base is not None:
        raise SqlError(
            f"'{base.name}' is partitioned already",
            expected="one PARTITIONED BY",
            got=", ".join(inherited),
            where=str(own.position),
            remedy="leave it out here, or LIKE … (EXCLUDING PARTITIONS)",
        )
    return own.columns if own is not None else inherited


def _primary_key(columns: list[ColumnDef], names: tuple[str, ...], where: str) -> tuple[str, ...]:
    physical = {c.name: c for c in columns if c.kind == "physical"}
    for name in names:
        if name not in physical:
            raise SqlError(
                f"primary key column '{name}' is not a physical column",
                expected="one of " + ", ".join(physical),
                got=repr(name),
                where=where,
                remedy=did_you_mean(name, physical),
            )
    return names


def _full_schema(
    columns: Sequence[ColumnDef],
    physical: t.Schema,
    options: dict[str, str],
    source: Source,
    zone: str,
    where: str,
    catalog: Catalog,
) -> tuple[tuple[MetadataColumn, ...], t.Schema, tuple[Expr, ...] | None]:
    declared = [c for c in columns if c.kind == "metadata"]
    metadata = tuple(MetadataColumn(c.name, c.metadata_key) for c in declared if c.metadata_key is not None)
    delivered: list[t.LogicalType] = []
    if declared:
        delivered = [_metadata_type(c, options, where) for c in declared]
    if all(c.kind == "physical" for c in columns):
        return (), physical, None
    width = len(physical)
    inputs: dict[str, Expr] = {f.name: InputRef(i, f.type) for i, f in enumerate(physical.fields)}
    for i, (column, type_) in enumerate(zip(declared, delivered, strict=True)):
        ref: Expr = InputRef(width + i, type_)
        if column.type != type_:
            ref = make_call(
                "CAST",
                [ref],
                type=column.type,
                line=column.position.line,
                column=column.position.column,
                within=f"the declaration of column '{column.name}'",
                zone=zone,
            )
        inputs[column.name] = ref
    names = [c.name for c in columns if c.kind == "physical"] + [c.name for c in declared]
    base = t.Schema(tuple(t.Field(name, inputs[name].type) for name in names))
    relation = Relation.of(Values(schema=base, data=""))
    binder = ExpressionBinder(relation, source, zone=zone, functions=catalog.functions)

    def computed(expression: exp.Expression) -> Expr:
        with consuming(expression, source):
            return binder.bind(expression)

    expressions: list[Expr] = []
    fields: list[t.Field] = []
    for column in columns:
        if column.kind == "computed":
            assert column.expression is not None
            bound = computed(column.expression)
            expression = _inline(bound, [inputs[name] for name in names])
        else:
            expression = inputs[column.name]
        expressions.append(expression)
        fields.append(t.Field(column.name, expression.type))
    return metadata, t.Schema(tuple(fields)), tuple(expressions)


def _inline(expr: Expr, inputs: list[Expr]) -> Expr:
    return transform(expr, lambda e: inputs[e.index] if isinstance(e, InputRef) else e)


def _metadata_type(column: ColumnDef, options: dict[str, str], where: str) -> t.LogicalType:
    from penstock.connectors.registry import connector_of, table_info

    offered = connector_of(options, where=where).metadata_of(table_info(t.Schema(()), options))
    known: t.LogicalType | None = offered.get(column.metadata_key or "")
    if known is None:
        raise ConnectorError(
            f"connector '{options['connector']}' has no metadata '{column.metadata_key}'",
            expected="one of " + (", ".join(offered) or "(it offers none)"),
            got=repr(column.metadata_key),
            where=str(column.position),
            remedy=did_you_mean(column.metadata_key or "", offered),
        )
    return known


def declared_watermark(
    clause: WatermarkClause, schema: t.Schema, source: Source, zone: str, catalog: Catalog
) -> WatermarkSpec:
    """How a WATERMARK clause makes watermarks of rows of ``schema``.

    Raises:
        SqlError: The column is unknown or no time, or the expression is no timestamp.
    """
    parts, expression, position = clause.parts, clause.expression, clause.position
    name = ".".join(parts)
    if len(parts) != 1 or name not in schema.names:
        raise SqlError(
            f"WATERMARK FOR names an unknown column '{name}'",
            expected="one of " + ", ".join(schema.names),
            got=repr(name),
            where=str(position),
            remedy="a field of a ROW needs a computed column"
            if len(parts) > 1
            else did_you_mean(name, schema.names),
        )
    index = schema.index(name)
    type_ = schema.types[index]
    if not isinstance(type_, t.TIMESTAMPS) or type_.precision > 3:
        raise SqlError(
            f"'{name}' cannot be an event-time column",
            expected="TIMESTAMP(p) or TIMESTAMP_LTZ(p) with p <= 3",
            got=str(type_),
            where=str(position),
            remedy=f"declare it TIMESTAMP(3), or a computed column: ts AS CAST({name} AS TIMESTAMP(3))",
        )
    relation = Relation.of(Values(schema=schema, data=""))
    with consuming(expression, source):
        bound = ExpressionBinder(relation, source, zone=zone, functions=catalog.functions).bind(expression)
    if not isinstance(bound.type, t.TIMESTAMPS):
        raise source.error(
            "the watermark's expression is no timestamp", expression, expected=str(type_), got=str(bound.type)
        )
    shift = constant_shift(bound)
    if shift is not None and shift[0] == index:
        return WatermarkSpec(rowtime=index, delay_us=-shift[1])
    return WatermarkSpec(rowtime=index, expr=bound)
