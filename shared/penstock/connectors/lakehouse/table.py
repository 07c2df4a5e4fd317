"""The port that Iceberg and Delta implement for the common sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq


class LostRaceError(Exception):
    """Another commit came first; the caller must read the table and decide again."""


class DataFile(msgspec.Struct, frozen=True):
    """A data file that was written and is in no commit yet.

    ``epoch``: the checkpoint whose barrier closed it. ``entry``: the file's entry for the table's log, in
    msgpack types.
    """

    epoch: int
    path: str
    entry: dict[str, Any]


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
    def commit(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        """Make one commit with these files and the mark that ``committed`` reads, on condition that the log
        is still as ``committed`` has just read it. If there was another commit since, changes nothing and
        raises LostRaceError."""

    @abstractmethod
    def replace(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        """As ``commit``, but the files replace all files of the version ``base``. If that is no
        longer the newest version, changes nothing and raises LostRaceError."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    @abstractmethod
    def after_commit(self) -> None:
        """Do the maintenance that an option asks for. The committing writer calls this from time to time."""
