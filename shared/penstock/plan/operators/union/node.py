"""The node of UNION ALL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr
from penstock.jobgraph.specs import UnionSpec
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, kept_columns
from penstock.plan.lineage import Relation, bounded, opaque, row_words
from penstock.plan.node import Nary, Node
from penstock.plan.properties import Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.pushdown import PushDown
    from penstock.plan.translation import Translator

replace = msgspec.structs.replace


class Union_(Nary, frozen=True, kw_only=True, tag="union"):
    """UNION ALL; DISTINCT is an Aggregate above."""

    inputs: tuple[Node, ...]
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(child, set(need)) for child in self.inputs]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        kept = sorted(need) or [0]
        if not need and any(0 not in pruner.run(child)[1] for child in self.inputs):
            rows = tuple(pruner.rows_only(pruner.run(child)[0]) for child in self.inputs)
            return replace(self, inputs=rows, schema=rows[0].schema), {}
        inputs = tuple(pruner.exact(child, kept) for child in self.inputs)
        return replace(self, inputs=inputs, schema=self.schema.select(kept)), kept_columns(kept)

    def properties(self, analysis: Analysis) -> Properties:
        inputs = [analysis.of(child) for child in self.inputs]
        bounded_, updating = all(p.bounded for p in inputs), any(p.updating for p in inputs)
        if len({p.timeline for p in inputs}) > 1:
            # The inputs' watermarks follow different clocks: their minimum means nothing on either clock.
            return Properties(bounded=bounded_, updating=updating)
        first = inputs[0]
        return Properties(
            bounded=bounded_,
            lags={i: max(p.lags[i] for p in inputs) for i in first.lags if all(i in p.lags for p in inputs)},
            rowtimes=frozenset.intersection(*(p.rowtimes for p in inputs)),
            proctimes=frozenset.intersection(*(p.proctimes for p in inputs)),
            window=first.window if all(p.window == first.window for p in inputs) else None,
            updating=updating,
            timeline=first.timeline,
        )

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return all(empty)

    def push_down(self, pusher: PushDown, parts: list[Expr]) -> Node:
        return replace(self, inputs=tuple(pusher.push(child, list(parts)) for child in self.inputs))

    def relation(self, lineage: Lineage) -> Relation:
        parts = [lineage.of(child) for child in self.inputs]
        tables: frozenset[str] = frozenset().union(*(p.tables for p in parts))
        rows = sorted(row_words(p) for p in parts)
        atom = bounded(f"union({'; '.join(rows)})")
        columns = tuple(
            bounded(f"union({'; '.join(sorted(p.columns[i] for p in parts))})")
            for i in range(len(self.schema))
        )
        return opaque(tables, atom, columns)

    def explained(self) -> str:
        return "Union(all)"

    def check(self) -> None:
        for child in self.inputs:
            soundness.types(self.schema.types, child.schema.types)

    def translate(self, translator: Translator) -> PlannedOperator:
        inputs = [translator.visit(child) for child in self.inputs]
        parallelism = max(i.source.parallelism for i in inputs)
        hashes = {i.source.hashed if i.tag is None else None for i in inputs}
        same = len(hashes) == 1 and all(i.source.parallelism == parallelism for i in inputs)
        hashed = hashes.pop() if same else None
        return translator.add(
            self, "union", "Union", UnionSpec(), [list(inputs)], parallelism=parallelism, hashed=hashed
        )
