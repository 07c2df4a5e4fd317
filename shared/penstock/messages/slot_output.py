"""Names of the files that hold the output of a slot: ``<stem>.log``, ``<stem>.1.log``, ``<stem>.2.log`` …

``<stem>`` is ``<job>.<allocation>-<n>`` for slot process n. The process writes to the newest file. When
that file is full, the process begins the next one and removes the oldest. A file keeps its name, so that a
reader can continue from a file's number and an offset.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Defaults: the size of one file, and the number of files that are kept.
MAX_BYTES, MAX_FILES = 16 * 1024 * 1024, 4
#: A stem ends with the number of its process.
_NAME = re.compile(r"(.*-\d+)(?:\.(\d+))?\.log")


def numbered(name: str) -> tuple[str, int] | None:
    """(stem, number) of a file's name, or None if it is not the name of such a file."""
    found = _NAME.fullmatch(name)
    return (found[1], int(found[2] or 0)) if found else None


def file_of(first: Path, number: int) -> Path:
    """The path of file ``number``. ``first`` is the path of ``<stem>.log``."""
    return first if number == 0 else first.with_name(f"{first.name.removesuffix('.log')}.{number}.log")


def newest(first: Path) -> Path:
    """The path of the file to which the process writes. ``first`` is the path of ``<stem>.log``, which may be
    removed."""
    stem = first.name.removesuffix(".log")
    numbers = [found[1] for path in first.parent.glob(f"{stem}*.log") if (found := numbered(path.name))
               and found[0] == stem]  # fmt: skip
    return file_of(first, max(numbers, default=0))
