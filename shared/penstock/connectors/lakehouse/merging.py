"""Commits of upserts: the rows of changed keys leave the files that hold them, and the new rows join, in one commit.

A file with such rows is written anew without them (copy on write), so that every reader of the table sees the right rows. Only
files whose bounds allow one of the keys are looked into. If another commit comes first, the plan is made again from the
table as it is then; what was written for files that are still there is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.connectors.lakehouse.files import OpenFiles
from penstock.connectors.lakehouse.keyed_files import read_keys
from penstock.connectors.lakehouse.keys import KeyRanges, rows_with
from penstock.connectors.lakehouse.schema import fitted
from penstock.connectors.lakehouse.table import MissingFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.lakehouse.table import DataFile, LakeTable, StoredFile


class Merger:
    """Makes the commits of one writer. ``keys``: the columns of the primary key; ``name``: gives each new file its name."""

    def __init__(
        self,
        table: LakeTable,
        keys: Sequence[str],
        name: Callable[[], str],
        target_bytes: int,
        most_open: int,
    ) -> None:
        self._table, self._keys, self._name = table, list(keys), name
        self._target_bytes, self._most_open = target_bytes, most_open
        #: (File, its version, notes applied) → what was written for it, in the tries of one checkpoint.
        self._made: dict[tuple[str, str, tuple[str, ...]], list[DataFile] | None] = {}
        self._of: tuple[str, ...] = ()

    def commit(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        """As ``LakeTable.commit``; ``files``: data files and notes with keys. MissingFileError if one of them is gone."""
        of = tuple(sorted(file.path for file in files))
        if of != self._of:
            self._made, self._of = {}, of
        notes = sorted((f for f in files if f.deletes), key=lambda f: (f.epoch, f.order, f.path))
        keys = [self._read(note) for note in notes]
        used: set[tuple[str, str, tuple[str, ...]]] = set()
        added: list[DataFile] = []
        removed: list[StoredFile] = []
        for file in self._table.live() if notes else ():
            made = self._without(file, notes, keys, used)
            if made is not None:
                removed.append(file)
                added += made
        for data in (f for f in files if not f.deletes):
            later = [i for i, n in enumerate(notes) if (n.epoch, n.order) > (data.epoch, data.order)]
            staged = self._table.staged(data) if later else None
            made = (
                None
                if staged is None
                else self._without(staged, [notes[i] for i in later], [keys[i] for i in later], used)
            )
            added += [data] if made is None else made
        self._table.commit(writer, checkpoint_id, properties, added, removed)
        # No earlier try has succeeded, nor can it any more, because this one did: nothing names these files.
        for key, made in self._made.items():
            for leftover in made or () if key not in used else ():
                self._table.delete(leftover.path)
        self._made, self._of = {}, ()

    def _read(self, note: DataFile) -> pa.Table:
        data = self._table.get_note(note.path)
        if data is None:
            raise MissingFileError(note.path)
        return read_keys(data)

    def _without(
        self,
        file: StoredFile,
        notes: Sequence[DataFile],
        keys: Sequence[pa.Table],
        used: set[tuple[str, str, tuple[str, ...]]],
    ) -> list[DataFile] | None:
        """The files that replace ``file`` without the rows of ``keys``; None: it has none of them."""
        key = file.path, file.version, tuple(note.path for note in notes)
        used.add(key)
        if key not in self._made:
            self._made[key] = self._rewritten(file, pa.concat_tables(keys))
        return self._made[key]

    def _rewritten(self, file: StoredFile, gone: pa.Table) -> list[DataFile] | None:
        if not KeyRanges(gone, self._keys).may_have(file.bounds):
            return None
        schema = self._table.row_schema
        held = pa.schema([schema.field(name) for name in self._keys])
        found = pa.Table.from_batches(
            [fitted(rows, held) for rows in self._table.rows(file, self._keys)], held
        )
        hit = rows_with(found, gone, self._keys)
        if not hit.any():
            return None
        if hit.all():
            return []
        out = OpenFiles(self._table, self._name, self._target_bytes, self._most_open)
        first = 0
        for rows in self._table.rows(file, schema.names):
            kept = ~hit[first : first + rows.num_rows]
            first += rows.num_rows
            if kept.any():
                out.write(fitted(rows.filter(pa.array(kept)), schema))
        assert first == len(hit), f"{file.path} has {first} rows, and {len(hit)} keys"
        return out.cut(0)
