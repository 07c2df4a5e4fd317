"""The port that Iceberg and Delta implement for the common sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq


class LostRaceError(Exception):
    """Another commit came first; the caller must read the table and decide again."""


class MissingFileError(Exception):
    """A staged file or note that a commit needs is gone. ``path``: its name."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class DataFile(msgspec.Struct, frozen=True):
    """A data file that was written and is in no commit yet.

    ``epoch``: the checkpoint whose barrier closed it. ``entry``: the file's entry for the table's log, in
    msgpack types. Of a writer of upserts: ``order`` counts its parts of an epoch; ``deletes``: this is a note with
    keys, whose rows leave all files of earlier epochs and parts, and ``path`` is the note's key.
    """

    epoch: int
    path: str
    entry: dict[str, Any]
    order: int = 0
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file that can be read.

    Args:
        path: Its name in the table's log.
        size: Bytes.
        partition: Its partition, as text.
        bounds: Column → (least, greatest value), as far as they are known.
        handle: What the table needs to read it and to take it out of the log.
        version: Tells apart one file with other rows deleted from it.
    """

    path: str
    size: int
    partition: str
    bounds: Mapping[str, tuple[Any, Any]]
    handle: Any
    version: str = ""


class Partition(msgspec.Struct, frozen=True):
    """A partition of a batch's rows. ``key``: identifies the partition; ``values``: its values in the form
    that the log holds."""

    key: str
    values: tuple[Any, ...]


class LakeTable(ABC):
    """A stored table, opened for writing. Its methods block; those that take rows release the interpreter's lock.

    A method that asks a server raises ServerAwayError if the server does not answer, and may then be called again.
    """

    #: All columns of the table, in its order.
    row_schema: pa.Schema
    #: The columns of data files, in this order.
    file_schema: pa.Schema
    #: Writer properties of ``pq.ParquetWriter``.
    parquet: dict[str, Any]
    #: The version that the table's options name, as text; ``replace`` replaces its files.
    base: str

    @abstractmethod
    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows (of all columns of the table) of each partition, with the columns of ``file_schema``."""

    @abstractmethod
    def new_file(self, partition: Partition, name: str) -> tuple[str, Any | None]:
        """(path, open file) of a new data file. None instead of the file: the table does not lie in a local file system, and
        the whole file will be given to ``upload``. Asks no server."""

    @abstractmethod
    def upload(self, path: str, file: IO[bytes]) -> None:
        """Store the contents of ``file``, which is at its start, under a path of ``new_file``. May be repeated."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make a written and closed file survive a crash of the machine."""

    @abstractmethod
    def entry(self, path: str, size: int, partition: Partition, footer: pq.FileMetaData) -> dict[str, Any]:
        """The entry for the log of a file of ``size`` bytes."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a data file that is in no commit; an absent file is no error."""

    @abstractmethod
    def put_note(self, key: str, data: bytes) -> None:
        """Store a small object beside the table, durably."""

    @abstractmethod
    def get_note(self, key: str) -> bytes | None:
        """The object's bytes; None if it does not exist."""

    @abstractmethod
    def delete_note(self, key: str) -> None:
        """Delete the object; an absent one is no error."""

    @abstractmethod
    def committed(self, writer: str) -> int | None:
        """The last checkpoint that the sink with the id ``writer`` has committed, by the table's log; None:
        none. Reads the log again."""

    @abstractmethod
    def live(self) -> list[StoredFile]:
        """The files of the version that ``committed`` has just read. UnsupportedError for a table with files that this
        process cannot read."""

    @abstractmethod
    def staged(self, file: DataFile) -> StoredFile:
        """A file of a writer that is in no commit yet, for reading."""

    @abstractmethod
    def rows(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a file that are not deleted, always in the same order. MissingFileError if the file is gone."""

    @abstractmethod
    def commit(
        self,
        writer: str,
        checkpoint_id: int,
        properties: dict[str, str],
        files: Sequence[DataFile],
        removed: Sequence[StoredFile] = (),
    ) -> None:
        """Make one commit with these files, without the files ``removed``, and with the mark that ``committed`` reads,
        on condition that the log is still as ``committed`` has just read it. If there was another commit since,
        changes nothing and raises LostRaceError. A commit that removes nothing may come behind others that only add."""

    @abstractmethod
    def replace(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        """As ``commit``, but the files replace all files of the version ``base``. If that is no
        longer the newest version, changes nothing and raises LostRaceError."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    #: The number of a writer's commits between two calls of ``after_commit``.
    maintenance_every: int = 10

    @abstractmethod
    def after_commit(self, name: Callable[[], str]) -> None:
        """Do the maintenance that an option asks for. The committing writer calls this from time to time. ``name``: gives
        each new file its name."""
