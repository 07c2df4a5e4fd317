"""``on-error`` of operators that work on whole batches: the row that fails is found by halves.

Only what the row or a user's function is to blame for is left out; an error of ours, or of
the world outside, fails the task whatever the policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import FunctionError, RecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.operators.operator import OperatorContext
    from penstock.types.batch import Batch


def leaving_out(
    ctx: OperatorContext, on_error: str, apply: Callable[[Batch], Iterator[Batch]]
) -> Callable[[Batch], Iterator[Batch]]:
    """``apply``, a function of single rows, with the policy around it."""
    if on_error == "fail":
        return apply

    def run(batch: Batch) -> Iterator[Batch]:
        try:
            # All of it before any is passed on: else a half would be passed on twice.
            out = list(apply(batch))
        except (FunctionError, RecordError) as err:
            if batch.num_rows == 1:
                ctx.metrics.inc("numRecordsInErrors")
                if ctx.report_error is not None:
                    ctx.report_error(err, batch.to_pylist()[0])
                return
            half = batch.num_rows // 2
            yield from run(batch.slice(0, half))
            yield from run(batch.slice(half))
        else:
            yield from out

    return run
