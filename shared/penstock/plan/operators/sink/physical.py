"""Writers, and the operators that put updates in order, or wait for final rows, before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import NOT_NULL_ENFORCER, TYPE_LENGTH_ENFORCER
from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Hash
from penstock.plan.final_rows import final_rows
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.state_size import a_row

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.sink.node import Sink
    from penstock.plan.translation import Translator


def sink(tr: Translator, node: Sink) -> PlannedOperator:
    """The operator of a sink, with an upsert materialiser before it where it needs one."""
    inp = final_rows(tr, node, node.input)
    how = tr.modes.sinks[id(node)]
    table = node.table
    asked = (
        node.parallelism
        or table.parallelism("sink.parallelism")
        or table.parallelism("compaction.parallelism")
    )
    parallelism = 1 if table.connector == "collect" else asked or inp.source.parallelism
    if how.materialize:
        source, width = tr.keyed(inp, how.keys)
        made = tr.add(
            node, "materialize", "SinkMaterializer", s.MaterializeSpec(keys=how.keys, ttl_ms=tr.ttl_ms),
            [source], output=node.input.schema, parallelism=width, hashed=how.keys,
            keeps=f"the rows behind each key{tr.ttl_words()} "
                f"({a_row(node.input.schema)})", mode="upsert",
        )  # fmt: skip
        inp = OperatorInput(made)
        parallelism = 1 if table.connector == "collect" else asked or width
    if table.sink_shuffle == ():
        parallelism = 1
    if parallelism == 1:
        inp = tr.single(inp)
    elif table.sink_shuffle:
        # Rows of one partition keep their order, and no change of a row crosses from one partition to another.
        inp = OperatorInput(inp.source, Hash(tuple(map(table.schema.index, table.sink_shuffle))), inp.tag)
    elif how.mode != "append" and how.keys and inp.source.parallelism != parallelism:
        inp = OperatorInput(inp.source, Hash(how.keys), inp.tag)
    elif how.mode != "append" and not how.keys and inp.source.parallelism != parallelism:
        raise UnsupportedError(
            "changes without a key at another parallelism: the old and the new row of an update could change places",
            expected=f"'sink.parallelism' = '{inp.source.parallelism}', or a PRIMARY KEY",
            got=str(parallelism),
            where=f"table '{table.name}'",
            remedy="declare the table's PRIMARY KEY, or remove 'sink.parallelism'",
        )
    stored = table.connector != "collect"
    spec = s.SinkSpec(
        connector=table.connector,
        options=table.options,
        schema=table.schema,
        mode=how.mode,
        # The writer gets the primary key for plain inserts, too, because an insert overwrites the row of its
        # key.
        keys=how.keys or tuple(table.schema.names.index(c) for c in table.primary_key),
        on_error=table.options.get("on-error", "fail"),  # type: ignore[arg-type]
        not_null=NOT_NULL_ENFORCER.read(tr.config) if stored else None,  # type: ignore[arg-type]
        metadata=tuple(column.key for column in table.metadata),
        type_length=TYPE_LENGTH_ENFORCER.read(tr.config) if stored else "IGNORE",  # type: ignore[arg-type]
    )
    return tr.add(
        node, "sink", f"Sink: {node.name or table.name}", spec, [inp], parallelism=parallelism, uid=node.uid,
        guarantee=table.guarantee, mode=how.mode,
    )  # fmt: skip
