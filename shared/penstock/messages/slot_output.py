"""Names of the files with what a slot prints: ``<stem>.log``, ``<stem>.1.log``, ``<stem>.2.log`` …

``<stem>`` is ``<job>.<allocation>-<n>`` for slot process n. The process writes to the newest file; when
that is full, it begins the next one and removes the oldest. A file never changes its name, so that a
reader who knows its number and how far it has read goes on there.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Of one file, and how many of them are kept, unless told otherwise.
MAX_BYTES, MAX_FILES = 16 * 1024 * 1024, 4
#: A stem ends with the number of its process.
_NAME = re.compile(r"(.*-\d+)(?:\.(\d+))?\.log")


def numbered(name: str) -> tuple[str, int] | None:
    """(stem, number) of a file's name; None if it is not one of a slot's output."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2] or 0)) if found else None


def file_of(first: Path, number: int) -> Path:
    """``first``: ``<stem>.log``."""
    return first if number == 0 else first.with_name(f"{first.name.removesuffix('.log')}.{number}.log")


def newest(first: Path) -> Path:
    """The file that is written to. ``first``: ``<stem>.log``, which may be gone by now."""
    stem = first.name.removesuffix(".log")
    numbers = [found[1] for path in first.parent.glob(f"{stem}*.log") if (found := numbered(path.name))
               and found[0] == stem]  # fmt: skip
    return file_of(first, max(numbers, default=0))
