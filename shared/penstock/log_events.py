"""Log events: a stable name that can be searched for, and fields.

    _log = EventLog("penstock.taskmanager.spark")
    _log.info("spark_server_started", server_pid=pid, port=port)

gives the line ``spark_server_started server_pid=4711 port=15002``. The services' formatter
(``services/common/logs.py``) takes name and fields apart, for key=value lines and for JSON;
any other handler of ``logging`` shows the line. ``docs/logs.md`` lists every event, and a test
holds that page to the code.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol


class LogEvent:
    """The message of a ``logging`` record: ``str()`` of it is the line."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={_quoted(value)}" for key, value in self.fields.items())])


class Log(Protocol):
    """How tasks and state log: the slot passes the event on to its task manager."""

    def __call__(self, level: str, event: str, /, **fields: Any) -> None: ...


class EventLog:
    """A logger of ``logging`` that takes an event's name and its fields.

    ``exc_info`` is not a field: as in ``logging``, it adds the traceback of an exception.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, event, None, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._write(logging.INFO, event, None, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, /, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, event, exc_info, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Inside an ``except`` block: an error with the traceback of what is being handled."""
        self._write(logging.ERROR, event, True, fields)

    def log(self, level: str, event: str, /, **fields: Any) -> None:
        """``level``: by its name, as a :class:`Log` takes it."""
        self._write(logging.getLevelNamesMapping()[level.upper()], event, None, fields)

    def _write(
        self, level: int, event: str, exc_info: BaseException | bool | None, fields: dict[str, Any]
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, LogEvent(event, fields), exc_info=exc_info, stacklevel=3)


def _quoted(value: Any) -> str:
    """As logfmt has it: quotes where a reader could not tell where the value ends."""
    text = str(value)
    if text and not any(c in text for c in ' "=\n'):
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
