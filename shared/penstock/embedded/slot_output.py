"""Shows the output of slots (``print`` sinks, user code) where an embedded cluster runs.

For a standing cluster ``penstock logs`` fetches that output. Here the user sits in front of the cluster,
so this module follows the files below the cluster's folder line by line. It removes files that are full
and shown; the slots of an embedded cluster keep so many files that they need not remove any.
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
#: Bytes of a line without an end that are held; a longer one is shown with a line break.
_LONGEST_LINE = 1 << 16
#: Bytes that are read at once.
_PIECE_BYTES = 1 << 20
LOST = "[what a slot printed here is lost: it came faster than it could be shown]\n"


@dataclass
class _Followed:
    """How much of one slot process's output has been shown: the number of its file, the bytes of that file,
    and the start of a line whose end has not been written yet."""

    number: int = 0
    offset: int = 0
    partial: bytes = b""


class SlotOutput:
    """Follows the files in ``<folder>/*/log`` on a thread and writes them to ``out``, until ``stop``."""

    def __init__(self, folder: Path, out: TextIO) -> None:
        self._folder = folder
        self._out = out
        self._followed: dict[str, _Followed] = defaultdict(_Followed)
        self._stopping = threading.Event()
        self._draining = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="penstock-slot-output", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Shows the rest of the output and ends the thread."""
        self._stopping.set()
        self._thread.join()
        self._drain(final=True)

    def catch_up(self) -> None:
        """Shows all whole lines that were written before this call."""
        self._drain(final=False)

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            self._drain(final=False)

    def _drain(self, *, final: bool) -> None:
        with self._draining:
            self._show_new(final=final)

    def _show_new(self, *, final: bool) -> None:
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
        """Shows what the file holds now, except for a last line without an end."""
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
            return  # the task manager has ended, and its folder has been removed

    def _write(self, data: bytes) -> None:
        if data:
            self._out.write(data.decode(errors="replace"))
            self._out.flush()
