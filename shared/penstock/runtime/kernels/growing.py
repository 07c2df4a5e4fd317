"""Arrays that grow without being copied, and so without a pause however long they are.

A long array lies at the start of address space that is reserved for it, which costs
nothing until it is touched: growing is a longer view of the same memory.
"""

from __future__ import annotations

import mmap

import numpy as np

FIRST = 1024
#: Arrays of so many bytes are given address space of their own …
_RESERVED_FROM = 1 << 20
#: … this much of it: 2^31 slots of 8 bytes.
_SPACE_BYTES = 1 << 34
#: Growing fills at most about so many items at a time.
_STEP = 1 << 18
#: From Linux' mman.h: the space counts as used only where it is touched.
_MAP_NORESERVE = 0x4000


class _Space(mmap.mmap):
    """Reserved address space; ``used``: items of the array in it."""

    used: int


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
    space = _reserved(array.dtype) if length * array.itemsize >= _RESERVED_FROM else None
    if space is not None and length * array.itemsize <= _SPACE_BYTES:
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


def _reserved(dtype: np.dtype) -> _Space | None:
    """None for objects, or where the system gives no address space."""
    if dtype.hasobject:
        return None
    try:
        return _Space(-1, _SPACE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except OSError:
        return None


def _space_of(array: np.ndarray) -> _Space | None:
    whole = array.base
    view = whole.base if isinstance(whole, np.ndarray) else None
    space = view.obj if isinstance(view, memoryview) else None
    return space if isinstance(space, _Space) else None
