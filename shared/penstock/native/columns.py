"""Columns as the compiled kernels fill them: arrays that C writes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class Field(ctypes.Structure):
    """One wanted field of a record; kernels.h and its users say what each means."""

    _fields_ = [
        ("name_at", ctypes.c_int32), ("name_len", ctypes.c_int32), ("kind", ctypes.c_int32), ("out", ctypes.c_int32),
        ("first", ctypes.c_int32), ("count", ctypes.c_int32), ("flags", ctypes.c_int32), ("bits", ctypes.c_int32),
    ]  # fmt: skip


class _Out(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("valid", "number", "start", "end")]


class Outs:
    """Values of ``count`` rows. ``texts``: for each column whether it holds places in the input (``start``, ``end``)
    instead of numbers."""

    def __init__(self, count: int, texts: Sequence[bool]) -> None:
        self.count = count
        self.valid = np.zeros((len(texts), count), np.uint8)
        self.number = [None if text else np.zeros(count, np.int64) for text in texts]
        self.places = [np.zeros((2, count), np.int32) if text else None for text in texts]
        self.pointers = (_Out * len(texts))()
        for i, out in enumerate(self.pointers):
            out.valid = self.valid[i].ctypes.data
            number, places = self.number[i], self.places[i]
            if number is not None:
                out.number = number.ctypes.data
            if places is not None:
                out.start, out.end = places[0].ctypes.data, places[1].ctypes.data

    def mask(self, column: int) -> np.ndarray | None:
        """Which rows of a column have a value; None: all."""
        valid = self.valid[column].view(np.bool_)
        return None if valid.all() else valid


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Where an array's values lie."""
    return ctypes.c_void_p(array.ctypes.data)


def gather(library: ctypes.CDLL, text: bytes, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of ``text`` at ``places`` ([starts, ends]) end to end: int32[n + 1] offsets and uint8 bytes."""
    start, end = places
    count = len(start)
    data = np.empty(int(end.sum(dtype=np.int64) - start.sum(dtype=np.int64)), np.uint8)
    offsets = np.empty(count + 1, np.int32)
    library.penstock_gather(
        text, address(start), address(end), ctypes.c_int64(count), address(offsets), address(data)
    )
    return offsets, data
