"""Temporal joins: FOR SYSTEM_TIME AS OF an event time (a version) or a processing time (a lookup)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.lookup import lookup_settings
from penstock.connectors.registry import get_connector
from penstock.functions.expr import InputRef
from penstock.plan import nodes as n
from penstock.plan.properties import is_proctime
from penstock.sql.lookup_hints import hinted_table
from penstock.sql.scope import Relation, joined, joined_schema

if TYPE_CHECKING:
    from sqlglot import exp

    from penstock.errors import PenstockError
    from penstock.sql.errors import Source
    from penstock.sql.queries import QueryBinder
    from penstock.sql.syntax import AsOf


def time_travel(source: Source, node: AsOf) -> PenstockError:
    """The refusal of FOR SYSTEM_TIME AS OF behind a table that joins nothing."""
    return source.unsupported(
        "FOR SYSTEM_TIME AS OF without a JOIN",
        node,
        expected="l JOIN t FOR SYSTEM_TIME AS OF l.time",
        remedy="an older version of an iceberg or delta table is named by its options, 'snapshot-id' or 'versionAsOf' "
        "(docs/connectors/iceberg.md, delta.md)",
    )


def bind_temporal_join(ctx: QueryBinder, left: Relation, join: exp.Join, target: AsOf, how: str) -> Relation:
    """Joins ``left`` with the versions of a table at an event time, or, by processing time, with lookups."""
    if how not in ("inner", "left"):
        raise ctx.source.unsupported(f"a {how} temporal join", join, remedy="use JOIN or LEFT JOIN")
    right = ctx.table_item(target.this)
    alias = target.args.get("alias")
    if alias is not None:
        right = right.aliased(alias.name, [c.name for c in alias.args.get("columns") or []])
    if join.args.get("on") is None:
        raise ctx.source.error("a temporal join needs ON with an equality", join, expected="ON l.key = r.key")
    time = ctx.expressions(left).bind(target.args["time"])
    known = ctx.analysis.of(left.node)
    lookup = is_proctime(time) or (isinstance(time, InputRef) and time.index in known.proctimes)
    left_time: int | None = None
    right_time: int | None = None
    if lookup:
        right = _looked_up(ctx, target, right)
    elif isinstance(time, InputRef) and time.index in known.rowtimes:
        if isinstance(right.node, n.Normalize):
            # Each upsert is a version. The join needs every version, not only the last one of each batch.
            right = right.over(right.node.input)
        left_time, right_time = time.index, _version_time(ctx, target, right)
    else:
        times = sorted(left.node.schema.names[i] for i in known.rowtimes | known.proctimes)
        raise ctx.source.error(
            "FOR SYSTEM_TIME AS OF needs a time attribute of the left side",
            target.args["time"],
            expected="the left table's event-time or processing-time column"
            + (": " + ", ".join(times) if times else ""),
            got=str(time.type),
            remedy="declare WATERMARK FOR the column, or a column AS PROCTIME() for a lookup join",
        )
    plain = joined_schema(left.node.schema, right.node.schema, left_null=False, right_null=False)
    scope = joined(left, right, n.Values(schema=plain, data=""))
    bound = ctx.expressions(scope).condition(join.args["on"], "ON")
    schema = joined_schema(left.node.schema, right.node.schema, left_null=False, right_null=how == "left")
    node = n.TemporalJoin(
        left=left.node,
        right=right.node,
        kind=how,  # type: ignore[arg-type]
        left_keys=(),
        right_keys=(),
        left_time=left_time,
        right_time=right_time,
        lookup=lookup,
        condition=bound,
        schema=schema,
    )
    return joined(left, right, node)


def _version_time(ctx: QueryBinder, target: AsOf, right: Relation) -> int:
    versions = ctx.analysis.of(right.node)
    if not versions.rowtimes:
        raise ctx.source.error(
            "the versioned table has no event time",
            target,
            expected="a WATERMARK and a PRIMARY KEY on the right table",
        )
    return min(versions.rowtimes)


def _looked_up(ctx: QueryBinder, target: AsOf, right: Relation) -> Relation:
    """The table that a lookup join asks, without its watermark, which has no meaning in lookups."""
    scan = right.node.input if isinstance(right.node, n.Normalize) else right.node
    if not isinstance(scan, n.Scan):
        raise ctx.source.unsupported(
            "a lookup join with something other than a table",
            target,
            expected="JOIN t FOR SYSTEM_TIME AS OF …, t a table of a connector with lookups",
            remedy="name the table, and put the view's filters into ON",
        )
    if not scan.table.lookup:
        connector = get_connector(scan.table.connector)
        lookup_settings(connector, scan.table.options, where=ctx.source.where(target))
    if scan.table.changelog != "append":
        raise ctx.source.unsupported(
            f"a lookup join with a changelog: table '{scan.table.name}'",
            target,
            expected="a table whose rows are what it holds",
            remedy="join it as a versioned table: FOR SYSTEM_TIME AS OF an event time",
        )
    table = hinted_table(ctx, msgspec.structs.replace(scan.table, watermark=None), right.columns[0].table)
    return right.over(msgspec.structs.replace(scan, table=table))
