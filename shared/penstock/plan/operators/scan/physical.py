"""Translates a scan into an enumerator and its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import SOURCE_PUSH_DOWN
from penstock.functions.expr import Expr, InputRef, input_refs, shift_refs
from penstock.jobgraph import specs as s
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.graph import Broadcast
from penstock.plan.operator_graph import OperatorInput, PlannedOperator
from penstock.plan.operators.scan.nested_rows import narrow_rows, unread_fields

if TYPE_CHECKING:
    from penstock.plan.operators.scan.node import Scan
    from penstock.plan.tables import TableRef
    from penstock.plan.translation import Translator


def scan(tr: Translator, node: Scan) -> PlannedOperator:
    """The operators of a table scan: enumerator, reader and the table's computed columns."""
    table = node.table
    columns = node.columns()
    width = len(table.physical)
    if table.computed is None:
        exprs: list[Expr] = [InputRef(c, table.physical.types[c]) for c in columns]
    else:
        exprs = [table.computed[c] for c in columns]
    read = sorted({i for e in exprs for i in input_refs(e)})
    push_down = SOURCE_PUSH_DOWN.read(tr.config)
    physical = tuple(i for i in read if i < width) if push_down else tuple(range(width))
    if not physical and not any(i >= width for i in read):
        physical = (0,) if width else ()
    metadata = [i for i in read if i >= width]
    layout = {c: i for i, c in enumerate([*physical, *metadata])}
    schema, computed = table.physical, [shift_refs(e, layout) for e in exprs]
    if table.nested_projection and push_down:
        schema, computed = narrow_rows(table.physical, physical, computed)
    unread = unread_fields(table.physical, physical, computed) if table.unread_fields and push_down else {}
    plain = all(isinstance(e, InputRef) and e.index == i for i, e in enumerate(computed)) and len(
        computed
    ) == len(layout)
    position = {c: i for i, c in enumerate(columns)}
    watermark = table.watermark
    if watermark is not None:
        watermark = msgspec.structs.replace(
            watermark,
            rowtime=position[watermark.rowtime] if watermark.rowtime is not None else None,
            expr=shift_refs(watermark.expr, position) if watermark.expr is not None else None,
            # A bounded split is never idle: it ends anyway. If it counted as idle after a pause of the
            # machine, its rows would be late.
            idle_timeout_ms=0 if table.bounded else watermark.idle_timeout_ms,
        )
    readers = table.parallelism("scan.parallelism") or tr.parallelism
    enumerator = PlannedOperator(
        uid=tr.earlier_uid("enumerator", node) if node.uid is None else f"{node.uid}-enumerator",
        name=f"Enumerator: {table.name}",
        spec=s.EnumeratorSpec(
            connector=table.connector, options=table.options, schema=schema, reader_parallelism=readers
        ),
        inputs=[],
        output=ASSIGNMENT_SCHEMA,
        parallelism=1,
        keeps="split positions",
        node=node,
        kind="enumerator",
        given=node.uid is not None,
    )
    tr.operators.append(enumerator)
    pushed = dict(node.pushed)
    key = tuple(table.schema.names.index(name) for name in table.primary_key)
    known_of_deletes = None
    if table.changelog == "upsert":
        pushed["keys"] = [table.physical.names.index(name) for name in table.primary_key]
        known_of_deletes = _known_of_deletes(table, columns)
    if unread:
        pushed["unread"] = unread
    mode = tr.modes.mode(node)
    spec = s.SourceSpec(
        connector=table.connector,
        options=table.options,
        schema=schema,
        projection=physical,
        metadata=tuple(table.metadata[i - width].key for i in metadata),
        pushed=pushed,
        computed=None if plain else tuple(computed),
        watermark=watermark,
        on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
        changelog=table.changelog,
        changelog_keys=tuple(position[i] for i in key if i in position)
        if table.changelog != "append"
        else (),
        known_of_deletes=known_of_deletes,
        drops_before=table.changelog == "retract" and mode == "upsert",
    )
    return tr.add(
        node,
        "source",
        f"Source: {table.name}",
        spec,
        [OperatorInput(enumerator, Broadcast())],
        parallelism=readers,
        uid=node.uid,
        keeps="split positions",
        guarantee=table.guarantee,
        mode=table.changelog if table.changelog == "upsert" else mode,
    )


def _known_of_deletes(table: TableRef, columns: tuple[int, ...]) -> tuple[int, ...]:
    """The output columns that depend only on the primary key and on metadata, so that they are known in
    deletions."""
    names, width = table.physical.names, len(table.physical)

    def known(column: int) -> bool:
        if table.computed is None:
            return names[column] in table.primary_key
        return all(i >= width or names[i] in table.primary_key for i in input_refs(table.computed[column]))

    return tuple(at for at, column in enumerate(columns) if known(column))
