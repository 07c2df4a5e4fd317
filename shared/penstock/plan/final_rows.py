"""Final rows in batch mode: where a consumer takes no changes, the rows of a bounded input wait for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.state_size import a_row
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.plan.node import Node
    from penstock.plan.properties import Analysis
    from penstock.plan.translation import Translator

_NO_KEYS = (t.ArrayType, t.MapType, t.MultisetType, t.RowType, t.RawType)


def are_collected(node: Node, analysis: Analysis) -> bool:
    """Whether the rows of ``node`` are taken back later, in a job that gives final rows only."""
    return analysis.final and analysis.of(node).updating


def final_rows(tr: Translator, reader: Node, node: Node) -> OperatorInput:
    """The rows of ``node`` for ``reader``, which sees none that a later change takes back."""
    inp = tr.visit(node)
    if not are_collected(node, tr.analysis):
        return inp
    schema = node.schema
    # All changes of a row are the same in every column, so that any columns bring them together.
    keys = inp.source.hashed or tuple(i for i, x in enumerate(schema.types) if not isinstance(x, _NO_KEYS))
    source, width = tr.keyed(inp, keys)
    made = tr.add(
        reader, "final-rows", "FinalRows", s.FinalRowsSpec(keys=keys), [source], output=schema,
        parallelism=width, hashed=keys or None, mode="append", keeps=f"all rows until the end ({a_row(schema)})",
    )  # fmt: skip
    return OperatorInput(made)
