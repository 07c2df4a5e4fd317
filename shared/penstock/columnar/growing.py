"""Arrays that grow without being copied, and so without a pause however long they are.

A long array lies at the start of address space that is reserved for it, which costs
nothing until it is touched: growing is a longer view of the same memory.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np

FIRST = 1024
#: Arrays of so many bytes are given address space of their own …
_RESERVED_FROM = 1 << 20
#: … this much of it: 2^31 slots of 8 bytes.
_SPACE_BYTES = 1 << 34
#: … of which what lies behind so many bytes comes in pages of 2 MiB, if the system has
#: some: memory is then there three times as fast. What is short takes no more than it needs.
_HUGE_FROM = 16 << 20
#: Growing fills at most about so many items at a time.
_STEP = 1 << 18
#: From Linux' mman.h: the space counts as used only where it is touched.
_MAP_NORESERVE = 0x4000


class _Space(mmap.mmap):
    """Reserved address space; ``used``: items of the array in it."""

    used: int


def zeros(length: int, dtype: type) -> np.ndarray:
    """Zeros, in huge pages if they are many; they cost nothing until they are touched."""
    kind = np.dtype(dtype)
    space = _reserved(length * kind.itemsize) if length * kind.itemsize > _HUGE_FROM else None
    return np.zeros(length, kind) if space is None else np.frombuffer(space, kind)[:length]


def grown(array: np.ndarray, size: int, fill: object = 0) -> np.ndarray:
    """``array`` itself if it has ``size`` items, else a longer one: the same memory for a
    long array, which the old view goes on sharing; a copy for a short one."""
    old = len(array)
    if old >= size:
        return array
    space = _space_of(array)
    if space is not None and space.used == old:
        whole = array.base
        assert whole is not None
        if len(whole) >= size:
            # What is not filled costs nothing: memory comes as zeros, when it is first touched.
            space.used = min(len(whole), max(size, old + _STEP if fill else 2 * old))
            out = whole[: space.used]
            if fill:
                out[old:] = fill
            return out
    length = max(size, 2 * old, FIRST)
    return _copied(array, length, fill)


def _copied(array: np.ndarray, length: int, fill: object) -> np.ndarray:
    old = len(array)
    size = length * array.itemsize
    space = None
    if _RESERVED_FROM <= size <= _SPACE_BYTES and not array.dtype.hasobject:
        space = _reserved(_SPACE_BYTES)
    if space is not None:
        out = np.frombuffer(space, array.dtype)[:length]
        space.used = length
        if fill:
            out[old:] = fill
    elif fill:
        out = np.empty(length, array.dtype)
        out[old:] = fill
    else:
        out = np.zeros(length, array.dtype)
    out[:old] = array
    return out


def _reserved(size_bytes: int) -> _Space | None:
    """None where the system gives no address space."""
    size_bytes += -size_bytes % mmap.PAGESIZE
    try:
        space = _Space(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except OSError:
        return None
    if size_bytes > _HUGE_FROM:
        with suppress(OSError):  # a kernel without them
            space.madvise(mmap.MADV_HUGEPAGE, _HUGE_FROM, size_bytes - _HUGE_FROM)
    return space


def _space_of(array: np.ndarray) -> _Space | None:
    whole = array.base
    view = whole.base if isinstance(whole, np.ndarray) else None
    space = view.obj if isinstance(view, memoryview) else None
    return space if isinstance(space, _Space) else None
