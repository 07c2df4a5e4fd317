"""CURRENT_WATERMARK: the watermark of the operator that evaluates the expression.

The operator sets it before it evaluates a batch, so all rows of a batch see one watermark. A process evaluates for one
operator at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.signature import FunctionDef, Resolution, register
from penstock.functions.vector import Scalar
from penstock.functions.watermark_calls import NAME
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.functions.expr import Call

_current: list[int | None] = [None]


def set_watermark(us: int | None) -> None:
    """The watermark (µs since the epoch; None: there was none yet) that the next evaluation sees."""
    _current[0] = us


def _resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(1, 1)
    [time] = call.types
    if not isinstance(time, t.TIMESTAMPS):
        call.fail("an event-time column")
    return call.types, time.with_nullable(True)


def _bind(call: Call) -> Any:
    return lambda args, n: Scalar(call.type, _current[0])


register(FunctionDef(NAME, _resolve, _bind, deterministic=False))
