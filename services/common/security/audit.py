"""The audit log: who did what, when, from where, and with what result. A line of JSON each, or log events."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from penstock.errors import SpecError
from penstock.log_events import EventLog
from penstock.redaction import without_credentials

_log = EventLog("penstock.audit")


class Audit:
    """Writes events of the audit log. ``path``: a file that is opened again when a log rotation has moved it; empty:
    the events go to the service's own log."""

    def __init__(self, path: str, where: str) -> None:
        self._file: WatchedFileHandler | None = None
        if not path:
            return
        try:
            self._file = WatchedFileHandler(path, encoding="utf-8")
        except OSError as err:
            raise SpecError(
                "the audit log cannot be written", expected="a file in a folder that may be written to",
                got=err.strerror or str(err), where=f"{where}: {path}",
            ) from None  # fmt: skip
        self._file.setFormatter(logging.Formatter("%(message)s"))

    def write(self, *, refused: bool, **fields: Any) -> None:
        """Write about a request. Bodies, query strings and tokens never are among the fields."""
        if self._file is not None:
            self._line("request_refused_to_client" if refused else "request_audited", fields)
        elif refused:
            _log.info("request_refused_to_client", **fields)
        else:
            _log.info("request_audited", **fields)

    def _line(self, event: str, fields: dict[str, Any]) -> None:
        assert self._file is not None
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"timestamp": now, "event": event, **fields}, ensure_ascii=True, default=str)
        self._file.emit(logging.makeLogRecord({"msg": without_credentials(line)}))

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
