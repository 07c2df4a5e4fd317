"""The value of a scalar subquery, which may have one row at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions.signature import ANY, AS_BIGINT, FunctionDef, register, resolver
from penstock.functions.vector import as_column, retyped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

#: ``$SINGLE_VALUE(value, rows)``: ``value``, unless a subquery gave more than one row.
SINGLE_VALUE = "$SINGLE_VALUE"


def _bind(call: Call) -> Any:
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        value, rows = args
        counted = as_column(rows, n)
        numbers = np.asarray(counted.values)
        if counted.valid is not None:
            numbers = np.where(counted.valid, numbers, 0)
        if n and numbers.max() > 1:
            raise RecordError(
                "a scalar subquery gave more than one row",
                expected="0 or 1 rows",
                got=f"{int(numbers.max())} rows",
                remedy="aggregate in the subquery, e.g. (SELECT MAX(x) FROM t), or choose one row by ORDER BY and LIMIT 1",
            )
        return retyped(as_column(value, n), type_)

    return run


register(
    FunctionDef(
        SINGLE_VALUE,
        resolver([ANY, AS_BIGINT], lambda types: types[0].with_nullable(True), nullable=True),
        _bind,
        fails=True,
    )
)
