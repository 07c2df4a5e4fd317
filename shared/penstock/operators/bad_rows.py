"""``on-error`` for operators that process whole batches. Halving the batch finds the rows that fail.

Only a row whose own value or whose user function causes the error is left out. An internal or external error
fails the task under every policy.
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
    """``apply`` with the ``on-error`` policy: rows that raise FunctionError or RecordError are left out and reported.

    ``apply`` must treat each row independently, because it is repeated for parts of a batch.
    """
    if on_error == "fail":
        return apply

    def attempt(part: Batch) -> list[Batch]:
        # All outputs are collected before one is emitted, so that a failed part emits nothing twice.
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
