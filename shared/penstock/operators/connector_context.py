"""A connector's view of the context of the operator that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceContext
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.operators.operator import OperatorContext
    from penstock.types.logical import Schema


def source_context(
    ctx: OperatorContext,
    *,
    schema: Schema,
    options: Mapping[str, str],
    projection: Sequence[int] = (),
    metadata: Sequence[str] = (),
    pushed: Mapping[str, Any] | None = None,
    on_error: Any = "fail",
    bad_record: Callable[[Exception, bytes | None, str], None] | None = None,
    bad_message: Callable[[Exception, bytes | None, str, Mapping[str, Any]], None] | None = None,
    parallelism: int | None = None,
) -> SourceContext:
    """The ``SourceContext`` of a connector that runs inside an operator with the context ``ctx``."""

    def fail(err: Exception, record: bytes | None, where: str) -> None:
        raise InternalError(f"a bad record where none can be: {err}", where=where)

    if ctx.run is None:
        raise InternalError("the operator's context has no helper thread", where=ctx.name)

    return SourceContext(
        job_id=ctx.job_id,
        uid=ctx.uid,
        subtask_index=ctx.subtask_index,
        parallelism=ctx.parallelism if parallelism is None else parallelism,
        attempt=ctx.attempt,
        options=options,
        schema=schema,
        projection=projection,
        metadata=metadata,
        pushed=pushed or {},
        config=ctx.config,
        metrics=ctx.metrics,
        on_error=on_error,
        run=ctx.run,
        now_ms=ctx.now_ms,
        bad_record=bad_record or fail,
        bad_message=bad_message,
        store=ctx.store,
        max_parallelism=ctx.max_parallelism,
    )
