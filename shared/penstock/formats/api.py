"""The public port of formats: bytes to columns and back.

A format decodes and encodes *messages* (one record each, or many in one), *files*, or both. ``'format' =
'name'`` selects a format by its name in the entry point group ``penstock.formats``, or by its import path.
Formats do not know connectors: a connector gives them bytes, or opens a file for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
    from typing import BinaryIO

    import numpy as np
    import pyarrow as pa

    from penstock.options import OptionSet
    from penstock.types.batch import Batch
    from penstock.types.logical import LogicalType, Schema

__all__ = [
    "Block",
    "Decoder",
    "Encoder",
    "FileContext",
    "FileFormat",
    "FileReader",
    "Format",
    "FormatContext",
    "Output",
    "RowFile",
    "SparkFiles",
]


@dataclass(slots=True)
class FormatContext:
    """What a decoder knows: the columns to deliver and the policy for bad records.

    Args:
        schema: The table's columns.
        projection: Indices into ``schema``: the columns to deliver.
        options: The table's options.
        bad_record: ``bad_record(error, raw bytes or None, where)`` raises the error, or counts the record, which is
            then left out.
        metadata: Keys of ``Format.metadata`` whose columns follow those of the projection.
        unread: Fields of ROW columns that nobody reads, column → fields; a decoder may give NULL for them.
        extra: ``extra["lines_before"]``: lines of the file before the part that is decoded.
    """

    schema: Schema
    projection: Sequence[int]
    options: Mapping[str, str]
    bad_record: Callable[[Exception, bytes | None, str], None]
    extra: dict[str, Any] = field(default_factory=dict)
    metadata: Sequence[str] = ()
    unread: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Decoder(ABC):
    """Messages → columns of ``schema.select(projection)``.

    A decoder that must fetch something first (schemas of a registry) sets ``fetches`` and overrides ``prepare``. It
    never waits in ``decode``, which runs on the data thread.
    """

    #: Connectors call ``prepare`` before ``decode`` and ``decode_batch``.
    fetches: bool = False

    def prepare(self, messages: Sequence[bytes]) -> Coroutine[Any, Any, None] | None:
        """What must be awaited before these messages can be decoded; None: nothing.

        The coroutine raises ConnectorError, or ExternalError when whoever is asked is away for too long.
        """
        return None

    @abstractmethod
    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        """The records of ``messages``, one in each, as columns. ``where(i)`` names message i in errors."""

    def decode_numbered(
        self, messages: Sequence[bytes], where: Callable[[int], str]
    ) -> tuple[Batch, np.ndarray | None]:
        """``decode``, and for each row the number of its message. None: row i is that of message i, unless there are
        fewer rows than messages because some were rejected. A format of changes gives the numbers, since its messages have any
        number of rows. ``where(i)`` names message i in errors."""
        return self.decode(messages, where), None

    @abstractmethod
    def decode_batch(self, data: bytes, where: str) -> Batch:
        """The records of ``data``, many in one message or file part (JSON lines, CSV, Arrow IPC …), as columns.

        ``where`` names the message or part in errors.
        """

    @property
    def has_header(self) -> bool:
        """Whether files begin with a line that is no record (``set_header`` takes it)."""
        return False

    @property
    def quote(self) -> bytes | None:
        """The quote character between two of which a line end does not end the record; None if every line end
        does."""
        return None

    def set_header(self, line: bytes, where: str) -> None:  # noqa: B027
        """Take ``line``, the first line of the file whose rows follow. ConnectorError when it lacks a column.

        ``where`` names the file.
        """


class Encoder(ABC):
    """Columns → messages or file parts."""

    async def open(self) -> None:  # noqa: B027
        """Ask those outside whom the encoder needs (a schema registry). Connectors await it before any row.

        Raises ConnectorError, or ExternalError when whoever is asked is away for too long.
        """

    @abstractmethod
    def encode(self, batch: Batch) -> list[bytes]:
        """One message for each row."""

    @abstractmethod
    def encode_batch(self, batch: Batch) -> bytes:
        """One message or file part for all rows."""

    def file_header(self) -> bytes:
        """The bytes with which a file begins, before any row."""
        return b""


class Format(ABC):
    """A named format. Its options carry its name as prefix (``json.…``)."""

    name: str
    options: OptionSet
    #: False: files only; connectors for messages refuse it.
    messages: bool = True
    #: True: rows have kinds, and a table that is read in this format is a changelog (``retract``).
    changelog: bool = False
    #: Messages hold fields by their order, without names: read with fewer fields of a ROW, they would be misread.
    positional: bool = False
    #: What records say beside the row: key → type. ``METADATA FROM 'value.<key>'`` reads it.
    metadata: Mapping[str, LogicalType] = {}
    #: File name extension, without the dot.
    extension: str = ""
    #: How the format is stored in files; None for a format of messages only.
    files: FileFormat | None = None

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        """Check a table's columns and options.

        Raises ConnectorError for a malformed one of ``options``, and UnsupportedError for a column of ``schema`` whose type
        the format cannot hold; it names the column.
        """
        self.options.check({k: v for k, v in options.items() if k.startswith(f"{self.name}.")})

    def topic_options(self, options: Mapping[str, str], topic: str, part: str) -> Mapping[str, str]:
        """``options`` with what follows from where messages lie, where the table does not say it.

        Args:
            options: The table's options.
            topic: The one topic that the table names.
            part: ``key`` or ``value``.
        """
        return options

    @abstractmethod
    def decoder(self, ctx: FormatContext) -> Decoder:
        """A new decoder for ``ctx``: the columns to deliver and the policy for bad records."""

    @abstractmethod
    def encoder(self, schema: Schema, options: Mapping[str, str]) -> Encoder:
        """A new encoder for rows of ``schema``; ``options``: the table's. Asks nobody outside.

        Raises ConnectorError for an option that only sinks need.
        """


# -- files ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a part.

    ``at``: the position at which reading may resume, a number that never falls from block to block (byte
    offset, row group). ``decode`` gives the rows; it is called once, on the data thread.
    """

    at: int
    decode: Callable[[], Batch]


@dataclass(slots=True)
class FileContext:
    """One part of one file, to be read.

    Args:
        path: The file.
        part: What ``FileFormat.parts`` gave.
        open: Opens the file, seekable; raises ConnectorError when it cannot be read.
        run: ``await run(f)`` calls ``f`` in the helper thread; for calls that block and release the lock.
        format: The columns to deliver and the policy for bad records.
        batch_rows: Greatest number of rows that a block should have, where the format can choose.
    """

    path: str
    part: Mapping[str, Any]
    open: Callable[[], BinaryIO]
    run: Callable[[Callable[[], Any]], Awaitable[Any]]
    format: FormatContext
    #: The greatest number of rows of a block, if the format can choose it.
    batch_rows: int

    @property
    def schema(self) -> Schema:
        """The columns to deliver."""
        return self.format.schema.select(self.format.projection)


class FileReader(ABC):
    """Reads one part of a file."""

    def __init__(self, ctx: FileContext) -> None:
        self._ctx = ctx

    @abstractmethod
    def blocks(self, at: int | None) -> AsyncIterator[Block]:
        """The blocks of the part in order, from the one at ``at`` on (None: all). The same file gives the
        same blocks again. ConnectorError for a file that is damaged or has become shorter."""


class Output(Protocol):
    """A file that is being written, as pyarrow takes it."""

    def write(self, data: Any) -> int:
        """Append ``data``; the number of its bytes."""

    def tell(self) -> int:
        """Bytes written so far."""


class RowFile(Protocol):
    """A file of rows that is being written. ``close`` ends the format (footer) and not the file beneath."""

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""

    def close(self) -> None:
        """Write the footer. Does not close the file beneath."""


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """How Spark's own reader of the format differs from ours.

    ``name``: Spark's name of the format. ``row_index``: it gives a row's number in its file. ``timestamps``: it
    reads the times that Arrow writes. ``nanoseconds``: times that Arrow shows as nanoseconds have another unit
    in the file.
    """

    name: str
    row_index: bool
    timestamps: bool
    nanoseconds: bool


class FileFormat(ABC):
    """How a format is stored in files."""

    #: True: whole batches are written in the helper thread (native code that releases the lock);
    #: False: a few thousand rows at a time on the data thread.
    native_writer: bool = False
    #: Set if Spark's own reader gives the same rows of these files, and is no slower.
    spark: SparkFiles | None = None

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        """The parts of a file, in order, as JSON values; each is a split. Blocks; runs in the helper thread.

        Args:
            path: The file.
            size: Its bytes.
            open: Opens it, seekable.
            part_bytes: About the bytes of a part; 0: do not cut.
        """
        return [{"start": 0, "end": size}]

    @abstractmethod
    def reader(self, ctx: FileContext) -> FileReader:
        """A new reader of one part of a file, ``ctx``."""

    @abstractmethod
    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> RowFile:
        """A new file of rows.

        Args:
            sink: The file beneath.
            schema: Columns of the rows.
            options: The table's options.
        """

    def stored_schema(self, path: str) -> pa.Schema | None:
        """The columns of a local file as its footer has them; None if it is no such file."""
        return None
