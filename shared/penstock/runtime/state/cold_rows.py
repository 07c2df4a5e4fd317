"""Rows by key on the local disk: where column tables put what nobody asks for.

LevelDB: hash of the key ‖ key → number of the row ‖ its other columns. Bloom filters in
memory say of a key that it is not here, without I/O.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.runtime.kernels.hashing import hash_columns
from penstock.runtime.state.row_bytes import RowBytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

_HASH, _ID = struct.Struct(">Q"), struct.Struct("<q")
_PIECE_ROWS = 512
#: Bits a key in a Bloom filter, and how many of them a key sets: one false hit in a hundred.
_BITS, _PROBES = 10, 6
_FIRST_KEYS = 100_000


class Bloom:
    """Filters, each made for twice as many keys as the one before it. What was removed may
    still seem to be there."""

    def __init__(self) -> None:
        self._filters: list[np.ndarray] = []
        self._room = 0
        self._next = _FIRST_KEYS

    @property
    def nbytes(self) -> int:
        return sum(f.nbytes for f in self._filters)

    def add(self, hashes: np.ndarray) -> None:
        """``hashes``: uint64. Keys that come and go again and again take no more room."""
        hashes = hashes[~self.may_hold(hashes)]
        if self._room < len(hashes):
            words = (max(self._next, len(hashes)) * _BITS + 63) // 64
            self._filters.append(np.zeros(words, np.uint64))
            self._room = words * 64 // _BITS
            self._next = 2 * self._room
        self._room -= len(hashes)
        for word, bit in self._places(self._filters[-1], hashes):
            np.bitwise_or.at(self._filters[-1], word, bit)

    def may_hold(self, hashes: np.ndarray) -> np.ndarray:
        out = np.zeros(len(hashes), np.bool_)
        for bits in self._filters:
            here = np.ones(len(hashes), np.bool_)
            for word, bit in self._places(bits, hashes):
                here &= (bits[word] & bit) != 0
            out |= here
        return out

    @staticmethod
    def _places(bits: np.ndarray, hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = (hashes >> np.uint64(32)) | np.uint64(1)
        for k in range(_PROBES):
            at = (hashes + np.uint64(k) * step) % np.uint64(len(bits) * 64)
            yield (at >> np.uint64(6)).astype(np.int64), np.uint64(1) << (at & np.uint64(63))


class ColdRows:
    """``folder`` is private to one attempt: a restore fills it anew."""

    def __init__(
        self, folder: Path, key_types: Sequence[LogicalType], payload_types: Sequence[LogicalType]
    ) -> None:
        # Here, not at the top: a slot whose state fits into memory never loads it.
        import plyvel

        folder.mkdir(parents=True, exist_ok=True)
        self._db: Any = plyvel.DB(
            str(folder), create_if_missing=True, write_buffer_size=8 << 20, lru_cache_size=8 << 20,
            bloom_filter_bits=10,
        )  # fmt: skip
        self._keys = RowBytes(key_types, canonical=True)
        self._payload = RowBytes(payload_types)
        self._bloom = Bloom()
        self.count = 0

    @property
    def nbytes(self) -> int:
        """In memory."""
        return self._bloom.nbytes

    def put(self, keys: Sequence[Column], ids: np.ndarray, payload: Sequence[Column]) -> None:
        n = len(ids)
        hashes = hash_columns(keys)
        names = self._names(hashes, keys, n)
        rows = zip(names, ids.tolist(), self._payload.encode(payload, n), strict=True)
        with self._db.write_batch() as batch:
            for name, row_id, data in sorted(rows):
                batch.put(name, _ID.pack(row_id) + data)
        self._bloom.add(hashes)
        self.count += n

    def take(self, keys: Sequence[Column], n: int) -> tuple[np.ndarray, np.ndarray, list[Column]]:
        """Those of n distinct keys that are here, out of it: (their positions, row numbers,
        other columns)."""
        hashes = hash_columns(keys)
        asked = np.flatnonzero(self._bloom.may_hold(hashes))
        found: list[tuple[int, bytes]] = []
        if len(asked):
            names = self._names(hashes[asked], [c.take(asked) for c in keys], len(asked))
            get = self._db.get
            with self._db.write_batch() as batch:
                for position, name in zip(asked.tolist(), names, strict=True):
                    data = get(name)
                    if data is not None:
                        found.append((position, data))
                        batch.delete(name)
        self.count -= len(found)
        positions = np.array([position for position, _ in found], np.int64)
        return positions, *self._split([data for _, data in found])

    def rows(self) -> Iterator[tuple[np.ndarray, list[Column], list[Column]]]:
        """(row numbers, keys, other columns) of all rows of this moment, in pieces; rows may
        come and go meanwhile."""
        return self._pieces(self._db.snapshot())

    def _pieces(self, stored: Any) -> Iterator[tuple[np.ndarray, list[Column], list[Column]]]:
        piece: list[tuple[bytes, bytes]] = []
        for pair in stored.iterator(fill_cache=False):
            piece.append(pair)
            if len(piece) == _PIECE_ROWS:
                yield self._decoded(piece)
                piece = []
        stored.close()
        if piece:
            yield self._decoded(piece)

    def _decoded(self, piece: list[tuple[bytes, bytes]]) -> tuple[np.ndarray, list[Column], list[Column]]:
        ids, payload = self._split([data for _, data in piece])
        return ids, self._keys.decode([name[_HASH.size :] for name, _ in piece]), payload

    def _split(self, rows: Sequence[bytes]) -> tuple[np.ndarray, list[Column]]:
        ids = np.frombuffer(b"".join(row[: _ID.size] for row in rows), np.int64)
        return ids, self._payload.decode([row[_ID.size :] for row in rows])

    def _names(self, hashes: np.ndarray, keys: Sequence[Column], n: int) -> list[bytes]:
        heads = hashes.astype(">u8").tobytes()
        rows = self._keys.encode(keys, n)
        return [heads[8 * i : 8 * i + 8] + row for i, row in enumerate(rows)]

    def close(self) -> None:
        self._db.close()
