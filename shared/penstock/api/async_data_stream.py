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

    When the timeout of a record has passed, ``AsyncFunction.timeout`` gives its results.
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
        """Emit results in the order in which calls return; a result never crosses a watermark.

        Args:
            data_stream: The stream.
            async_function: An ``AsyncFunction``.
            timeout: Limit for the calls of a record together: a ``Time`` or ms; 0 for none.
            capacity: How many records may wait for their calls at a time.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
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
        """Emit results as ``unordered_wait`` does, and repeat calls.

        Args:
            data_stream: The stream.
            async_function: An ``AsyncFunction``.
            timeout: Limit for the calls of a record together: a ``Time`` or ms; 0 for none.
            async_retry_strategy: Decides which calls are repeated, and when.
            capacity: How many records may wait for their calls at a time.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
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
        """Emit results in the order of their records.

        Args:
            data_stream: The stream.
            async_function: An ``AsyncFunction``.
            timeout: Limit for the calls of a record together: a ``Time`` or ms; 0 for none.
            capacity: How many records may wait for their calls at a time.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
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
        """Emit results as ``ordered_wait`` does, and repeat calls.

        Args:
            data_stream: The stream.
            async_function: An ``AsyncFunction``.
            timeout: Limit for the calls of a record together: a ``Time`` or ms; 0 for none.
            async_retry_strategy: Decides which calls are repeated, and when.
            capacity: How many records may wait for their calls at a time.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
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
