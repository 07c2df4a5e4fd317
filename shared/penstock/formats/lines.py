"""Files of lines: one record in each line, decoded and encoded by the format's own decoder and encoder."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.formats.api import Block, Encoder, FileFormat, FileReader
from penstock.formats.compressed import DecompressedFile, compression_of
from penstock.formats.file_errors import shrunk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from penstock.formats.api import Decoder, FileContext, Format, Output
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

BLOCK_BYTES = 512 * 1024
_UNKNOWN_END = 1 << 62


class LineFiles(FileFormat):
    """Files of lines of ``format``. ``cut``: a file may be divided at any line end; False if a quoted cell may
    contain one."""

    def __init__(self, format: Format, *, cut: bool) -> None:
        self._format = format
        self._cut = cut

    def parts(
        self, path: str, size: int, open: Callable[[], BinaryIO], part_bytes: int
    ) -> list[dict[str, Any]]:
        if compression := compression_of(path):
            return [{"start": 0, "compression": compression}]
        if not self._cut or not part_bytes or size <= part_bytes:
            return [{"start": 0, "end": size}]
        count = -(-size // part_bytes)
        edges = [size * i // count for i in range(count + 1)]
        return [{"start": a, "end": b} for a, b in itertools.pairwise(edges)]

    def reader(self, ctx: FileContext) -> FileReader:
        return LineReader(ctx, self._format)

    def writer(self, sink: Output, schema: Schema, options: Mapping[str, str]) -> LineWriter:
        return LineWriter(sink, self._format.encoder(schema, options))


class LineWriter:
    """Appends encoded batches to a file."""

    def __init__(self, sink: Output, encoder: Encoder) -> None:
        self._sink = sink
        self._encoder = encoder
        if header := encoder.file_header():
            sink.write(header)

    def write(self, batch: Batch) -> None:
        """Append the rows of ``batch``."""
        self._sink.write(self._encoder.encode_batch(batch))

    def close(self) -> None:
        """Do nothing: lines need no footer."""


class LineReader(FileReader):
    """Reads the lines that begin in the bytes [start, end) of a file, or all lines of a compressed file."""

    def __init__(self, ctx: FileContext, format: Format) -> None:
        super().__init__(ctx)
        self._format = format

    async def blocks(self, at: int | None) -> AsyncIterator[Block]:
        run, start = self._ctx.run, self._ctx.part["start"]
        # How many bytes a compressed file holds is known when it has been read.
        whole: bool = "compression" in self._ctx.part
        end = _UNKNOWN_END if whole else self._ctx.part["end"]
        handle = await run(self._opened)
        decoder = self._format.decoder(self._ctx.format)
        quote = decoder.quote
        try:
            header = b""
            if decoder.has_header:
                header = await run(handle.readline)
                if not header:
                    if end and not whole:
                        raise shrunk(
                            self._ctx.path, f"byte {start if at is None else at} of {end}", "it is empty"
                        )
                    return  # an empty file has no rows, and no header either
                decoder.set_header(header, self._ctx.path)
                start = max(start, len(header))
            offset = start if at is None else max(at, start)
            if at is None and self._ctx.part["start"] > 0:
                offset = await run(partial(_next_line, handle, start))
            # Line numbers are known only if all of the file before was read.
            lines = len(header.splitlines()) if offset == start and self._ctx.part["start"] == 0 else None
            while offset < end:
                data = await run(partial(_whole_lines, handle, offset, end, quote))
                if not data and whole and handle.tell() >= offset:
                    return
                if not data:
                    # The file was longer when it was listed; the missing rows would be lost silently.
                    raise shrunk(self._ctx.path, f"byte {offset} of {end}", "the file ends before that")
                where = self._ctx.path if lines is not None else f"{self._ctx.path} from byte {offset}"
                yield Block(offset, partial(self._decode, decoder, data, where, lines))
                offset += len(data)
                if lines is not None:
                    lines += data.count(b"\n")
        finally:
            await run(handle.close)

    def _opened(self) -> Any:
        compression = self._ctx.part.get("compression")
        if compression is None:
            return self._ctx.open()
        return DecompressedFile(self._ctx.open, compression, self._ctx.path)

    def _decode(self, decoder: Decoder, data: bytes, where: str, lines_before: int | None) -> Batch:
        self._ctx.format.extra["lines_before"] = lines_before or 0
        return decoder.decode_batch(data, where)


def _next_line(handle: Any, start: int) -> int:
    """Offset of the first line that begins at or after ``start``."""
    handle.seek(start - 1)
    while chunk := handle.read(64 * 1024):
        found = chunk.find(b"\n")
        if found >= 0:
            return handle.tell() - len(chunk) + found + 1
    return handle.tell()


def _whole_lines(handle: Any, offset: int, end: int, quote: bytes | None) -> bytes:
    """About ``BLOCK_BYTES`` of whole records from ``offset`` (a record's start) on. Records that begin at or
    after ``end`` belong to another split. With ``quote``, a line end between quotes ends no record."""
    handle.seek(offset)
    data = bytes(handle.read(min(BLOCK_BYTES, end - offset)))
    while True:
        cut = _record_end(data, quote)
        at_end = offset + len(data) >= end
        if cut and (not at_end or cut == len(data)):
            return data[:cut]
        chunk = bytes(handle.read(64 * 1024))
        if not chunk:
            return data
        if at_end:  # only the rest of the record that has begun
            for at in _line_ends(chunk):
                if quote is None or (data.count(quote) + chunk[:at].count(quote)) % 2 == 0:
                    return data + chunk[:at]
        data += chunk


def _line_ends(chunk: bytes) -> Iterator[int]:
    at = chunk.find(b"\n")
    while at >= 0:
        yield at + 1
        at = chunk.find(b"\n", at + 1)


def _record_end(data: bytes, quote: bytes | None) -> int:
    """The offset just behind the last whole record in ``data``; 0 if there is none."""
    cut = data.rfind(b"\n") + 1
    while quote is not None and cut and data.count(quote, 0, cut) % 2:
        cut = data.rfind(b"\n", 0, cut - 1) + 1
    return cut


def quoted_records(
    lines: Sequence[bytes], first: int, quote: bytes | None, is_record: Callable[[bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    """Each record with the number of its first line, which is ``first`` for the first of ``lines``.

    Lines are one record where a quoted cell goes on in the next and ``is_record`` says so of them together; else each
    stands for itself, so that a wrong quote spoils no more than its own line.
    """
    i = 0
    while i < len(lines):
        end = i + 1
        if quote and lines[i].count(quote) % 2 and not is_record(lines[i]):
            last = next((k for k in range(end, len(lines)) if lines[k].count(quote) % 2), None)
            if last is not None and is_record(b"\n".join(lines[i : last + 1])):
                end = last + 1
        yield first + i, b"\n".join(lines[i:end])
        i = end
