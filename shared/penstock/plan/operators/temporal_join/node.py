"""The node of a join with a table as of a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.loading import loaded
from penstock.jobgraph.specs import TemporalJoinSpec
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.node import Node
from penstock.plan.operators.join.node import Pairing
from penstock.plan.properties import Properties
from penstock.plan.rewriting import conjuncts
from penstock.plan.words import key_pairs
from penstock.types.logical import LogicalType, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pushdown import PushDown


class TemporalJoin(Pairing, frozen=True, kw_only=True, tag="temporal-join"):
    """FOR SYSTEM_TIME AS OF a time of the left input: a join with versions by event time, or a lookup join if
    ``lookup``. ``versions``: every row of the right input is a version of its key."""

    physical: ClassVar[str] = "penstock.plan.operators.temporal_join.physical:temporal_join"

    left: Node
    right: Node
    kind: Literal["inner", "left"]
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    left_time: int | None
    right_time: int | None
    lookup: bool = False
    versions: bool = False
    condition: Expr | None = None
    schema: Schema

    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("left_keys", "left_time"), ("right_keys", "right_time")

    def keeps_right(self) -> bool:
        return not self.lookup  # A table that is looked up is not an input.

    def properties(self, analysis: Analysis) -> Properties:
        left, right = analysis.of(self.left), analysis.of(self.right)
        one_at_most = any(key <= set(self.right_keys) for key in right.unique)
        return left if one_at_most else replace(left, unique=())

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.left, None),)

    def push_down(self, pusher: PushDown, parts: list[Expr]) -> Node:
        made: Node = loaded("penstock.plan.operators.join.pushdown:push_temporal")(pusher, self, parts)
        return made

    def relation(self, lineage: Lineage) -> Relation:
        left = words.marked(lineage.of(self.left), "left")
        right = words.marked(lineage.of(self.right), "right")
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        said = [f"{left.columns[a]} = {right.columns[b]}" for a, b in pairs]
        said += [words.expression(c, (*left.columns, *right.columns)) for c in conjuncts(self.condition)]
        time = "now" if self.left_time is None else left.columns[self.left_time]
        on = " and ".join(sorted(said))
        atom = words.bounded(f"{self.kind}({left.rows}; {right.rows} as of {time}; {on})")
        columns = (*left.columns, *words.optional(right.columns))[: len(self.schema)]
        return words.opaque(left.tables | right.tables, atom, columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        spec = op.spec
        assert isinstance(spec, TemporalJoinSpec)
        below = [lineage.of(side) for side in self.children()]
        rows = [words.typed(r.columns, c.schema.types) for r, c in zip(below, self.children(), strict=True)]
        return {
            "kind": self.kind,
            "left keys": words.listed(rows[0], self.left_keys),
            "left rows": below[0].rows,
            "left columns": ", ".join(rows[0]),
            "left time": rows[0][spec.left_time],
            "right keys": words.listed(rows[1], self.right_keys),
            "right rows": below[1].rows,
            "right columns": ", ".join(rows[1]),
            "right time": rows[1][spec.right_time],
        }, {}

    def explained(self) -> str:
        pairs = key_pairs(self.left.schema, self.right.schema, self.left_keys, self.right_keys)
        how = "lookup" if self.lookup else f"as of {self.left.schema.names[self.left_time or 0]}"
        return f"TemporalJoin({self.kind}, {pairs}, {how})"

    def check_times(self, left: Sequence[LogicalType], right: Sequence[LogicalType]) -> None:
        soundness.indices([] if self.left_time is None else [self.left_time], left)
        soundness.indices([] if self.right_time is None else [self.right_time], right)
