"""Unix sockets at any path, however long."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of a path that a Unix socket's address holds, without the zero at its end.
MAX_ADDRESS_BYTES = 107 if sys.platform == "linux" else 103


@contextmanager
def unix_address(path: str) -> Iterator[str]:
    """What to bind or connect to for the socket at ``path``, while the context lasts.

    This is the path itself if an address holds it. Otherwise it is the socket's name below the descriptor of its
    folder, or, on a system without such descriptors (macOS), below a link to the folder. Raises OSError if there is
    no such folder.
    """
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield path
        return
    folder, name = os.path.split(path)
    if not hasattr(os, "O_PATH"):
        os.stat(folder)
        with tempfile.TemporaryDirectory(prefix="ps", dir="/tmp") as short:
            os.symlink(os.path.abspath(folder), f"{short}/f")
            yield f"{short}/f/{name}"
        return
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)
