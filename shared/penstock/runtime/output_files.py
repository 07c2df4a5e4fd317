"""Writes a slot's standard output and error to files of bounded size (``messages/slot_output.py``)."""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from penstock.messages.slot_output import MAX_BYTES, MAX_FILES, file_of

if TYPE_CHECKING:
    from pathlib import Path


class OutputFiles:
    """The files of this process; the newest one is file descriptor 1 and 2.

    Writes through Python keep the bound exactly. Other code (C libraries, helper processes) writes to the
    descriptors directly; for it the task manager keeps the bound: it empties a file that has grown beyond
    twice its size.
    """

    def __init__(
        self,
        first: Path,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        *,
        descriptors: tuple[int, int] = (1, 2),
    ) -> None:
        self._first = first
        self._descriptors = descriptors
        self._max_bytes = max(1, max_bytes)
        self._max_files = max(1, max_files)
        self._number = 0
        self._lock = threading.Lock()

    def take_over(self) -> None:
        """Makes the files this process's standard output and error."""
        self.open()
        # A child forked while another thread prints would inherit the held lock and wait for it for ever.
        os.register_at_fork(after_in_child=self._new_lock)
        for name in ("stdout", "stderr"):
            setattr(sys, name, self.text(self._descriptors[name == "stderr"]))

    def open(self) -> None:
        """Begin the first file."""
        self._first.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    def text(self, descriptor: int) -> io.TextIOWrapper:
        """A text stream that writes each line at once, as a whole."""
        below: Any = _Descriptor(self, descriptor)
        return io.TextIOWrapper(below, encoding="utf-8", errors="replace", line_buffering=True)

    def write(self, descriptor: int, data: memoryview) -> None:
        """Writes all of ``data``. A file ends with a whole line, unless a line is longer than a file."""
        with self._lock:
            while data:
                room = self._max_bytes - os.fstat(descriptor).st_size
                if len(data) <= room:
                    piece = data
                elif line_end := bytes(data[: max(room, 0)]).rfind(b"\n") + 1:
                    piece = data[:line_end]
                elif room == self._max_bytes:
                    piece = data[:room]  # The line is longer than a file, so it is cut.
                else:
                    self._number += 1
                    self._open()
                    continue
                data = data[os.write(descriptor, piece) :]

    def _open(self) -> None:
        path = file_of(self._first, self._number)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for descriptor in self._descriptors:
            os.dup2(made, descriptor)
        os.close(made)
        if self._number >= self._max_files:
            file_of(self._first, self._number - self._max_files).unlink(missing_ok=True)

    def _new_lock(self) -> None:
        self._lock = threading.Lock()


class _Descriptor(io.BufferedIOBase):
    """Standard output or error, below Python's text layer."""

    def __init__(self, files: OutputFiles, descriptor: int) -> None:
        self._files = files
        self._descriptor = descriptor

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._files.write(self._descriptor, view)
        return len(view)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False
