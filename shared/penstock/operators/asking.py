"""Operators that await a response in the middle of a batch while other tasks of the slot run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.operators.drivers import PausingOperator
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from penstock.operators.operator import Output


class AskingOperator(PausingOperator):
    """An operator whose ``process`` may await a coroutine: ``answer = yield from self.ask(coroutine)``.

    The task waits for the response, so the order of rows, watermarks and barriers does not change.
    """

    _request: asyncio.Task[Any] | None = None

    def ready(self) -> bool:
        return self._request is None or self._request.done()

    async def wait_ready(self) -> None:
        """Wait until the request is done. ``ask`` raises the request's error, this method does not."""
        if self._request is not None:
            await asyncio.wait([self._request])

    def ask(self, question: Coroutine[Any, Any, Any]) -> Generator[Output, None, Any]:
        """Await ``question`` from within ``process`` (``yield from``); return its result or raise its error."""
        self._request = asyncio.ensure_future(question)
        while not self._request.done():
            yield Batch.empty(self.ctx.output_schema)
        request, self._request = self._request, None
        return request.result()

    async def stop(self) -> None:
        if self._request is not None:
            self._request.cancel()
            await asyncio.gather(self._request, return_exceptions=True)


class Failed:
    """Stands for the result of a call that raised ``error``."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def each(call: Any, rows: list[tuple[Any, ...]], *, at_once: int, timeout_s: float) -> list[Any]:
    """The results of ``await call(*row)`` for every row, in order; at most ``at_once`` calls run at a time.

    A call that raises, or takes longer than ``timeout_s`` seconds, gives a ``Failed`` in its place.
    """
    out: list[Any] = [None] * len(rows)
    todo = iter(range(len(rows)))

    async def worker() -> None:
        for i in todo:
            try:
                async with asyncio.timeout(timeout_s):
                    out[i] = await call(*rows[i])
            except TimeoutError as err:
                text = f"no answer within {timeout_s:g} s" if not err.args else str(err)
                out[i] = Failed(TimeoutError(text))
            except Exception as err:
                out[i] = Failed(err)

    await asyncio.gather(*(worker() for _ in range(min(at_once, len(rows)))))
    return out
