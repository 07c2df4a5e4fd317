"""The last lines of a service's own log, kept in memory for readers who cannot see its stderr."""

from __future__ import annotations

import logging
from collections import deque

#: Bytes of lines that are kept.
KEPT_BYTES = 1024 * 1024


class KeptLines(logging.Handler):
    """``written_ms``: when the last line was written; 0 = none yet."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[bytes] = deque()
        self.size = 0
        self.written_ms = 0

    def attach(self) -> None:
        """From now on the process's log is kept as well, in the form that it has on stderr."""
        root = logging.getLogger()
        for known in root.handlers:
            self.setFormatter(known.formatter)
        root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record).encode("utf-8", "replace") + b"\n"
        self._lines.append(line)
        self.size += len(line)
        self.written_ms = int(record.created * 1000)
        while self.size > KEPT_BYTES and len(self._lines) > 1:
            self.size -= len(self._lines.popleft())

    def text(self) -> bytes:
        return b"".join(self._lines)
