"""``on-error`` of operators that work on whole batches: the row that fails is found by halves.

Only what the row or a user's function is to blame for is left out; an error of ours, or of
the world outside, fails the task whatever the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import FunctionError, RecordError
from penstock.halving import by_halves
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.operators.operator import OperatorContext


def leaving_out(
    ctx: OperatorContext, on_error: str, apply: Callable[[Batch], Iterator[Batch]]
) -> Callable[[Batch], Iterator[Batch]]:
    """``apply``, a function of single rows, with the policy around it."""
    if on_error == "fail":
        return apply

    def attempt(part: Batch) -> list[Batch]:
        # All of it before any is passed on: else a half would be passed on twice.
        return list(apply(part))

    def refused(row: Batch, err: Exception) -> None:
        ctx.metrics.inc("numRecordsInErrors")
        if ctx.report_error is not None:
            ctx.report_error(err, row.to_pylist()[0])

    def run(batch: Batch) -> Iterator[Batch]:
        blamed = (FunctionError, RecordError)
        for out in by_halves(batch, attempt, refused, halves=Batch.halves, errors=blamed):
            yield from out

    return run
