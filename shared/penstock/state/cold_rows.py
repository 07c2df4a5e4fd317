"""Rows by key on the local disk: an operator moves keys there that were not used lately.

The rows are in LevelDB. All rows of a key in one table are one record::

    r ‖ table ‖ hash of the key ‖ key            → rows, and the lengths of the single rows
    d ‖ table ‖ epoch ‖ hash of the key ‖ key    if a row changed after the last checkpoint
    t ‖ table ‖ time  ‖ hash of the key ‖ key    if the rows have a time to live

Bloom filters in memory tell, without I/O, that a key is not on disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.hashing import hash_columns
from penstock.state.bloom import Bloom
from penstock.state.row_bytes import RowBytes
from penstock.types import logical as t
from penstock.types.arrow_buffers import (
    binary_array,
    binary_array_of_width,
    offsets_of_lengths,
    value_offsets,
    values_between,
)
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.types.logical import LogicalType

_EPOCH, _TIME, _ROWS = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct("<I")
_LONG, _INT = t.BigIntType(False), t.IntType(False)
_NO_IDS = np.empty(0, np.int64)
#: How many files LevelDB keeps open, and so mapped into memory, and the size of one.
_OPEN_FILES, _FILE_BYTES = 256, 1 << 20
#: The size of the hash with which the name of a key begins.
_HASH_BYTES = 8
#: About how many bytes of rows are read at once. While they are decoded they are in memory several times.
_PIECE_BYTES = 512 << 10
#: The last byte of a record: whether the key is listed under an epoch.
_PLAIN, _LISTED = b"\x00", b"\x01"


@dataclass(slots=True)
class Moved:
    """Rows on their way to the disk or back.

    ``counts``: number of rows of each key, in the order of the keys. ``ids`` and ``stamps``: see
    ``RowChanges``. ``times``: when each row was last touched, int64 milliseconds since 1970; None if rows
    do not expire.
    """

    counts: np.ndarray
    ids: np.ndarray
    stamps: np.ndarray
    times: np.ndarray | None
    columns: list[Column]

    def filter(self, mask: np.ndarray) -> Moved:
        """The rows under a mask, with as many keys as before."""
        owners = np.repeat(np.arange(len(self.counts)), self.counts)
        counts = np.bincount(owners[mask], minlength=len(self.counts))
        times = None if self.times is None else self.times[mask]
        return Moved(counts, self.ids[mask], self.stamps[mask], times, [c.filter(mask) for c in self.columns])


class Names:
    """The names of keys in LevelDB, ordered by hash. ``order``: the original position of each."""

    def __init__(self, form: RowBytes, keys: Sequence[Column], hashes: np.ndarray) -> None:
        self.order = np.argsort(hashes, kind="stable")
        keys = [c.take(self.order) for c in keys]
        n = len(hashes)
        heads = hashes[self.order].astype(">u8").tobytes()
        rows = values_between(form.encode(keys, n), np.arange(n + 1))
        self.bytes = [heads[8 * i : 8 * i + 8] + row for i, row in enumerate(rows)]


class ColdRows:
    """Rows of several tables by key, in LevelDB.

    ``tables``: for each table the column types of its rows, and whether they expire. ``folder`` is private
    to one attempt: a restore fills it again. ``buffer_bytes``: how much LevelDB gathers before it writes a
    file. Twice that may be in memory, and half of it is a read cache.
    """

    def __init__(
        self,
        folder: Path,
        key_types: Sequence[LogicalType],
        tables: Sequence[tuple[Sequence[LogicalType], bool]],
        *,
        buffer_bytes: int = 8 << 20,
    ) -> None:
        # Imported here, because a slot whose state fits into memory never needs it.
        import plyvel

        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._db: Any = plyvel.DB(
            str(folder), create_if_missing=True, write_buffer_size=buffer_bytes, lru_cache_size=buffer_bytes // 2,
            bloom_filter_bits=10, max_open_files=_OPEN_FILES, max_file_size=_FILE_BYTES,
        )  # fmt: skip
        self._keys = RowBytes(key_types, canonical=True)
        self._timed = [timed for _, timed in tables]
        self._rows = [RowBytes([_LONG, _INT, *([_LONG] if timed else []), *types]) for types, timed in tables]
        self._bloom = Bloom()

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without LevelDB's buffers."""
        return self._bloom.nbytes

    # -- moving --------------------------------------------------------------------------

    def names(self, keys: Sequence[Column]) -> Names:
        """The names of distinct keys that are about to be put here."""
        hashes = hash_columns(keys)
        self._bloom.add(hashes)
        return Names(self._keys, keys, hashes)

    def known(self, keys: Sequence[Column]) -> tuple[np.ndarray, Names]:
        """(positions of the keys that may be here, their names)."""
        hashes = hash_columns(keys)
        asked = np.flatnonzero(self._bloom.may_hold(hashes))
        return asked, Names(self._keys, [c.take(asked) for c in keys], hashes[asked])

    def put(self, table: int, names: Names, rows: Moved, confirmed: int) -> None:
        """Stores the rows of keys, in the order of ``names``. Rows stamped after ``confirmed`` are listed by
        epoch, so that a delta finds them."""
        n = len(rows.ids)
        if not n:
            return
        form, at = self._rows[table], bytes([table])
        times = () if rows.times is None else (Column(_LONG, rows.times),)
        columns = [Column(_LONG, rows.ids), Column(_INT, rows.stamps), *times, *rows.columns]
        encoded = form.encode(columns, n)
        ends = np.cumsum(rows.counts)
        present = np.flatnonzero(rows.counts)
        cuts = np.concatenate(([0], ends[present]))
        bodies = values_between(encoded, cuts)
        if form.has_texts:
            sizes = np.diff(value_offsets(encoded)).astype("<u4").tobytes()
            bounds = (4 * cuts).tolist()
            counts = rows.counts[present].astype("<u4").tobytes()
            bodies = [
                body + sizes[a:b] + counts[4 * i : 4 * i + 4]
                for i, (body, a, b) in enumerate(zip(bodies, bounds[:-1], bounds[1:], strict=True))
            ]
        newest = np.maximum.reduceat(rows.stamps, cuts[:-1])
        head = b"r" + at
        with self._db.write_batch() as batch:
            for i, (key, body, stamp) in enumerate(
                zip(present.tolist(), bodies, newest.tolist(), strict=True)
            ):
                name = names.bytes[key]
                if stamp > confirmed:
                    batch.put(b"d" + at + _EPOCH.pack(stamp) + name, b"")
                    bodies[i] = body + _LISTED
                else:
                    bodies[i] = body + _PLAIN
                batch.put(head + name, bodies[i])
            if rows.times is not None:
                last = np.maximum.reduceat(rows.times, cuts[:-1])
                for key, time_ms in zip(present.tolist(), last.tolist(), strict=True):
                    batch.put(b"t" + at + _TIME.pack(time_ms) + names.bytes[key], b"")

    def take(self, table: int, names: Names) -> Iterator[Moved]:
        """Removes and yields the rows of keys, in the order of ``names``. They come in pieces of about
        ``_PIECE_BYTES``, each with a count for every key: 0 for the keys of other pieces."""
        return self._take(table, names.bytes)

    def look(self, table: int, names: Names) -> Moved:
        """Returns the rows of keys without removing them, in the order of ``names``."""
        return self._moved(table, len(names.bytes), *self._found(table, names.bytes, 0, None)[:2])

    def _take(self, table: int, names: Sequence[bytes]) -> Iterator[Moved]:
        start = 0
        while start < len(names):
            found, records, start = self._found(table, names, start, _PIECE_BYTES)
            if found:
                moved = self._moved(table, len(names), found, records)
                self._forget(table, [names[i] for i in found], records, moved, moved.counts[found])
                del records
                yield moved

    def _found(
        self, table: int, names: Sequence[bytes], start: int, most_bytes: int | None
    ) -> tuple[list[int], list[bytes], int]:
        """(positions of the keys that have rows, from ``start`` on, their records, where to go on). About
        ``most_bytes`` are read (None: all)."""
        get, head = self._db.get, b"r" + bytes([table])
        records: list[bytes] = []
        found: list[int] = []
        size = 0
        for i in range(start, len(names)):
            record = get(head + names[i])
            if record is not None:
                records.append(record)
                found.append(i)
                size += len(record)
                if most_bytes is not None and size >= most_bytes:
                    return found, records, i + 1
        return found, records, len(names)

    def _moved(self, table: int, n: int, found: list[int], records: list[bytes]) -> Moved:
        """The rows of ``n`` keys, of which those at the positions ``found`` have some."""
        counts = np.zeros(n, np.int64)
        counts[found], rows = self._decoded(table, records)
        return Moved(counts, rows.ids, rows.stamps, rows.times, rows.columns)

    def expired(
        self, table: int, until_ms: int, most: int, with_it: Sequence[int]
    ) -> tuple[int, int, dict[int, np.ndarray]]:
        """Removes the rows of up to ``most`` keys that were last touched not after ``until_ms``, and the rows
        of these keys in the tables ``with_it``.

        Returns (keys examined, keys without any row left, table → numbers of the removed rows).
        """
        at = bytes([table])
        due = self._db.iterator(
            start=b"t" + at, stop=b"t" + at + _TIME.pack(until_ms + 1), include_value=False
        )
        names = [key[2 + _TIME.size :] for key in islice(due, most)]
        due.close()
        gone: dict[int, np.ndarray] = {}
        for number in (table, *with_it):
            gone[number] = np.concatenate([_NO_IDS, *(moved.ids for moved in self._take(number, names))])
        others = [bytes([n]) for n in range(len(self._rows)) if n != table and n not in with_it]
        left = sum(any(self._db.get(b"r" + o + name) is not None for o in others) for name in names)
        return len(names), len(names) - left, gone

    def listed(self, table: int, after: int, until: int, most: int) -> tuple[list[bytes], int]:
        """Names of up to ``most`` keys of a table with a time from ``after`` to ``until`` (inclusive), by
        time; and the last of these times."""
        head = b"t" + bytes([table])
        found = self._db.iterator(
            start=head + _TIME.pack(after), stop=head + _TIME.pack(until + 1), include_value=False
        )
        keys = list(islice(found, most))
        found.close()
        last = _TIME.unpack_from(keys[-1], len(head))[0] if keys else after
        return [key[len(head) + _TIME.size :] for key in keys], last

    def _forget(
        self, table: int, names: list[bytes], records: list[bytes], rows: Moved, counts: np.ndarray
    ) -> None:
        if not names:
            return
        at, cuts = bytes([table]), np.cumsum(counts) - counts
        newest = np.maximum.reduceat(rows.stamps, cuts).tolist()
        head = b"r" + at
        with self._db.write_batch() as batch:
            for name, record, stamp in zip(names, records, newest, strict=True):
                batch.delete(head + name)
                if record.endswith(_LISTED):
                    batch.delete(b"d" + at + _EPOCH.pack(stamp) + name)
            if rows.times is not None:
                last = np.maximum.reduceat(rows.times, cuts).tolist()
                for name, time_ms in zip(names, last, strict=True):
                    batch.delete(b"t" + at + _TIME.pack(time_ms) + name)

    def _decoded(self, table: int, records: Sequence[bytes]) -> tuple[np.ndarray, Moved]:
        """(number of rows of each record, the rows)."""
        form = self._rows[table]
        if form.has_texts:
            numbers = [_ROWS.unpack_from(record, len(record) - 5)[0] for record in records]
            sizes, bodies = [], []
            for record, n in zip(records, numbers, strict=True):
                end = len(record) - 5
                sizes.append(record[end - 4 * n : end])
                bodies.append(record[: end - 4 * n])
            lengths = np.frombuffer(b"".join(sizes), "<u4")
            counts = np.array(numbers, np.int64)
            rows = binary_array(pa.binary(), offsets_of_lengths(lengths), b"".join(bodies))
        else:
            bodies = [record[:-1] for record in records]
            counts = np.fromiter(map(len, bodies), np.int64, len(bodies)) // form.width
            rows = binary_array_of_width(b"".join(bodies), int(counts.sum()), form.width)
        columns = form.decode(rows)
        times = columns[2].values if self._timed[table] else None
        return counts, Moved(
            counts, columns[0].values, columns[1].values, times, columns[2 + self._timed[table] :]
        )

    # -- snapshots -----------------------------------------------------------------------

    def cut(self, table: int, since: int, upto: int) -> ColdCut:
        """The rows of one table at this moment (``since`` 0), or those stamped after ``since`` and not after
        ``upto``."""
        return ColdCut(self, table, self._db.snapshot(), since, upto)

    def decoded_names(self, names: Sequence[bytes]) -> tuple[list[Column], list[Column]]:
        """(key columns, columns between these and a row's own) from names of keys."""
        return self._keys.decode(pa.array([name[_HASH_BYTES:] for name in names], pa.binary())), []

    def decoded(self, table: int, records: Sequence[bytes]) -> tuple[np.ndarray, Moved]:
        """(number of rows of each record, the rows)."""
        return self._decoded(table, records)

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


class ColdCut:
    """The rows on disk at a barrier. They can be read while rows come and go."""

    def __init__(self, rows: ColdRows, table: int, stored: Any, since: int, upto: int) -> None:
        self._cold, self._table, self._stored = rows, table, stored
        self._since, self._upto = since, upto
        at = bytes([table])
        if since:
            self._found = self._listed(at, since, upto)
        else:
            self._found = (
                (name[2:], record) for name, record in stored.iterator(prefix=b"r" + at, fill_cache=False)
            )

    @property
    def folder(self) -> Path:
        """The folder of the database."""
        return self._cold.folder

    def _listed(self, at: bytes, since: int, upto: int) -> Iterator[tuple[bytes, bytes]]:
        names = self._stored.iterator(
            start=b"d" + at + _EPOCH.pack(since + 1),
            stop=b"d" + at + _EPOCH.pack(upto + 1),
            include_value=False,
            fill_cache=False,
        )
        for key in names:
            name = key[2 + _EPOCH.size :]
            yield name, self._stored.get(b"r" + at + name)

    def read(self, most: int) -> tuple[np.ndarray, list[Column], list[Column]] | None:
        """(row numbers, keys, other columns) of up to ``most`` further keys, or about ``_PIECE_BYTES`` of them; None
        at the end."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        while len(found) < most and size < _PIECE_BYTES and (stored := next(self._found, None)) is not None:
            found.append(stored)
            size += len(stored[1])
        if not found:
            self.close()
            return None
        counts, rows = self._cold.decoded(self._table, [record for _, record in found])
        keys, more = self._cold.decoded_names([name for name, _ in found])
        if len(rows.ids) > len(found):
            owner = np.repeat(np.arange(len(found)), counts)
            keys, more = [c.take(owner) for c in keys], [c.take(owner) for c in more]
        columns = [*more, *rows.columns]
        if not self._since:
            return rows.ids, keys, columns
        fresh = np.flatnonzero((rows.stamps > self._since) & (rows.stamps <= self._upto))
        return rows.ids[fresh], [c.take(fresh) for c in keys], [c.take(fresh) for c in columns]

    def close(self) -> None:
        """Ends the reading."""
        self._found = iter(())
        self._stored.close()
