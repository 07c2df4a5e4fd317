"""VALUES: constant rows, which the planner computes."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.expr import Expr, Literal
from penstock.functions.registry import make_call
from penstock.plan import nodes as n
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder
    from penstock.types.batch import Batch


def values_node(ctx: QueryBinder, node: exp.Values) -> n.Values:
    """``VALUES (1, 'a'), (2, 'b')`` with the columns' common types."""
    from penstock.functions.evaluate import compile_expr
    from penstock.sql.scope import Relation
    from penstock.types.batch import Batch
    from penstock.types.column import Column

    empty = t.Schema((t.Field("ZERO", t.IntType(nullable=False)),))
    binder = ctx.expressions(Relation(n.Values(schema=empty, data=""), ()))
    rows: list[list[Expr]] = []
    for row in node.expressions:
        items = row.expressions if isinstance(row, exp.Tuple) else [row]
        rows.append([binder.bind(item) for item in items])
        if len(rows[-1]) != len(rows[0]):
            raise ctx.source.error(
                "the rows of VALUES differ in length",
                row,
                expected=f"{len(rows[0])} values",
                got=f"{len(rows[-1])}",
                remedy="give each row as many values as the first; CAST(NULL AS …) stands for none",
            )
    columns = []
    one = Batch(empty, [Column.constant(t.IntType(nullable=False), 0, 1)])
    fields = []
    for i in range(len(rows[0])):
        type_ = _common_type(ctx, node, i, [row[i] for row in rows])
        cells = []
        for row in rows:
            value = row[i]
            if value.type != type_:
                value = make_call(
                    "CAST",
                    [value],
                    type=type_.with_nullable(value.type.nullable or type_.nullable),
                    zone=ctx.zone,
                )
            cells.append(compile_expr(value)(one).cast_type(type_))
        columns.append(Column.concat(cells))
        fields.append(t.Field(f"EXPR${i}", type_))
    schema = t.Schema(tuple(fields))
    return n.Values(schema=schema, data=encode_batch(Batch(schema, columns)))


def _common_type(ctx: QueryBinder, node: exp.Values, i: int, cells: list[Expr]) -> t.LogicalType:
    type_ = cells[0].type
    for row, cell in enumerate(cells[1:], 1):
        try:
            condition = Literal(False, t.BooleanType(nullable=False))
            first = Literal(None, type_.with_nullable(True))
            merged = make_call("CASE", [condition, first, Literal(None, cell.type.with_nullable(True))]).type
        except Exception as err:
            raise ctx.source.error(
                f"column {i + 1} of VALUES has two types",
                node.expressions[row],
                expected=str(type_),
                got=str(cell.type),
            ) from err
        type_ = merged
    nullable = any(c.type.nullable for c in cells)
    if isinstance(type_, t.CharType) and len({c.type for c in cells}) > 1:
        type_ = t.VarCharType()
    return type_.with_nullable(nullable)


def encode_rows(schema: t.Schema, rows: list[tuple[Any, ...]]) -> str:
    """Rows of Python values in the form in which a plan holds them."""
    from penstock.types.batch import Batch
    from penstock.types.column import Column

    columns = [Column.of(f.type, [row[i] for row in rows]) for i, f in enumerate(schema.fields)]
    return encode_batch(Batch(schema, columns))


def encode_batch(batch: Batch) -> str:
    """The batch as an Arrow IPC stream in base64, as ``plan.nodes.Values.data`` holds it."""
    import pyarrow as pa

    arrow = batch.to_arrow()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_batch(arrow)
    return base64.b64encode(sink.getvalue()).decode()
