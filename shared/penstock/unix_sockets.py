"""Unix sockets at any path, however long."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of a path that a Unix socket's address holds, without the zero at its end.
MAX_ADDRESS_BYTES = 107


@contextmanager
def unix_address(path: str) -> Iterator[str]:
    """What to bind or connect to for the socket at ``path``, while the context lasts: the path
    itself, or its name below the descriptor of its folder when an address does not hold it.
    OSError when there is no such folder."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield path
        return
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)
