"""What slots print (``print`` sinks, user code), shown where an embedded cluster runs.

On a standing cluster ``penstock logs`` fetches it; here the user sits in front of it. What slots
print is in files below the cluster's folder; this follows them line by line, and removes those that
are shown and full: the slots, which keep many here, need not throw any away.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from penstock.messages.slot_output import numbered

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S = 0.05
#: Of lines that wait for their end, no more than this is held.
_LONGEST_LINE = 1 << 16
#: Read at once.
_PIECE_BYTES = 1 << 20
LOST = "[what a slot printed here is lost: it came faster than it could be shown]\n"


@dataclass
class _Followed:
    """How far the output of one slot process is shown: file number, bytes of it, and the start of a
    line whose end has not come."""

    number: int = 0
    offset: int = 0
    partial: bytes = b""


class SlotOutput:
    """Follows the slots' files in ``<folder>/*/log`` on a thread until ``stop``, which drains first."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self._folder = folder
        self._out = out
        self._followed: dict[str, _Followed] = defaultdict(_Followed)
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
        found: dict[str, dict[int, Path]] = defaultdict(dict)
        for path in self._folder.glob("*/log/*.log"):
            if named := numbered(path.name):
                found[named[0]][named[1]] = path
        for stem, paths in sorted(found.items()):
            followed = self._followed[stem]
            for number, path in sorted(paths.items()):
                if number < followed.number:
                    continue
                if number > followed.number:
                    self._begin(followed, number, lost=followed.number not in paths)
                self._show(followed, path)
                if number < max(paths):
                    self._begin(followed, number + 1)
                    path.unlink(missing_ok=True)
            if final and followed.partial:
                self._write(followed.partial + b"\n")
                followed.partial = b""

    def _begin(self, followed: _Followed, number: int, *, lost: bool = False) -> None:
        if lost:
            self._write(followed.partial + b"\n" if followed.partial else b"")
            followed.partial = b""
            self._out.write(LOST)
        followed.number, followed.offset = number, 0

    def _show(self, followed: _Followed, path: Path) -> None:
        """All that the file holds now, but for a line that has no end yet."""
        try:
            with path.open("rb") as file:
                file.seek(followed.offset)
                while data := file.read(_PIECE_BYTES):
                    followed.offset += len(data)
                    lines, newline, rest = (followed.partial + data).rpartition(b"\n")
                    if len(rest) > _LONGEST_LINE:
                        lines, newline, rest = lines + newline + rest, b"\n", b""
                    followed.partial = rest
                    self._write(lines + newline)
        except FileNotFoundError:
            return  # its task manager is gone, and its folder with it

    def _write(self, data: bytes) -> None:
        if data:
            self._out.write(data.decode(errors="replace"))
            self._out.flush()
