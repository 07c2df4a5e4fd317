"""Rows on the local disk that are read and removed together: ordered by window first, then by key.

A key begins with ``leading`` whole numbers, which name its *run* (a window's pane)::

    r ‖ table ‖ run ‖ hash of the rest of the key ‖ rest

A run is read in the order of its keys' hashes, so that several runs of any length can be merged piece by
piece. A run and its Bloom filter are removed as a whole, so that nothing is left of keys that never come
again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.hashing import hash_columns
from penstock.columnar.sorting import group_bounds
from penstock.state.bloom import Bloom
from penstock.state.cold_rows import ColdRows, Moved, Names
from penstock.state.cold_tier import PIECE_BYTES, ColdTier
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.state.row_bytes import RowBytes
    from penstock.types.logical import LogicalType

    #: A key's columns → those of the key in a snapshot, those behind them.
    Arrange = Callable[[list[Column]], tuple[list[Column], list[Column]]]

_LONG = t.BigIntType(False)
_WORD = 8
_SIGN = np.uint64(1 << 63)
#: The number of keys for a run's first Bloom filter. It is small because there may be very many runs with few
#: keys.
_FIRST_KEYS = 64
#: Bytes of a Bloom filter without its bits, and of its entry in a dictionary.
_BLOOM_BYTES = 300
#: How many keys of a run are removed together.
_DROP_KEYS = 4_096

#: State above the memory limit divided by this is not held in memory twice.
_LARGE_SHARE = 8


@dataclass(slots=True)
class RunPiece:
    """Some keys of a run. ``keys``: their columns without those of the run; ``tables``: the rows of each
    table."""

    keys: list[Column]
    tables: list[Moved]

    def __len__(self) -> int:
        return len(self.tables[0].counts)


class RunNames(Names):
    """Names of keys with their runs, ordered by run, then by hash. ``leads``: the columns that name runs."""

    def __init__(
        self, form: RowBytes, leads: Sequence[Column], rest: Sequence[Column], hashes: np.ndarray
    ) -> None:
        super().__init__(form, rest, hashes)
        words = _words(leads)[self.order]
        by_run = np.lexsort(words.T[::-1])
        heads = words[by_run].astype(">u8").tobytes()
        width = _WORD * len(leads)
        self.order = self.order[by_run]
        self.bytes = [
            heads[width * i : width * (i + 1)] + self.bytes[at] for i, at in enumerate(by_run.tolist())
        ]


class ColdRuns(ColdRows):
    """``ColdRows`` ordered by run.

    ``key_types``: without the columns that name runs, whose types are ``lead_types``. ``arrange``: see
    ``RunTier``.
    """

    def __init__(
        self,
        folder: Path,
        key_types: Sequence[LogicalType],
        tables: Sequence[tuple[Sequence[LogicalType], bool]],
        *,
        lead_types: Sequence[LogicalType],
        arrange: Arrange | None,
        buffer_bytes: int,
    ) -> None:
        super().__init__(folder, key_types, tables, buffer_bytes=buffer_bytes)
        self._lead_types, self._leading = lead_types, len(lead_types)
        self._arrange = arrange
        self._blooms: dict[bytes, Bloom] = {}

    @property
    def nbytes(self) -> int:
        return sum(bloom.nbytes + _BLOOM_BYTES for bloom in self._blooms.values())

    def names(self, keys: Sequence[Column]) -> RunNames:
        leads, rest = keys[: self._leading], keys[self._leading :]
        hashes = hash_columns(rest)
        for run, rows in _runs(leads):
            bloom = self._blooms.get(run)
            if bloom is None:
                bloom = self._blooms[run] = Bloom(_FIRST_KEYS)
            bloom.add(hashes[rows])
        return RunNames(self._keys, leads, rest, hashes)

    def known(self, keys: Sequence[Column]) -> tuple[np.ndarray, RunNames]:
        leads, rest = keys[: self._leading], keys[self._leading :]
        hashes = hash_columns(rest)
        may = np.zeros(len(hashes), np.bool_)
        for run, rows in _runs(leads):
            bloom = self._blooms.get(run)
            if bloom is not None:
                may[rows] = bloom.may_hold(hashes[rows])
        asked = np.flatnonzero(may)
        names = RunNames(
            self._keys, [c.take(asked) for c in leads], [c.take(asked) for c in rest], hashes[asked]
        )
        return asked, names

    def decoded_names(self, names: Sequence[bytes]) -> tuple[list[Column], list[Column]]:
        leads, keys = self._leads(names), self._rests(names)
        return (keys, leads) if self._arrange is None else self._arrange([*leads, *keys])

    def _leads(self, names: Sequence[bytes]) -> list[Column]:
        width = _WORD * self._leading
        runs = _numbers(b"".join(name[:width] for name in names)).reshape(-1, self._leading)
        return [Column(x, np.ascontiguousarray(runs[:, i])) for i, x in enumerate(self._lead_types)]

    def _rests(self, names: Sequence[bytes]) -> list[Column]:
        width = _WORD * self._leading
        return super().decoded_names([name[width:] for name in names])[0]

    # -- whole runs ------------------------------------------------------------------------

    def runs(self) -> list[tuple[int, ...]]:
        """The runs of which something was stored since they were last removed."""
        return [tuple(_numbers(name).tolist()) for name in self._blooms]

    def lies(self, run: bytes) -> bool:
        """Whether something of the run was stored since it was last removed."""
        return run in self._blooms

    def run(self, run: bytes) -> Run:
        """A reader of the run as it is now."""
        return Run(self, self._db.snapshot(), run)

    def peek(self, keys: Sequence[Column]) -> RunPiece | None:
        """The rows of these keys (their runs included), without removing them. None if there are none."""
        _, names = self.known(keys)
        found = [
            (name, record) for name in names.bytes if (record := self._db.get(b"r\x00" + name)) is not None
        ]
        if not found:
            return None
        return self.completed(self._db, [name for name, _ in found], [record for _, record in found])

    def completed(self, stored: Any, names: Sequence[bytes], records: Sequence[bytes]) -> RunPiece:
        """The rows of all tables for keys whose ``records`` in the first table have been read."""
        keys = self._rests(names)
        tables = [self._decoded(0, records)[1]]
        for table in range(1, len(self._rows)):
            head = b"r" + bytes([table])
            own = [(i, r) for i, n in enumerate(names) if (r := stored.get(head + n)) is not None]
            counts = np.zeros(len(names), np.int64)
            found, moved = self._decoded(table, [r for _, r in own])
            counts[[i for i, _ in own]] = found
            moved.counts = counts
            tables.append(moved)
        return RunPiece(keys, tables)

    def drop(self, run: bytes) -> Iterator[tuple[int, int, np.ndarray]]:
        """Removes a run in pieces. Yields (table, number of keys, numbers of their rows)."""
        if self._blooms.pop(run, None) is None:
            return
        for table in range(len(self._rows)):
            at = b"r" + bytes([table])
            with self._db.iterator(prefix=at + run, fill_cache=False) as stored:
                while found := _some(stored):
                    names = [name[len(at) :] for name, _ in found]
                    records = [record for _, record in found]
                    counts, rows = self._decoded(table, records)
                    self._forget(table, names, records, rows, counts)
                    yield table, len(found), rows.ids


class Run:
    """One run as it is on disk at this moment, read in the order of its keys' hashes.

    ``fill`` reads further; ``take`` returns what was read, up to a hash.
    """

    def __init__(self, rows: ColdRuns, stored: Any, run: bytes) -> None:
        self._rows, self._stored = rows, stored
        prefix = b"r\x00" + run
        self._head = len(prefix)
        self._found = stored.iterator(prefix=prefix, fill_cache=False)
        self._ahead: tuple[bytes, bytes] | None = next(self._found, None)
        self._read: list[tuple[bytes, bytes]] = []
        self._hashes: list[int] = []

    @property
    def done(self) -> bool:
        """Whether the whole run was read."""
        return self._ahead is None

    @property
    def last(self) -> int:
        """The hash up to which the run was read. All keys with this hash have been read."""
        return self._hashes[-1]

    @property
    def empty(self) -> bool:
        """Whether everything that was read has been taken."""
        return not self._read

    def fill(self, most: int, most_bytes: int) -> None:
        """Reads about so many more keys or bytes. Keys with the same hash stay together."""
        keys = size = 0
        while self._ahead is not None:
            name, record = self._ahead
            hash_ = int.from_bytes(name[self._head : self._head + _WORD], "big")
            if (keys >= most or size >= most_bytes) and hash_ != self._hashes[-1]:
                return
            self._read.append((name[2:], record))
            self._hashes.append(hash_)
            keys, size = keys + 1, size + len(record)
            self._ahead = next(self._found, None)

    def take(self, upto: int | None = None) -> RunPiece | None:
        """What was read, up to and including hash ``upto`` (None: all). None if that is nothing."""
        n = len(self._read) if upto is None else bisect_right(self._hashes, upto)
        if not n:
            return None
        taken, self._read, self._hashes = self._read[:n], self._read[n:], self._hashes[n:]
        return self._rows.completed(self._stored, [name for name, _ in taken], [r for _, r in taken])

    def close(self) -> None:
        """Ends the reading."""
        self._found.close()
        self._stored.close()


class RunTier(ColdTier):
    """A tier whose keys begin with ``leading`` whole numbers that name their run. Every key has a row in the
    first table.

    ``arrange``: splits the columns of a key into those of the key in a snapshot, and those between these
    and a row's own; None: the latter are the run's. The other arguments are those of ``ColdTier``.
    """

    def __init__(self, *args: Any, leading: int, arrange: Arrange | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._leading, self._arrange = leading, arrange

    def is_large(self, keys: int) -> bool:
        """Whether so many keys are too many to be in memory twice."""
        return keys * self.key_bytes * _LARGE_SHARE > self._memory.limit_bytes

    def lies(self, run: Sequence[int]) -> bool:
        """Whether a part of the run may be on disk."""
        return self._disk is not None and self._runs.lies(_run_name(run))

    def run(self, run: Sequence[int]) -> Run:
        """A reader of the run as it is on disk."""
        return self._runs.run(_run_name(run))

    def runs(self) -> list[tuple[int, ...]]:
        """The runs of which a part may be on disk."""
        return [] if self._disk is None else self._runs.runs()

    def pieces(self, run: Sequence[int]) -> Iterator[RunPiece]:
        """All rows of a run on disk, in pieces that can be merged or emitted at once."""
        reading = self.run(run)
        try:
            while not reading.done:
                reading.fill(self.piece_keys, PIECE_BYTES)
                piece = reading.take()
                assert piece is not None
                yield piece
        finally:
            reading.close()

    def peek(self, run: Sequence[int], keys: Sequence[Column]) -> RunPiece | None:
        """The rows of these keys of a run on disk, without removing them. None if there are none."""
        n = len(keys[0])
        return self._runs.peek([*(Column(_LONG, np.full(n, x)) for x in run), *keys])

    def forget(self, run: Sequence[int]) -> None:
        """Removes a run from the disk."""
        if self._disk is None:
            return
        for table, keys, ids in self._runs.drop(_run_name(run)):
            self._tables[table].numbered.lost(ids)
            if table == 0:
                self.count -= keys

    @property
    def _runs(self) -> ColdRuns:
        assert isinstance(self._disk, ColdRuns)
        return self._disk

    def _make_rows(self, tables: Sequence[tuple[Sequence[LogicalType], bool]], buffer_bytes: int) -> ColdRuns:
        types, leading = self._index.types, self._leading
        return ColdRuns(
            self._folder, types[leading:], tables, lead_types=types[:leading], arrange=self._arrange,
            buffer_bytes=buffer_bytes,
        )  # fmt: skip


def _some(stored: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The next records, limited so that they fit into memory."""
    out: list[tuple[bytes, bytes]] = []
    size = 0
    while len(out) < _DROP_KEYS and size < PIECE_BYTES and (record := next(stored, None)) is not None:
        out.append(record)
        size += len(record[1])
    return out


def _words(leads: Sequence[Column]) -> np.ndarray:
    """uint64 of shape (n, leading), in the order of the signed numbers."""
    return np.stack([c.values.astype(np.int64).view(np.uint64) ^ _SIGN for c in leads], axis=1)


def _run_name(run: Sequence[int]) -> bytes:
    return (np.array(run, np.int64).view(np.uint64) ^ _SIGN).astype(">u8").tobytes()


def _numbers(names: bytes) -> np.ndarray:
    """int64: the whole numbers in the concatenated names of runs."""
    return (np.frombuffer(names, ">u8").astype(np.uint64) ^ _SIGN).view(np.int64)


def _runs(leads: Sequence[Column]) -> Iterator[tuple[bytes, np.ndarray]]:
    """(name of a run, its rows), for each run."""
    words = _words(leads)
    order = np.lexsort(words.T[::-1])
    words = words[order]
    code = np.zeros(len(order), np.int64)
    if len(order):
        code[1:] = np.cumsum((words[1:] != words[:-1]).any(axis=1))
    bounds = group_bounds(code)
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield words[low].astype(">u8").tobytes(), order[low:high]
