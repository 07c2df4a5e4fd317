"""The log files of a task manager: the output of its slots, and its own log. Listed, read in pieces,
bounded."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from pathlib import Path

from penstock.errors import SpecError
from penstock.messages.slot_output import newest, numbered
from penstock.messages.task_manager import LogFile, LogPiece

#: The task manager's own log.
OWN = "taskmanager.log"
#: How many ended slots' output is kept, and how many bytes of it.
ENDED_KEPT, ENDED_KEPT_BYTES = 100, 1024**3
#: Bytes of a piece: base64 makes it a third larger, and the message stays below 256 KiB.
MAX_PIECE_BYTES = 128 * 1024


def log_files(folder: Path) -> list[LogFile]:
    """The files, the one that was written last at the end."""
    found = []
    for entry in os.scandir(folder):
        try:
            stat = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # removed since it was listed
        if entry.is_file(follow_symlinks=False):
            found.append(
                (
                    stat.st_mtime_ns,
                    LogFile(name=entry.name, size=stat.st_size, mtime_ms=stat.st_mtime_ns // 10**6),
                )
            )
    return [file for _, file in sorted(found, key=lambda f: (f[0], numbered(f[1].name) or ("", 0)))]


def log_piece(folder: Path, name: str, offset: int, limit: int) -> LogPiece:
    """At most ``limit`` bytes from ``offset``. Raises SpecError if there is no such file."""
    # The name must be in the list, so that it cannot be a path to another folder.
    if all(file.name != name for file in log_files(folder)):
        raise SpecError(
            "there is no such log file",
            expected="a name of GET /taskmanagers/{id}/logs",
            got=repr(name[:255]),
            remedy="it may have been removed: of what slots print, the newest files are kept",
        )
    with os.fdopen(_opened(folder / name, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(offset)
        data = file.read(max(0, min(limit, MAX_PIECE_BYTES)))
    return LogPiece(data=data, size=max(size, offset + len(data) if data else 0))


def forget_outputs(folder: Path, running: frozenset[str]) -> None:
    """Removes the output of slots that ended long ago: everything beyond ``ENDED_KEPT`` slots or
    ``ENDED_KEPT_BYTES`` bytes. ``running``: the stems of slots that run."""
    ended: dict[str, list[LogFile]] = defaultdict(list)
    for file in reversed(log_files(folder)):
        named = numbered(file.name)
        if named is not None and named[0] not in running:
            ended[named[0]].append(file)
    total = 0
    for kept, files in enumerate(ended.values()):
        total += sum(file.size for file in files)
        if kept >= ENDED_KEPT or total > ENDED_KEPT_BYTES:
            for file in files:
                (folder / file.name).unlink(missing_ok=True)


def emptied(first: Path, max_bytes: int) -> int:
    """Empties the file to which a slot writes, if it has grown beyond twice ``max_bytes``; only code that
    writes past Python can cause that. Returns the number of bytes that were removed; 0: none."""
    try:
        descriptor = _opened(newest(first), os.O_WRONLY)
    except FileNotFoundError:
        return 0
    except OSError as err:
        if err.errno != errno.ELOOP:
            raise
        return 0
    try:
        size = os.fstat(descriptor).st_size
        if size <= 2 * max_bytes:
            return 0
        os.truncate(descriptor, 0)
    finally:
        os.close(descriptor)
    return size


def _opened(path: Path, how: int) -> int:
    """A descriptor of a file. A link is refused with ELOOP: a slot may write into the folder, and could set one to a
    file that it may not touch itself. A FIFO does not hold the task manager up."""
    return os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK)
