"""The node of INTERSECT and EXCEPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.jobgraph.specs import SetOperationSpec
from penstock.plan import soundness
from penstock.plan.lineage import opaque, typed, typed_row
from penstock.plan.node import Binary, Node
from penstock.plan.properties import Properties
from penstock.plan.state_size import INDEX_BYTES, about, row_bytes
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.translation import Translator


class SetOperation(Binary, frozen=True, kw_only=True, tag="set-operation"):
    """INTERSECT / EXCEPT [ALL]: whole rows are compared, so that every column is needed."""

    left: Node
    right: Node
    kind: Literal["intersect", "except"]
    all: bool = False
    schema: Schema

    def properties(self, analysis: Analysis) -> Properties:
        bounded = analysis.of(self.left).bounded and analysis.of(self.right).bounded
        everything = frozenset(range(len(self.schema)))
        return Properties(bounded=bounded, updating=True, unique=() if self.all else (everything,))

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return any(unique <= key for unique in analysis.of(self).unique)

    def relation(self, lineage: Lineage) -> Relation:
        left, right = lineage.of(self.left), lineage.of(self.right)
        rows = f"{typed_row(left, self.left.schema.types)}; {typed_row(right, self.right.schema.types)}"
        return opaque(left.tables | right.tables, f"{self._words()}({rows})", left.columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        parts = {"kind": self._words()}
        for side, child in (("left", self.left), ("right", self.right)):
            below = lineage.of(child)
            parts[f"{side} rows"] = f"({', '.join(typed(below.columns, child.schema.types))}) of {below.rows}"
        return parts, {}

    def _words(self) -> str:
        return f"{self.kind} {'all' if self.all else 'distinct'}"

    def explained(self) -> str:
        return f"{self.kind.capitalize()}({'all' if self.all else 'distinct'})"

    def check(self) -> None:
        soundness.types(self.schema.types, self.left.schema.types)
        soundness.types(self.schema.types, self.right.schema.types)

    def translate(self, translator: Translator) -> PlannedOperator:
        keys = tuple(range(len(self.schema)))
        left, parallelism = translator.keyed(translator.visit(self.left), keys)
        right, _ = translator.keyed(translator.visit(self.right), keys)
        spec = SetOperationSpec(kind=self.kind, all=self.all)
        size = about(INDEX_BYTES + row_bytes(self.schema.types) + 16, "distinct row")
        until = ", until the end" if translator.analysis.final else ", for ever"
        return translator.add(
            self, "set-operation", self.kind.capitalize(), spec, [left, right], parallelism=parallelism,
            hashed=keys, keeps=f"counts of every distinct row{until} ({size})",
        )  # fmt: skip
