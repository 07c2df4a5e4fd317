"""The conformance kit on operators that the planner puts between others."""

from __future__ import annotations

from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t
from tests.plan.outside.given import Given
from tests.plan.outside.test_built_in import PAIR, PAIRS, Rows


class TestFinalRows(OperatorConformance):
    """The rows that are left at the end of the input, by key."""

    takes_updates = True

    def schemas(self) -> list[t.Schema]:
        return [PAIR]

    def rows(self) -> list[Rows]:
        return [PAIRS]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return Given(inputs=inputs, spec=s.FinalRowsSpec(keys=(0,)), schema=PAIR, keys=(0,))

    def expected(self, rows: list[Rows]) -> Rows:
        return rows[0]
