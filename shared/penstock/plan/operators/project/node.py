"""The node of computed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from penstock.functions.expr import Expr, InputRef, input_refs, shift_refs
from penstock.functions.registry import is_deterministic
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, kept_columns, referenced
from penstock.plan.lineage import Relation, bounded, expression
from penstock.plan.node import Node, Unary
from penstock.plan.properties import Properties, constant_shift, is_proctime
from penstock.plan.rewriting import reads, size, substitute
from penstock.plan.words import projections_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner

replace = msgspec.structs.replace
#: The most expression nodes that a condition may have after it has passed a projection.
_MOST_GROWTH = 500


class Project(Unary, frozen=True, kw_only=True, tag="project"):
    """Column i is ``expressions[i]`` of the input's row."""

    physical: ClassVar[str] = "penstock.plan.operators.project.physical:project"

    input: Node
    expressions: tuple[Expr, ...]
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(self.input, referenced(tuple(self.expressions[i] for i in need)))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        child, m = pruner.run(self.input)
        kept = sorted(need) or self._at_hand(m)
        if not kept:
            return pruner.rows_only(child), {}
        exprs = tuple(shift_refs(self.expressions[i], m) for i in kept)
        new = replace(self, input=child, expressions=exprs, schema=self.schema.select(kept))
        return new, kept_columns(kept)

    def _at_hand(self, available: Mapping_) -> list[int]:
        """For a consumer that only counts rows: the first column that can be computed from input columns that
        are needed anyway; empty if there is none."""
        for i, expr in enumerate(self.expressions):
            if input_refs(expr) <= set(available):
                return [i]
        return []

    def _passed(self) -> dict[int, int]:
        """Column of the input → the first output column that is exactly this column."""
        at: dict[int, int] = {}
        for i, expr in enumerate(self.expressions):
            if isinstance(expr, InputRef):
                at.setdefault(expr.index, i)
        return at

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        mapping: dict[int, int] = {}
        lags: dict[int, int] = {}
        rowtimes: set[int] = set()
        proctimes: set[int] = set()
        for i, expr in enumerate(self.expressions):
            if isinstance(expr, InputRef):
                mapping.setdefault(expr.index, i)
                if expr.index in inner.lags:
                    lags[i] = inner.lags[expr.index]
                if expr.index in inner.rowtimes:
                    rowtimes.add(i)
                if expr.index in inner.proctimes:
                    proctimes.add(i)
                continue
            if is_proctime(expr):
                proctimes.add(i)
                continue
            shift = constant_shift(expr)
            if shift and shift[0] in inner.lags:
                lags[i] = inner.lags[shift[0]] - shift[1]
        return inner.moved(mapping).timed(lags, rowtimes, proctimes)

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, self._passed()),)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return empty[0]

    def lowered(self, part: Expr) -> Expr | None:
        if not all(is_deterministic(self.expressions[i]) for i in input_refs(part)):
            return None
        # A condition that reads a computed column several times grows at each projection that it passes. Over
        # forty derived tables it would become too large.
        grown = sum(size(self.expressions[i]) for i in reads(part))
        return substitute(part, self.expressions) if grown <= _MOST_GROWTH else None

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        taken = (self.expressions[i] for i in key)
        return analysis.in_order(self.input, frozenset(e.index for e in taken if isinstance(e, InputRef)))

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        made = tuple(bounded(expression(e, below.columns)) for e in self.expressions)
        return Relation(below.tables, below.atoms, below.conditions, made)

    def explained(self) -> str:
        return f"Project({projections_text(self.expressions, self.schema, self.input.schema)})"

    def check(self) -> None:
        for expr in self.expressions:
            soundness.expression(expr, self.input.schema.types)
        soundness.types(self.schema.types, [e.type for e in self.expressions])
