"""glibc's allocator, told to keep what a checkpoint or a batch frees for the next one."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: What glibc itself goes up to, once blocks as large as that were freed; and twice that.
_FROM_HEAP_BYTES, _KEPT_BYTES = 32 << 20, 64 << 20


def keep_freed_memory() -> None:
    """Arrays up to 32 MiB come from the heap, of whose end up to 64 MiB are kept when they are
    free: else every copy of changed state pays for fresh pages (twice what copying costs).
    Other C libraries have no such setting. A forked child inherits it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
