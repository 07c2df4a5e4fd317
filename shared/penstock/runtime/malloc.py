"""Tells glibc's allocator to keep memory that a checkpoint or a batch frees for the next one."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: The largest limit that glibc itself sets when large blocks are freed.
_FROM_HEAP_BYTES = 32 << 20
_NEVER = -1


def keep_freed_memory() -> None:
    """Lets arrays up to 32 MiB come from the heap, which then does not shrink by itself. Otherwise every copy
    of changed state would pay for fresh pages (twice the cost of copying), and some step would pay for giving
    back the memory of a whole snapshot (20 ms at 10 million keys). ``release_memory`` gives memory back where
    that matters. Other C libraries have no such setting. A forked child inherits the setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
