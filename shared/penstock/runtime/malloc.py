"""Tells glibc's allocator to keep memory that a checkpoint or a batch frees for the next one."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: The limit that glibc itself reaches, once blocks as large as that were freed.
_FROM_HEAP_BYTES = 32 << 20
_NEVER = -1


def keep_freed_memory() -> None:
    """Arrays up to 32 MiB come from the heap, which does not shrink by itself. Otherwise every copy of
    changed state pays for fresh pages (twice what copying costs), and some step pays for giving back the
    memory of a whole snapshot (20 ms at 10 million keys). See ``release_memory`` for when it matters.
    Other C libraries have no such setting. A forked child inherits it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
