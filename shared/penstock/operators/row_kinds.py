"""Kinds of a changelog's rows as a column, and the other way: between tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import FunctionError
from penstock.operators.operator import Operator
from penstock.types.batch import Batch, RowKind
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import RowKindSpec
    from penstock.operators.operator import Output

_MOST = max(RowKind)


class RowKindOperator(Operator):
    """Appends the kinds of rows as their last column (TINYINT), or takes them from it, as ``RowKindSpec`` says."""

    def __init__(self, spec: RowKindSpec) -> None:
        self.spec = spec

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        yield self._append(batch) if self.spec.kind == "append" else self._take(batch)

    def _append(self, batch: Batch) -> Batch:
        kinds = np.zeros(len(batch), np.uint8) if batch.kinds is None else batch.kinds
        schema = self.ctx.output_schema
        column = Column(schema.types[-1], kinds.astype(np.int8))
        return batch.with_columns(schema, [*batch.columns, column]).with_kinds(None)

    def _take(self, batch: Batch) -> Batch:
        column = batch.columns[-1]
        wrong = (column.values < 0) | (column.values > _MOST)
        if column.valid is not None:
            wrong |= ~column.valid
        if wrong.any():
            raise FunctionError(
                "a row of a changelog has no kind",
                expected="0 (+I), 1 (-U), 2 (+U) or 3 (-D)",
                got=str(column.to_pylist()[int(np.flatnonzero(wrong)[0])]),
                where=f"operator '{self.ctx.name}'",
            )
        made = batch.with_columns(self.ctx.output_schema, batch.columns[:-1])
        return made.with_kinds(column.values.astype(np.uint8))
