"""The changes of a writer of upserts: of each key the last change of a part of an epoch; its row in a data file, its key in a
note. A commit takes the keys' rows out of all older files, and adds the data files (``merging``)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.lakehouse.files import OpenFiles
from penstock.connectors.lakehouse.keys import KIND, last_changes
from penstock.connectors.lakehouse.schema import fitted
from penstock.connectors.lakehouse.table import DataFile, LakeTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The bytes of changes in memory from which a part of an epoch is written.
_MOST_BYTES = 128 << 20


class KeyedFiles:
    """The counterpart of ``OpenFiles`` for changes by the columns ``keys``. ``name``: gives each new file its name;
    ``note``: the key of the note of a name; ``most_bytes``: changes are written when memory holds so many."""

    def __init__(
        self,
        table: LakeTable,
        name: Callable[[], str],
        note: Callable[[str], str],
        target_bytes: int,
        most_open: int,
        keys: Sequence[str],
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.table = table
        self._name, self._note = name, note
        self._files = OpenFiles(table, name, target_bytes, most_open)
        self._keys, self._most_bytes = list(keys), most_bytes
        self._schema = table.row_schema.append(pa.field(KIND, pa.uint8()))
        self._changes: list[pa.RecordBatch] = []
        self._bytes = 0
        #: Keys of the part that is being written, as Parquet; None: no part is.
        self._unsealed: tuple[str, bytes] | None = None
        self._data: list[DataFile] = []
        self._order = 0
        self.closed: list[DataFile] = []

    def take(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep changes, with the column ``KIND``. pa.ArrowInvalid if a value would be lost."""
        for rows in batches:
            self._changes.append(fitted(rows, self._schema))
            self._bytes += rows.nbytes

    def store(self) -> None:
        """Write a part if memory holds many changes. May be repeated after a ServerAwayError."""
        if self._unsealed is not None or self._bytes >= self._most_bytes:
            self._seal()
            self._seal()

    def cut(self, epoch: int) -> list[DataFile]:
        """Write all changes; returns the files and notes since the last cut, as those of ``epoch``. May be repeated after a
        ServerAwayError."""
        self._seal()
        self._seal()
        out = [msgspec.structs.replace(file, epoch=epoch) for file in self.closed]
        self.closed, self._order = [], 0
        return out

    def _seal(self) -> None:
        """Finish the part that is being written, else begin and finish one."""
        if self._unsealed is None:
            if not self._changes:
                return
            rows, keys = last_changes(pa.Table.from_batches(self._changes, self._schema), self._keys)
            for part in rows.to_batches():
                self._files.write(part)
            self._changes, self._bytes = [], 0
            self._unsealed = self._note(self._name()), _written(keys)
        self._data += self._files.cut(0)
        note, data = self._unsealed
        self.table.put_note(note, data)
        gone = DataFile(0, note, {}, self._order, deletes=True)
        self.closed += [gone, *(msgspec.structs.replace(f, order=self._order) for f in self._data)]
        self._data, self._unsealed = [], None
        self._order += 1

    def discard(self) -> None:
        """Delete the files that no cut has taken."""
        self._files.discard()
        self._changes, self._bytes = [], 0
        for file in [*self._data, *self.closed]:
            (self.table.delete_note if file.deletes else self.table.delete)(file.path)
        self._data, self.closed, self._unsealed = [], [], None

    @property
    def busy(self) -> bool:
        """Whether there are changes since the last cut."""
        return bool(self._changes or self._unsealed or self.closed)


def _written(keys: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(keys, out, compression="zstd")
    return out.getvalue()


def read_keys(data: bytes) -> pa.Table:
    """The keys in a note."""
    return pq.read_table(io.BytesIO(data), use_threads=False)
