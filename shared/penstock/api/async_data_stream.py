"""``AsyncDataStream``: asynchronous functions over a stream."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from penstock.api.async_functions import NO_RETRY_STRATEGY, AsyncCall, AsyncRetryStrategy
from penstock.api.common import duration_us
from penstock.api.datastream import DataStream
from penstock.api.process_steps import output_schema, policy
from penstock.api.transformations import Compiler, Transformation, transform
from penstock.errors import SpecError
from penstock.jobgraph.specs import AsyncWaitSpec

if TYPE_CHECKING:
    from penstock.types import logical as t


class AsyncDataStream:
    """Applies an ``AsyncFunction`` to a stream. Many calls run at a time; a record is kept in state until its
    call has returned.

    Each method takes the stream, the function, how long the calls for a record may take together (``timeout``: a
    ``Time`` or ms; 0 for as long as it takes; then ``AsyncFunction.timeout`` gives the results), how many records may wait
    for their answers at a time (``capacity``), and ``output_type`` and ``on_error`` as in ``DataStream.map``.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Any,
        capacity: int = 100,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits results in the order in which calls return; a result never crosses a watermark."""
        return _step(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, on_error, False
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """As ``unordered_wait``; ``async_retry_strategy`` says which calls are repeated."""
        return _step(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, on_error, False
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Any,
        capacity: int = 100,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """Emits results in the order of their records."""
        return _step(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, on_error, True
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Any,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """As ``ordered_wait``; ``async_retry_strategy`` says which calls are repeated."""
        return _step(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, on_error, True
        )


def _step(
    stream: DataStream,
    function: Any,
    timeout: Any,
    strategy: AsyncRetryStrategy,
    capacity: int,
    output_type: t.LogicalType | None,
    on_error: str,
    ordered: bool,
) -> DataStream:
    invoke = getattr(function, "async_invoke", None)
    if not inspect.iscoroutinefunction(invoke):
        raise SpecError(
            f"async_invoke of {type(function).__name__} is no coroutine function",
            expected="an AsyncFunction whose method async_invoke is an 'async def'",
            got=repr(invoke),
        )
    if not isinstance(capacity, int) or capacity < 1:
        raise SpecError("not a capacity", expected=">= 1", got=repr(capacity))
    timeout_ms = duration_us(timeout, "timeout") // 1_000
    if strategy is None or strategy.get_retry_predicate() is None:
        raise SpecError("no retry strategy", expected="AsyncRetryStrategy.fixed_delay(…)", got=repr(strategy))
    if strategy is not NO_RETRY_STRATEGY and timeout_ms <= 0:
        raise SpecError(
            "repeated calls without a timeout",
            expected="timeout > 0, for all calls together",
            got=repr(timeout),
        )
    on_error = policy(on_error)
    call = AsyncCall(function, timeout_ms, strategy)

    def spec(step: Transformation, compiler: Compiler) -> AsyncWaitSpec:
        return AsyncWaitSpec(
            function=compiler.function(call, "async"),
            ordered=ordered,
            capacity=capacity,
            on_error=on_error,  # type: ignore[arg-type]
        )

    schema = output_schema(function, output_type, "async_invoke")
    step = transform(spec, (stream._step,), schema, "Async Wait")
    return DataStream(stream._env, step)
