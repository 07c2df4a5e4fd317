"""The public port of formats: bytes to columns and back.

A format decodes and encodes *messages* (a record each, or many in one), *files*, or both. It is named by
``'format' = 'name'`` and found by the entry point group ``penstock.formats`` or by its import path. Formats
know nothing of connectors: a connector hands them bytes, or opens a file for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from typing import BinaryIO

    import pyarrow as pa

    from penstock.options import OptionSet
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

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
    """What a decoder knows: delivered columns and the policy for bad records.

    ``schema``: the table's columns; ``projection``: indices into it, the columns to deliver;
    ``bad_record(error, raw bytes or None, where)``: raises, or counts the record, which is then left out;
    ``extra["lines_before"]``: lines of the file before the part that is decoded.
    """

    schema: Schema
    projection: Sequence[int]
    options: Mapping[str, str]
    bad_record: Callable[[Exception, bytes | None, str], None]
    extra: dict[str, Any] = field(default_factory=dict)


class Decoder(ABC):
    """Messages → columns of ``schema.select(projection)``."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        """One record a message. ``where(i)`` names message i for errors."""

    @abstractmethod
    def decode_batch(self, data: bytes, where: str) -> Batch:
        """Many records in one message or file part (JSON lines, CSV, Arrow IPC …)."""

    @property
    def has_header(self) -> bool:
        """Whether files begin with a line that is no record (``set_header`` takes it)."""
        return False

    @property
    def quote(self) -> bytes | None:
        """The character between which a line end ends no record; None where every line end does."""
        return None

    def set_header(self, line: bytes, where: str) -> None:  # noqa: B027
        """The first line of the file whose rows follow. ConnectorError when it lacks a column."""


class Encoder(ABC):
    """Columns → messages or file parts."""

    @abstractmethod
    def encode(self, batch: Batch) -> list[bytes]:
        """One message a row."""

    @abstractmethod
    def encode_batch(self, batch: Batch) -> bytes:
        """One message or file part for all rows."""

    def file_header(self) -> bytes:
        """What a file begins with, before any row."""
        return b""


class Format(ABC):
    """A named format. Its options carry its name as prefix (``json.…``)."""

    name: str
    options: OptionSet
    #: False: files only; connectors for messages refuse it.
    messages: bool = True
    #: File name extension, without the dot.
    extension: str = ""
    #: How it lies in files; None = messages only.
    files: FileFormat | None = None

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        """ConnectorError for malformed options, UnsupportedError for a column of a type that the format
        cannot hold (it names the column)."""
        self.options.check({k: v for k, v in options.items() if k.startswith(f"{self.name}.")})

    @abstractmethod
    def decoder(self, ctx: FormatContext) -> Decoder: ...

    @abstractmethod
    def encoder(self, schema: Schema, options: Mapping[str, str]) -> Encoder: ...


# -- files ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a part. ``at``: where reading may resume, a number that grows from block to block or
    stays (byte offset, row group); ``decode``: the rows, called once, on the data thread."""

    at: int
    decode: Callable[[], Batch]


@dataclass(slots=True)
class FileContext:
    """One part of one file, to be read.

    ``part``: what ``FileFormat.parts`` gave; ``open``: the file, seekable, ConnectorError when it cannot be
    read; ``run(f)``: ``f`` in the helper thread, for calls that block and release the interpreter's lock.
    """

    path: str
    part: Mapping[str, Any]
    open: Callable[[], BinaryIO]
    run: Callable[[Callable[[], Any]], Awaitable[Any]]
    format: FormatContext
    #: Greatest number of rows a block should have where the format can choose.
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

    def write(self, data: Any) -> int: ...

    def tell(self) -> int: ...


class RowFile(Protocol):
    """Rows go in; ``close`` ends the format (footer), not the file beneath."""

    def write(self, batch: Batch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """How Spark's own reader of the format differs from ours. ``name``: what Spark calls it;
    ``row_index``: it knows a row's number in its file; ``timestamps``: it reads those that Arrow writes;
    ``nanoseconds``: time stamps that Arrow shows as nanoseconds are none in the file."""

    name: str
    row_index: bool
    timestamps: bool
    nanoseconds: bool


class FileFormat(ABC):
    """How a format lies in files."""

    #: True: whole batches are written in the helper thread (native code that releases the lock);
    #: False: a few thousand rows at a time on the data thread.
    native_writer: bool = False
    #: Set where Spark's own reader reads the files as this one does, and no slower.
    spark: SparkFiles | None = None

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        """The parts of a file of ``size`` bytes, of about ``part_bytes`` each (0: do not cut), in order;
        JSON values. Each is a split. Blocks; runs in the helper thread."""
        return [{"start": 0, "end": size}]

    @abstractmethod
    def reader(self, ctx: FileContext) -> FileReader: ...

    @abstractmethod
    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> RowFile: ...

    def stored_schema(self, path: str) -> pa.Schema | None:
        """The columns of a local file as its footer has them; None when it is no such file."""
        return None
