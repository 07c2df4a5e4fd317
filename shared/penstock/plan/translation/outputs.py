"""Unions, set operations, DataStream transformations and sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import NOT_NULL_ENFORCER, TYPE_LENGTH_ENFORCER
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Hash, Partitioning
from penstock.plan import nodes as n
from penstock.plan.operators import OperatorInput, PlannedOperator
from penstock.plan.state_size import INDEX_BYTES, about, row_bytes

if TYPE_CHECKING:
    from penstock.plan.translation.translator import Translator


def union(tr: Translator, node: n.Union_) -> PlannedOperator:
    inputs = [tr.visit(i) for i in node.inputs]
    parallelism = max(i.source.parallelism for i in inputs)
    hashes = {i.source.hashed if i.tag is None else None for i in inputs}
    hashed = (
        hashes.pop()
        if len(hashes) == 1 and all(i.source.parallelism == parallelism for i in inputs)
        else None
    )
    return tr.add(
        node, "union", "Union", s.UnionSpec(), [list(inputs)], parallelism=parallelism, hashed=hashed
    )


def set_operation(tr: Translator, node: n.SetOperation) -> PlannedOperator:
    keys = tuple(range(len(node.schema)))
    left, parallelism = tr.keyed(tr.visit(node.left), keys)
    right, _ = tr.keyed(tr.visit(node.right), keys)
    spec = s.SetOperationSpec(kind=node.kind, all=node.all)
    return tr.add(
        node, "set-operation", node.kind.capitalize(), spec, [left, right], parallelism=parallelism,
        hashed=keys, keeps=f"counts of every distinct row{', until the end' if tr.analysis.final else ', for ever'} "
        f"({about(INDEX_BYTES + row_bytes(node.schema.types) + 16, 'distinct row')})",
    )  # fmt: skip


def transform(tr: Translator, node: n.Transform) -> PlannedOperator:
    inputs = []
    parallelism = node.parallelism or tr.parallelism
    for i, child in enumerate(node.inputs):
        wanted: Partitioning | None = node.partitioning[i] if i < len(node.partitioning) else None
        inp = tr.visit(child)
        if isinstance(wanted, Hash) and inp.tag is None and inp.source.hashed == wanted.keys:
            wanted = None if inp.source.parallelism == parallelism else wanted
        inputs.append(OperatorInput(inp.source, wanted, inp.tag))
    union = isinstance(node.spec, s.UnionSpec)
    op = tr.add(
        node,
        "transform",
        node.name,
        node.spec,
        [inputs] if union else inputs,  # type: ignore[list-item]
        parallelism=parallelism if node.inputs or not isinstance(node.spec, s.CollectionSourceSpec) else 1,
        uid=node.uid,
        side_outputs=dict(node.side_outputs),
    )
    op.chain = node.chain
    if node.slot_sharing_group:
        op.slot_sharing_group = node.slot_sharing_group
    elif inputs:
        op.slot_sharing_group = inputs[0].source.slot_sharing_group
    return op


def sink(tr: Translator, node: n.Sink) -> None:
    inp = tr.visit(node.input)
    how = tr.modes.sinks[id(node)]
    table = node.table
    parallelism = 1 if table.connector == "collect" else node.parallelism or inp.source.parallelism
    if how.materialize:
        source, width = tr.keyed(inp, how.keys)
        made = tr.add(
            node, "materialize", "SinkMaterializer", s.MaterializeSpec(keys=how.keys, ttl_ms=tr.ttl_ms),
            [source], output=node.input.schema, parallelism=width, hashed=how.keys,
            keeps=f"the rows behind each key{tr.ttl_words()} "
                f"({about(INDEX_BYTES + row_bytes(node.input.schema.types), 'row')})", mode="upsert",
        )  # fmt: skip
        inp = OperatorInput(made)
        parallelism = 1 if table.connector == "collect" else node.parallelism or width
    if parallelism == 1:
        inp = tr.single(inp)
    elif how.mode != "append" and how.keys and inp.source.parallelism != parallelism:
        inp = OperatorInput(inp.source, Hash(how.keys), inp.tag)
    stored = table.connector != "collect"
    spec = s.SinkSpec(
        connector=table.connector,
        options=table.options,
        schema=table.schema,
        mode=how.mode,
        # A table that takes updates gets its key for plain inserts, too: they overwrite.
        keys=how.keys or tuple(table.schema.names.index(c) for c in table.primary_key),
        on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
        not_null=NOT_NULL_ENFORCER.read(tr.config) if stored else None,  # type: ignore[arg-type]
        type_length=TYPE_LENGTH_ENFORCER.read(tr.config) if stored else "IGNORE",  # type: ignore[arg-type]
    )
    tr.add(
        node, "sink", f"Sink: {node.name or table.name}", spec, [inp], parallelism=parallelism, uid=node.uid,
        guarantee=table.guarantee, mode=how.mode,
    )  # fmt: skip
