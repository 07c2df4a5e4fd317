"""glibc's allocator, told to keep what a checkpoint or a batch frees for the next one."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: What glibc itself goes up to, once blocks as large as that were freed.
_FROM_HEAP_BYTES = 32 << 20
_NEVER = -1


def keep_freed_memory() -> None:
    """Arrays up to 32 MiB come from the heap, which does not shrink by itself: else every copy
    of changed state pays for fresh pages (twice what copying costs), and some step for giving
    back what a whole snapshot took (20 ms at 10 million keys). See ``release_memory`` for
    when it matters. Other C libraries have no such setting. A forked child inherits it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
