"""The final rows of a bounded input whose rows are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.specs import SortSpec
from penstock.operators.sort import SortOperator
from penstock.state.waiting_order import WaitingOrder, by_hash
from penstock.state.waiting_rows import WaitingRows

if TYPE_CHECKING:
    from penstock.jobgraph.specs import FinalRowsSpec
    from penstock.operators.operator import OperatorContext


class FinalRowsOperator(SortOperator):
    """Keeps all rows by key (a retraction removes one) and emits them at the end of the input, in no order."""

    def __init__(self, spec: FinalRowsSpec) -> None:
        super().__init__(SortSpec(order=()))
        self._keys = spec.keys

    def _rows_of(self, ctx: OperatorContext) -> WaitingRows:
        schema = ctx.input_schemas[0]
        # Rows on disk are read key by key, so that a piece with the retractions of its rows fits into memory.
        order = by_hash(self._keys) if self._keys else WaitingOrder(lambda rows: (), ())
        return WaitingRows(ctx, "rows", schema, self._keys, order, kind="final-rows", spills=bool(self._keys))
