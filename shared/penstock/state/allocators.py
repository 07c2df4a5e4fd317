"""Memory that was freed, given back to the system.

Allocators keep what is freed for what comes next. Where a lot of state moved to the disk,
that would be most of what the move was for.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import pyarrow as pa


def release_memory() -> None:
    """Some milliseconds, by how much is given back."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    """glibc's; other C libraries have none, and keep less."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
