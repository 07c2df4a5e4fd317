"""``make_join`` chooses the operator of a ``JoinSpec``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.jobgraph.specs import JoinSpec
    from penstock.operators.operator import Operator


def make_join(spec: JoinSpec) -> Operator:
    """An ``IntervalJoinOperator`` if the spec bounds the time between rows, else a ``JoinOperator``."""
    if spec.interval is not None:
        from penstock.operators.interval_join import IntervalJoinOperator

        return IntervalJoinOperator(spec)
    from penstock.operators.regular_join import JoinOperator

    return JoinOperator(spec)
