"""The report of a Spark query for REST: its stages and its log, stored as an object beside the job.

There is one object for each query, replaced while it runs, so the report outlives the job and the machine.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import PenstockError
from penstock.log_events import EventLog
from penstock.messages.layout import spark_report_key
from penstock.messages.spark import Progress, SparkReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.operators.operator import OperatorContext

_log = EventLog("penstock.runtime.spark")
_EVERY_S = 2.0
_LOG_BYTES = 32_768


class LogTail:
    """The last 32 KiB of the text that is appended to a file from now on."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._from = self._path.stat().st_size if self._path.exists() else 0

    def text(self) -> str:
        """The text, beginning with a whole line."""
        if not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            start = min(max(self._from, size - _LOG_BYTES), size)
            file.seek(start)
            text = file.read().decode(errors="replace")
        # The first line is left out, because it may be cut.
        return text if start == self._from else text.partition("\n")[2]


class Reporter:
    """Writes the report of one query. ``logs``: of the driver, and of the Spark beside it."""

    def __init__(self, ctx: OperatorContext, logs: Iterable[LogTail]) -> None:
        self._ctx, self._logs = ctx, tuple(logs)
        self._key = spark_report_key(ctx.job_id, ctx.uid)
        self._written: bytes | None = None

    async def run(self, current: Callable[[], Progress]) -> None:
        """Writes the report periodically until cancelled."""
        while True:
            await self.write(current())
            await asyncio.sleep(_EVERY_S)

    async def write(self, progress: Progress) -> None:
        """Writes the report if it has changed. A failure of the store loses the report and does not fail the
        job."""
        if self._ctx.store is None:
            return
        report = SparkReport(
            operator=self._ctx.name,
            attempt=self._ctx.attempt,
            progress=progress,
            log="".join(tail.text() for tail in self._logs),
        )
        data = msgspec.json.encode(report)
        if data == self._written:
            return
        try:
            await self._ctx.store.put(self._key, data)
        except PenstockError as err:
            _log.warning("spark_report_not_stored", error=err.message)
        else:
            self._written = data
