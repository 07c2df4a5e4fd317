"""Avro container files: a header with the writer's schema, then blocks of records, each behind a marker."""

from __future__ import annotations

import io
import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import RecordError
from penstock.formats.api import Block, FileFormat, FileReader
from penstock.formats.avro.schema import Writer, table_schema
from penstock.formats.file_errors import damaged, not_of_kind, shrunk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import BinaryIO

    from penstock.formats.api import FileContext, Output
    from penstock.options import OptionSet
    from penstock.types import Batch
    from penstock.types.logical import Schema

_HEADER = {
    "type": "record", "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
    ],
}  # fmt: skip
_MAGIC = b"Obj\x01"
_MARKER = 16
_CHUNK = 64 * 1024
#: The number of bytes of a file that are decoded at a time.
_DECODED_AT_ONCE = 512 * 1024


class AvroFiles(FileFormat):
    """Container files, which can be read in parts."""

    def __init__(self, options: OptionSet) -> None:
        self._options = options

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        count = max(1, -(-size // part_bytes)) if part_bytes else 1
        edges = [size * i // count for i in range(count + 1)]
        return [{"start": a, "end": b} for a, b in itertools.pairwise(edges)]

    def reader(self, ctx: FileContext) -> AvroReader:
        return AvroReader(ctx)

    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> AvroFileWriter:
        return AvroFileWriter(sink, schema, self._options.read(options))


class AvroFileWriter:
    """Appends batches to one open file. fastavro's writer ends a block when it has 16,000 bytes."""

    def __init__(self, sink: Output, schema: Schema, options: Mapping[str, Any]) -> None:
        from fastavro.write import Writer as Container

        own = table_schema(schema, legacy=options["avro.timestamp_mapping.legacy"])
        # The header declares the logical types of times; fastavro also accepts numbers for them.
        beneath: Any = _Flushable(sink)
        self._container = Container(beneath, own, codec=options["avro.codec"])

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""
        from penstock.formats.avro.columns import to_records

        for record in to_records(batch):
            self._container.write(record)

    def close(self) -> None:
        """Write the last block. Does not close the file beneath."""
        self._container.flush()


class _Flushable:
    """The file beneath in the form that fastavro takes. Only its owner flushes it."""

    def __init__(self, sink: Output) -> None:
        self.write = sink.write

    def seekable(self) -> bool:
        """False: the file is new, so fastavro must not look for a header in it."""
        return False

    def flush(self) -> None:
        """Do nothing, because the owner of the file flushes it."""


class AvroReader(FileReader):
    """Reads the blocks of a container file whose preceding marker begins in [start, end)."""

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run, start, end = self._ctx.run, self._ctx.part["start"], self._ctx.part["end"]
        if not end:
            return
        handle = await run(self._ctx.open)
        try:
            decode = await run(partial(_Blocks, handle, self._ctx))
            offset = await run(partial(decode.first, start)) if at is None else at
            while offset is not None and offset - _MARKER < end:
                data, behind = await run(partial(decode.read, offset, end))
                if not data:
                    if offset < end:
                        raise shrunk(self._ctx.path, f"byte {offset} of {end}", "the file ends before that")
                    return
                yield Block(offset, partial(decode.to_batch, data))
                offset = behind
        finally:
            await run(handle.close)


class _Blocks:
    """The blocks of an open container file."""

    def __init__(self, handle: Any, ctx: FileContext) -> None:
        import fastavro

        from penstock.formats.avro.messages import BROKEN

        self._handle, self._path, self._schema, self._broken = handle, ctx.path, ctx.schema, BROKEN
        magic = handle.read(len(_MAGIC))
        if magic != _MAGIC:
            raise not_of_kind(
                ctx.path, "Avro", "an Avro container file", ValueError(f"begins with {magic!r}")
            )
        handle.seek(0)
        try:
            header: Any = fastavro.schemaless_reader(handle, fastavro.parse_schema(_HEADER), None)
            schema = json.loads(header["meta"]["avro.schema"])
        except BROKEN as err:
            raise damaged(ctx.path, "Avro", err) from err
        self._first, self._sync = handle.tell(), header["sync"]
        self._writer = Writer(schema, ctx.schema, ctx.path)
        meta = {**header["meta"], "avro.schema": json.dumps(self._writer.plain).encode()}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(_HEADER), {**header, "meta": meta})
        #: A header for the same blocks whose schema declares times as numbers.
        self._plain_header = out.getvalue()

    def first(self, start: int) -> int | None:
        """The first block whose marker begins at or after ``start``; None if there is none."""
        if start <= self._first - _MARKER:
            return self._first
        self._handle.seek(start)
        at, data = start, b""
        while chunk := bytes(self._handle.read(_CHUNK)):
            data += chunk
            found = data.find(self._sync)
            if found >= 0:
                return at + found + _MARKER
            at, data = at + len(data) - _MARKER + 1, data[-_MARKER + 1 :]
        return None

    def read(self, offset: int, end: int) -> tuple[bytes, int]:
        """(the blocks from ``offset`` on that belong to the part up to ``end``, the offset of the next block)."""
        self._handle.seek(offset)
        data, at = [], offset
        while at - _MARKER < end and at - offset < _DECODED_AT_ONCE:
            block = self._block()
            if not block:
                break
            data.append(block)
            at += len(block)
        return b"".join(data), at

    def _block(self) -> bytes:
        head = self._number(may_end=True)
        if not head:
            return b""
        size_text = self._number(may_end=False)
        size = _zigzag(size_text)
        rest = bytes(self._handle.read(size + _MARKER)) if size >= 0 else b""
        if size < 0 or len(rest) != size + _MARKER or rest[-_MARKER:] != self._sync:
            raise damaged(self._path, "Avro", ValueError("a block does not end with the file's marker"))
        return head + size_text + rest

    def _number(self, *, may_end: bool) -> bytes:
        out = b""
        while byte := bytes(self._handle.read(1)):
            out += byte
            if byte[0] < 0x80:
                return out
            if len(out) == 10:
                break
        if may_end and not out:
            return b""
        raise damaged(self._path, "Avro", ValueError("a block's length is cut off"))

    def to_batch(self, data: bytes) -> Batch:
        import fastavro

        from penstock.formats.avro.columns import to_batch

        try:
            rows = list(fastavro.reader(io.BytesIO(self._plain_header + data), self._writer.reader))
        except self._broken as err:
            raise damaged(self._path, "Avro", err) from err
        try:
            return to_batch(self._schema, self._writer, rows)  # type: ignore[arg-type]
        except self._broken as err:
            raise RecordError(
                f"'{self._path}' has a value that does not fit its column",
                expected=str(self._schema),
                got=str(err),
                where=self._path,
                remedy="declare the column with the type that is there",
            ) from err


def _zigzag(text: bytes) -> int:
    number = 0
    for i, byte in enumerate(text):
        number |= (byte & 0x7F) << (7 * i)
    return (number >> 1) ^ -(number & 1)
