"""A debounce in a plan."""

from __future__ import annotations

from typing import ClassVar

from penstock.functions.expr import Expr, input_refs
from penstock.functions.registry import is_deterministic
from penstock.plan.lineage import Lineage, Meaning, Relation, bounded, listed, opaque, typed
from penstock.plan.node import Node, Unary
from penstock.plan.operator_graph import PlannedOperator
from penstock.plan.state_size import INDEX_BYTES, about, row_bytes
from penstock.plan.translation import Translator
from penstock.plan.words import column_names
from penstock.types.logical import Schema
from tests.plan.outside.debounce.spec import DebounceSpec


class Debounce(Unary, frozen=True, kw_only=True, tag="debounce"):
    """Rows of a key within ``quiet_us`` of the key's row before, by the column ``time``, are dropped."""

    reads: ClassVar[tuple[str, ...]] = ("keys", "time")

    input: Node
    keys: tuple[int, ...]
    time: int
    quiet_us: int
    schema: Schema

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def lowered(self, part: Expr) -> Expr | None:
        """A condition on keys alone leaves out whole keys; any other would change what comes before what."""
        columns = input_refs(part)
        return part if columns and columns <= set(self.keys) and is_deterministic(part) else None

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        keys = ", ".join(sorted(below.columns[k] for k in self.keys))
        words = (
            f"debounced({keys} by {below.columns[self.time]}, {self.quiet_us / 1000:g} ms) of {below.rows}"
        )
        return opaque(below.tables, bounded(words), below.columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        below = lineage.of(self.input)
        row = typed(below.columns, self.input.schema.types)
        return {"keys": listed(row, self.keys), "time": row[self.time], "input": below.rows}, {}

    def explained(self) -> str:
        names = self.input.schema
        return f"Debounce([{column_names(self.keys, names)}], {names.names[self.time]}, {self.quiet_us / 1000:g} ms)"

    def translate(self, translator: Translator) -> PlannedOperator:
        source, parallelism = translator.keyed(translator.visit(self.input), self.keys)
        types = self.input.schema.types
        size = about(INDEX_BYTES + row_bytes([*(types[k] for k in self.keys), types[self.time]]), "key")
        spec = DebounceSpec(keys=self.keys, time=self.time, quiet_us=self.quiet_us, ttl_ms=translator.ttl_ms)
        return translator.add(
            self, "debounce", "Debounce", spec, [source], parallelism=parallelism, hashed=self.keys,
            keeps=f"the time of a key's last row{translator.ttl_words()} ({size})",
        )  # fmt: skip
