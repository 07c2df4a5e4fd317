"""Arrays that grow without a copy, so that a long array causes no pause.

A long array lies at the start of reserved address space, which costs no memory until it is touched. A grown
array is a longer view of the same memory.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress

import numpy as np

FIRST = 1024
#: Arrays of at least this many bytes get address space of their own.
_RESERVED_FROM = 1 << 20
#: Bytes of address space per array: 2^31 slots of 8 bytes.
_SPACE_BYTES = 1 << 34
#: Behind this many bytes the system is asked for pages of 2 MiB, which are touched three times as fast.
#: A shorter array has small pages, so that it takes no more memory than it needs.
_HUGE_FROM = 16 << 20
#: One call of ``grown`` fills at most about this many items beyond the required size.
_STEP = 1 << 18
#: From the system's mman.h: reserved address space does not count as used memory. Python 3.13 has it by name.
_MAP_NORESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)


class _Space(mmap.mmap):
    """Reserved address space. ``used`` is the number of items of the array that lies in it."""

    used: int


def zeros(length: int, dtype: type) -> np.ndarray:
    """An array of zeros, in huge pages if it is long. Its memory is used only where it is touched."""
    kind = np.dtype(dtype)
    space = _reserved(length * kind.itemsize) if length * kind.itemsize > _HUGE_FROM else None
    return np.zeros(length, kind) if space is None else np.frombuffer(space, kind)[:length]


def grown(array: np.ndarray, size: int, fill: object = 0) -> np.ndarray:
    """``array`` itself if it has at least ``size`` items, else a longer array; new items are ``fill``.

    A long array grows in place, so the old view shares its memory with the new one. A short one is copied.
    """
    old = len(array)
    if old >= size:
        return array
    space = _space_of(array)
    if space is not None and space.used == old:
        whole = array.base
        assert whole is not None
        if len(whole) >= size:
            # Zeros need no filling: the system gives zeroed memory when it is first touched.
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
    """Address space of at least this size; None if the system refuses it."""
    size_bytes += -size_bytes % mmap.PAGESIZE
    try:
        space = _Space(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except OSError:
        return None
    if size_bytes > _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):  # Linux alone has it
        with suppress(OSError):  # the kernel has no huge pages
            space.madvise(mmap.MADV_HUGEPAGE, _HUGE_FROM, size_bytes - _HUGE_FROM)
    return space


def _space_of(array: np.ndarray) -> _Space | None:
    whole = array.base
    view = whole.base if isinstance(whole, np.ndarray) else None
    space = view.obj if isinstance(view, memoryview) else None
    return space if isinstance(space, _Space) else None
