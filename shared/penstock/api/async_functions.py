"""The functions of ``AsyncDataStream`` and the strategies that repeat their calls, under Flink's names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.api.functions import Function
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable


class AsyncFunction(Function):
    """Awaits something outside the job for each record, such as the response of a service."""

    async def async_invoke(self, value: Any) -> list[Any]:
        """The results for ``value``, any number of them. Must be an ``async def`` that does not block."""
        raise NotImplementedError

    def timeout(self, value: Any) -> list[Any]:
        """The results for ``value`` when its calls did not return within the timeout.

        Raises:
            TimeoutError: Always, unless it is overridden.
        """
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class AsyncRetryPredicate:
    """Decides which results and exceptions make the operator repeat a call."""

    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """A function of the results that says whether to call again; None: no result causes another call."""
        raise NotImplementedError

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """A function of the exception that says whether to call again; None: no exception causes another
        call."""
        raise NotImplementedError


class RetryPredicate(AsyncRetryPredicate):
    """A predicate made of the two functions ``result_predicate`` and ``exception_predicate``; each may be
    None."""

    def __init__(
        self,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        """As given."""
        return self._result_predicate

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """As given."""
        return self._exception_predicate


class AsyncRetryStrategy:
    """Decides how often a call is repeated, and after what pause. ``fixed_delay`` and ``exponential_backoff``
    make one."""

    def can_retry(self, current_attempts: int) -> bool:
        """Whether another call may follow the ``current_attempts`` so far."""
        raise NotImplementedError

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The pause before the next call, ms, after ``current_attempts`` calls."""
        raise NotImplementedError

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """The predicate that decides which results and exceptions cause another call."""
        raise NotImplementedError

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """No call is repeated."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Repeat up to ``max_attempts`` times, ``backoff_time_millis`` ms after the call before.

        Args:
            max_attempts: The most repetitions.
            backoff_time_millis: The pause before each, ms.
            result_predicate: Results → whether to call again; None: any result is good.
            exception_predicate: What the call raised → whether to call again; None: never.
        """
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> AsyncRetryStrategy:
        """Repeat up to ``max_attempts`` times, after pauses that grow.

        Args:
            max_attempts: The most repetitions.
            initial_delay: The first pause, ms.
            max_retry_delay: The longest pause, ms.
            multiplier: Each pause is so many times the one before.
            result_predicate: Results → whether to call again; None: any result is good.
            exception_predicate: What the call raised → whether to call again; None: never.
        """
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class NoRetryStrategy(AsyncRetryStrategy):
    """No call is repeated."""

    def can_retry(self, current_attempts: int) -> bool:
        """False."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """-1: there is no next call."""
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """A predicate that never asks for another call."""
        return RetryPredicate(None, None)


class _Repeated(AsyncRetryStrategy):
    def __init__(self, max_attempts: int, predicate: AsyncRetryPredicate) -> None:
        self._max_attempts: int = _positive("max_attempts", max_attempts)
        self._predicate = predicate

    def can_retry(self, current_attempts: int) -> bool:
        """Whether there were no more than ``max_attempts`` calls."""
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """The predicate made of the two functions that the constructor was given."""
        return self._predicate


class FixedDelayRetryStrategy(_Repeated):
    """As ``AsyncRetryStrategy.fixed_delay``, whose parameters it takes."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(max_attempts, RetryPredicate(result_predicate, exception_predicate))
        self._backoff_time_millis: int = _positive("backoff_time_millis", backoff_time_millis)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The fixed delay, whatever ``current_attempts`` is."""
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_Repeated):
    """As ``AsyncRetryStrategy.exponential_backoff``, whose parameters it takes."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(max_attempts, RetryPredicate(result_predicate, exception_predicate))
        self._initial_delay = _positive("initial_delay", initial_delay)
        self._max_retry_delay = _positive("max_retry_delay", max_retry_delay)
        self._multiplier = _positive("multiplier", multiplier)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The delay grows with ``current_attempts`` of this record alone: calls for other records do not
        lengthen it."""
        delay = self._initial_delay * self._multiplier ** max(0, current_attempts - 1)
        return int(min(delay, self._max_retry_delay))


NO_RETRY_STRATEGY: AsyncRetryStrategy = NoRetryStrategy()


def empty_result_predicate(result: list[Any]) -> bool:
    """Whether there are no results."""
    return not result


def has_exception_predicate(error: Exception | None) -> bool:
    """Whether there is an error at all."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Whether ``error`` is an ``expected_error_type``."""
    return isinstance(error, expected_error_type)


def _positive(name: str, value: Any) -> Any:
    if not value > 0:
        raise SpecError(f"{name} should be greater than zero", expected="> 0", got=repr(value))
    return value


class AsyncCall:
    """The coroutine that the operator awaits for a record: calls the function, repeats it and ends at the
    timeout.

    ``function``: an ``AsyncFunction``; ``timeout_ms``: the limit of all calls for a record together, 0 for
    none; ``strategy``: decides which calls are repeated, and when.
    """

    def __init__(self, function: Any, timeout_ms: int, strategy: AsyncRetryStrategy) -> None:
        self.function = function
        self.timeout_ms = timeout_ms
        self.strategy = strategy

    async def ask(self, record: Any) -> list[Any]:
        """The results for ``record``."""
        if self.timeout_ms <= 0:
            return await self._attempts(record)
        limit = asyncio.timeout(self.timeout_ms / 1000)
        try:
            async with limit:
                return await self._attempts(record)
        except TimeoutError:
            if not limit.expired():
                raise  # the function itself raised it
        return _results(self.function.timeout(record), "timeout")

    async def _attempts(self, record: Any) -> list[Any]:
        predicate = self.strategy.get_retry_predicate()
        poor, failed = predicate.result_predicate(), predicate.exception_predicate()
        attempts = 1
        while True:
            again = self.strategy.can_retry(attempts)
            try:
                result = _results(await self.function.async_invoke(record), "async_invoke")
                if not again or poor is None or not poor(result):
                    return result
            except Exception as err:
                if not again or failed is None or not failed(err):
                    raise
            await asyncio.sleep(max(0, self.strategy.get_backoff_time_millis(attempts)) / 1000)
            attempts += 1


def _results(result: Any, method: str) -> list[Any]:
    if result is None:
        raise ValueError(
            f"The result of AsyncFunction cannot be none: {method} returned None; return [] for no result"
        )
    if not isinstance(result, list):
        raise TypeError(
            f"The result of AsyncFunction should be of list type: {method} returned {type(result).__name__}"
        )
    return result
