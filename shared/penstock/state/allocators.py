"""Returns freed memory to the operating system.

Allocators keep freed memory for later requests. After much state has moved to the disk, that would be most
of the memory that the move was meant to free.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import pyarrow as pa


def release_memory() -> None:
    """Returns the free memory of Arrow's pool and of the C library. Takes some milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    """glibc's ``malloc_trim``; None with other C libraries, which keep less memory."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
