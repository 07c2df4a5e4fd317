"""What slots print (``print`` sinks, user code), shown where an embedded cluster runs.

On a standing cluster it stays in the task managers' logs; here the user sits in front of
it. Slot logs are files below the cluster's folder; this follows them line by line.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S = 0.05
#: Of lines that wait for their end, no more than this is held.
_LONGEST_LINE = 1 << 16


class SlotOutput:
    """Follows ``<folder>/*/log/*.log`` on a thread until ``stop``, which drains first."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self._folder = folder
        self._out = out
        self._offsets: dict[Path, int] = {}
        self._partial: dict[Path, bytes] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-slot-output", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show what is left and end."""
        self._stopping.set()
        self._thread.join()
        self._drain(final=True)

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            self._drain(final=False)

    def _drain(self, *, final: bool) -> None:
        wrote = False
        for path in sorted(self._folder.glob("*/log/*.log")):
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets.get(path, 0))
                    data = file.read()
            except FileNotFoundError:
                continue  # its task manager is gone, and its folder with it
            if data:
                self._offsets[path] = self._offsets.get(path, 0) + len(data)
                data = self._partial.pop(path, b"") + data
                lines, newline, rest = data.rpartition(b"\n")
                if rest and (final or len(rest) > _LONGEST_LINE):
                    lines, newline, rest = data, b"\n", b""
                self._partial[path] = rest
                if lines:
                    self._out.write((lines + newline).decode(errors="replace"))
                    wrote = True
        if wrote:
            self._out.flush()
