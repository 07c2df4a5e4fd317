"""Scans (an enumerator and its readers), filters and projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import SOURCE_PUSH_DOWN
from penstock.functions.expr import Expr, InputRef, input_refs, shift_refs
from penstock.jobgraph import specs as s
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.graph import Broadcast
from penstock.plan import nodes as n
from penstock.plan.operators import OperatorInput, PlannedOperator
from penstock.plan.translation.nested_rows import narrow_rows

if TYPE_CHECKING:
    from penstock.plan.translation.translator import Translator


def scan(tr: Translator, node: n.Scan) -> PlannedOperator:
    table = node.table
    columns = node.projection if node.projection is not None else tuple(range(len(table.schema)))
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
            # A bounded split comes to its end: to call it idle meanwhile gains nothing,
            # and would make its rows late whenever the machine pauses for so long.
            idle_timeout_ms=0 if table.bounded else watermark.idle_timeout_ms,
        )
    enumerator = PlannedOperator(
        uid=tr.earlier_uid("enumerator", node) if node.uid is None else f"{node.uid}-enumerator",
        name=f"Enumerator: {table.name}",
        spec=s.EnumeratorSpec(
            connector=table.connector, options=table.options, schema=schema, reader_parallelism=tr.parallelism
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
    spec = s.SourceSpec(
        connector=table.connector,
        options=table.options,
        schema=schema,
        projection=physical,
        metadata=tuple(table.metadata[i - width].key for i in metadata),
        pushed=dict(node.pushed),
        computed=None if plain else tuple(computed),
        watermark=watermark,
        on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
    )
    return tr.add(
        node,
        "source",
        f"Source: {table.name}",
        spec,
        [OperatorInput(enumerator, Broadcast())],
        parallelism=tr.parallelism,
        uid=node.uid,
        keeps="split positions",
        guarantee=table.guarantee,
    )


def calc(
    tr: Translator, node: n.Node, source: n.Node, condition: Expr | None, projections: tuple[Expr, ...] | None
) -> PlannedOperator:
    inp = tr.visit(source)
    names = [w for w, present in (("Filter", condition), ("Project", projections)) if present is not None]
    hashed = inp.source.hashed if inp.tag is None else None
    if hashed is not None and projections is not None:
        hashed = _moved_keys(hashed, projections)
    spec = s.CalcSpec(condition=condition, projections=projections, on_error=tr.on_error)
    return tr.add(node, "calc", "Calc(" + ", ".join(names) + ")", spec, [inp], hashed=hashed)


def correlate(tr: Translator, node: n.Correlate) -> PlannedOperator:
    spec = s.TableFunctionSpec(
        function=node.function, args=node.args, kind=node.kind, builtin=node.builtin, per=node.per,
        on_error=tr.on_error, asynchronous=node.asynchronous,
    )  # fmt: skip
    op = tr.add(node, "table-function", f"Correlate({node.function})", spec, [tr.visit(node.input)])
    op.chain = not node.asynchronous
    return op


def async_calc(tr: Translator, node: n.AsyncCalc) -> PlannedOperator:
    inp = tr.visit(node.input)
    spec = s.AsyncCalcSpec(calls=node.calls, on_error=tr.on_error)
    names = ", ".join(c.function for c in node.calls)
    op = tr.add(node, "async-calc", f"AsyncCalc({names})", spec, [inp], hashed=inp.source.hashed)
    # Behind a channel it takes as few rows at a time as fit between two barriers.
    op.chain = False
    return op


def _moved_keys(keys: tuple[int, ...], projections: tuple[Expr, ...]) -> tuple[int, ...] | None:
    at = {e.index: i for i, e in reversed(list(enumerate(projections))) if isinstance(e, InputRef)}
    return tuple(at[k] for k in keys) if all(k in at for k in keys) else None
