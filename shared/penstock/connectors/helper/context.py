"""A connector's context in a helper process, and its reports to the slot."""

from __future__ import annotations

import asyncio
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceContext, TableInfo
from penstock.connectors.helper.messages import Bad, Failed, Metrics, Open
from penstock.errors import PenstockError, RecordError, error_from_dict
from penstock.metrics import MetricGroup

if TYPE_CHECKING:
    from collections.abc import Callable

#: The shortest time between two reports of gauges, in seconds.
_GAUGES_S = 1.0


class HelperContext:
    """Makes the ``SourceContext`` of ``message``; ``send`` takes messages to the slot. There is no object
    store in a helper process: ``store`` is None."""

    def __init__(self, message: Open, send: Callable[[Any], None]) -> None:
        self._send = send
        self._on_error = message.on_error
        self._pool = ThreadPoolExecutor(1, "penstock-helper")
        self._metrics = MetricGroup()
        self._told: dict[str, int] = {}
        self._gauges_at = 0.0
        self.table = TableInfo(message.schema, message.options, message.format)
        self.source = SourceContext(
            job_id=message.job_id, uid=message.uid, subtask_index=message.subtask_index,
            parallelism=message.parallelism, attempt=message.attempt, options=message.options,
            schema=message.schema, projection=message.projection, metadata=message.metadata,
            pushed=message.pushed, config=message.config, metrics=self._metrics, on_error=message.on_error,
            run=self._run, now_ms=lambda: time.time_ns() // 1_000_000, bad_record=self._bad_record,
            batch_rows=message.batch_rows, gathered=message.gathered,
        )  # fmt: skip

    async def _run(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _bad_record(self, error: Exception, record: bytes | None, where: str) -> None:
        """Reports the record to the slot, which counts it and keeps it or fails. In this process only the
        policy 'fail' has an effect: it stops the reading."""
        known = error.to_dict() if isinstance(error, PenstockError) else {"message": str(error)}
        self._send(Bad(error=known, record=record, where=where))
        if self._on_error == "fail":
            raise error

    def tell_metrics(self) -> None:
        """Send the metrics that have changed since the last report."""
        counters = {k: v - self._told.get(k, 0) for k, v in self._metrics.counters.items()}
        grown = {k: v for k, v in counters.items() if v}
        now = time.monotonic()
        gauges: dict[str, float | int | None] = {}
        if self._metrics.gauges and now - self._gauges_at >= _GAUGES_S:
            self._gauges_at = now
            gauges = {name: read() for name, read in self._metrics.gauges.items()}
        if grown or gauges:
            self._told = dict(self._metrics.counters)
            self._send(Metrics(counters=grown, gauges=gauges))


def report(message: Bad | Metrics, ctx: SourceContext) -> None:
    """Runs in the slot: applies a report of the helper's context. Raises the error of a bad record if the
    policy says so."""
    if isinstance(message, Bad):
        known = message.error
        error = error_from_dict(known) if "type" in known else RecordError(known["message"])
        ctx.bad_record(error, message.record, message.where)
        return
    for name, by in message.counters.items():
        ctx.metrics.inc(name, by)
    for name, value in message.gauges.items():
        ctx.metrics.gauge(name, lambda value=value: value)  # type: ignore[misc]


def failure(err: BaseException, call: int | None = None) -> Failed:
    """The message that tells the slot why a call, or the part, failed."""
    text = "".join(traceback.format_exception(err))
    known = err.to_dict() if isinstance(err, PenstockError) else {"message": f"{type(err).__name__}: {err}"}
    return Failed(call=call, error=known, traceback=text)
