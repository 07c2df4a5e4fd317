"""A file that is being written, as formats take it."""

from __future__ import annotations

from typing import Any


class CountingFile:
    """A file object for pyarrow that wraps a file opened by a ``Files`` port and counts the bytes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append ``data``; return the number of its bytes."""
        self._handle.write(data)
        size = memoryview(data).nbytes
        self.written += size
        return size

    def tell(self) -> int:
        """The number of bytes written."""
        return self.written

    def flush(self) -> None:
        """Does nothing: the handle flushes when it is closed."""

    def readable(self) -> bool:
        """False: the file is only written."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False: the file is written from its start to its end."""
        return False

    def close(self) -> None:
        """Close the handle, once."""
        if not self.closed:
            self.closed = True
            self._handle.close()
