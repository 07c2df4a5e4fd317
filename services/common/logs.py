"""Logging of a service: structlog to stderr, one line for each event, as key=value or JSON.

``PENSTOCK_LOG_FORMAT`` is ``text`` (default) or ``json``; ``PENSTOCK_LOG_LEVEL`` is a level. Records of the
standard ``logging`` (libraries, ``penstock.*``) take the same way; those of ``penstock.log_events`` keep
their fields separate.
"""

from __future__ import annotations

import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any

from penstock.log_events import LogEvent
from penstock.redaction import without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from pathlib import Path

#: Bytes of a service's log file; after that another file follows.
FILE_BYTES = 8 * 1024 * 1024

#: Control characters come from requests: in a terminal they would act, and a file with a NUL counts as binary.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}

if "rich" not in sys.modules:
    # structlog imports rich, if it is installed, for a coloured console that no service uses. That took a
    # quarter of a service's start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog


def configure(role: str, service_id: str, *, traced: bool = False) -> structlog.stdlib.BoundLogger:
    """The service's logger; every line carries ``role`` and ``id``. ``traced``: a line about a job carries the id of the
    job's trace as ``trace_id``."""
    level = logging.getLevelNamesMapping().get(
        os.environ.get("PENSTOCK_LOG_LEVEL", "INFO").upper(), logging.INFO
    )

    def who(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "id": service_id, **event}

    def apart(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        record = event.get("_record")
        if record is not None and isinstance(record.msg, LogEvent):
            return {**event, **record.msg.fields, "event": record.msg.name}
        return event

    def with_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        return {**event, "trace_id": event["job_id"]} if traced and event.get("job_id") else event

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        who,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if os.environ.get("PENSTOCK_LOG_FORMAT") == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "role", "id", "event"], drop_missing=True
        )
    )
    handler = logging.StreamHandler(sys.stderr)

    def rendered(logger: Any, method: str, event: Any) -> str:
        return without_credentials(renderer(logger, method, event)).translate(_ESCAPED)

    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, apart],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                with_trace,
                rendered,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("nats").setLevel(logging.ERROR)  # our own transport logs what matters
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(f"penstock.{role}")
    return logger


def also_into(path: Path) -> None:
    """Writes the same lines into a file of bounded size too, for readers who cannot see this process's
    stderr."""
    root = logging.getLogger()
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8", errors="replace"
    )
    for known in root.handlers:
        handler.setFormatter(known.formatter)
    root.addHandler(handler)
