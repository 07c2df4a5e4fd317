"""The node that completes an upsert changelog: it adds the old rows of updates and the values of deleted
rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from penstock.plan import soundness
from penstock.plan.lineage import listed, stored_rows, typed
from penstock.plan.node import Node, Unary
from penstock.plan.operators.scan.node import Scan
from penstock.plan.words import column_names
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties
    from penstock.plan.tables import TableRef


class Normalize(Unary, frozen=True, kw_only=True, tag="normalize"):
    """Turns an upsert changelog by ``keys`` into a changelog with whole old and new rows, as Flink's
    ChangelogNormalize does."""

    physical: ClassVar[str] = "penstock.plan.operators.normalize.physical:normalize"
    reads: ClassVar[tuple[str, ...]] = ("keys",)

    input: Node
    keys: tuple[int, ...]
    schema: Schema

    def keeps_rows(self) -> bool:
        return True

    def properties(self, analysis: Analysis) -> Properties:
        inner, key = analysis.of(self.input), frozenset(self.keys)
        unique = inner.unique if key in inner.unique else (*inner.unique, key)
        return replace(inner, updating=True, unique=unique)

    def asks_before(self, wanted: bool) -> bool:
        return False

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return set(self.keys) <= key

    def relation(self, lineage: Lineage) -> Relation:
        return lineage.of(self.input)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        below = lineage.of(self.input)
        row = typed(below.columns, self.input.schema.types)
        return {**stored_rows(below, row), "keys": listed(row, self.keys)}, {}

    def explained(self) -> str:
        return f"Normalize(key=[{column_names(self.keys, self.input.schema)}])"

    def check(self) -> None:
        soundness.indices(self.keys, self.input.schema.types)
        soundness.types(self.schema.types, self.input.schema.types)


def table_rows(table: TableRef, *, uid: str | None = None) -> Node:
    """The rows of ``table``: a scan, with a normaliser above it if the table gives upserts. ``uid``: the uid
    that the user gave the source."""
    scan = Scan(table=table, schema=table.schema, uid=uid)
    if table.changelog != "upsert":
        return scan
    keys = tuple(table.schema.names.index(name) for name in table.primary_key)
    return Normalize(input=scan, keys=keys, schema=table.schema)
