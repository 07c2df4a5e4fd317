"""Compressed files of text: the file's extension names the compression, and the bytes are decompressed as a stream.

A compressed file is read from its start, so it is one split, and a position in it is an offset of the decompressed bytes.
"""

from __future__ import annotations

import lzma
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import ConnectorError
from penstock.formats.file_errors import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

#: Extension (in lower case) → compression. Flink reads the first six; the others are of other tools and of Hadoop.
EXTENSIONS = {
    "gz": "gzip", "gzip": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstd", "deflate": "deflate",
    "zstd": "zstd", "lz4": "lz4", "snappy": "snappy", "sz": "snappy",
}  # fmt: skip

_ARROW = {"gzip": "gzip", "bzip2": "bz2", "zstd": "zstd", "lz4": "lz4"}
_CHUNK = 128 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
#: Hadoop's block streams say the bytes of a block beforehand; more than this is no such stream.
_MAX_BLOCK = 1 << 28


def compression_of(path: str) -> str | None:
    """The compression that a file's name tells (``a.json.gz``); None for another extension."""
    name = path.rpartition("/")[2]
    return EXTENSIONS.get(name.rpartition(".")[2].lower()) if "." in name else None


class DecompressedFile:
    """The decompressed bytes of a file, as a file that can be read from its start.

    ``seek`` goes forward, or back as far as the last ``seek``; farther back it opens the file again. Errors of damaged
    data are ConnectorErrors that name the file.
    """

    def __init__(self, open: Callable[[], BinaryIO], compression: str, path: str) -> None:
        self._open = open
        self._compression = compression
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._handle = self._open()
        self._chunks = _chunks(self._handle, self._compression)
        #: Bytes from offset ``_start`` on that were decompressed; those before ``_at`` were read.
        self._window = bytearray()
        self._start = self._at = 0

    def seek(self, offset: int) -> None:
        """Continue at ``offset`` of the decompressed bytes, or at their end when there are fewer."""
        if offset < self._start:
            self.close()
            self._begin()
        while self._start + len(self._window) < offset:
            self._start += len(self._window)
            self._window.clear()
            if not self._more():
                break
        drop = min(offset - self._start, len(self._window))
        del self._window[:drop]
        self._start += drop
        self._at = self._start

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; fewer only at the end."""
        begin = self._at - self._start
        while len(self._window) < begin + size and self._more():
            pass
        out = bytes(self._window[begin : begin + size])
        self._at += len(out)
        return out

    def readline(self) -> bytes:
        """The bytes through the next line end."""
        begin = at = self._at - self._start
        while (found := self._window.find(b"\n", at)) < 0:
            at = len(self._window)
            if not self._more():
                found = at - 1
                break
        out = bytes(self._window[begin : found + 1])
        self._at += len(out)
        return out

    def close(self) -> None:
        """Close the file beneath."""
        self._handle.close()

    def _more(self) -> bool:
        try:
            chunk = next(self._chunks, None)
        except (OSError, EOFError, lzma.LZMAError, zlib.error, _Corrupt) as err:
            raise damaged(self._path, self._compression, err) from err
        if chunk is None:
            return False
        self._window += chunk
        return True


class _Corrupt(Exception):
    """The bytes are not of the compression that the file's name tells."""


def _chunks(handle: Any, compression: str) -> Iterator[bytes]:
    """The decompressed bytes, which are not empty. An empty file is no compressed file of nothing, but one whose
    writer has not begun: it is an error."""
    begin = handle.read(len(_SNAPPY_MAGIC))
    if not begin:
        raise _Corrupt("the file is empty; even a file without rows has a header")
    handle.seek(0)
    match compression:
        case "xz":
            yield from _xz(handle)
        case "deflate":
            yield from _deflate(handle)
        case "lz4" if begin[:4] != _LZ4_MAGIC:
            raise _Corrupt(
                f"a file that begins with {begin[:4]!r}: it is not of LZ4's frames; Hadoop's blocks are not read"
            )
        case "snappy" if begin == _SNAPPY_MAGIC:
            yield from _snappy_frames(handle)
        case "snappy":
            yield from _hadoop_blocks(handle)
        case _:
            yield from _read(pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), _ARROW[compression]))


def _read(stream: Any) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _deflate(handle: Any) -> Iterator[bytes]:
    """A zlib stream, as Java's Deflater writes it."""
    decoder = zlib.decompressobj()
    while data := handle.read(_CHUNK):
        while data:
            chunk = decoder.decompress(data, _CHUNK)
            if chunk:
                yield chunk
            if decoder.eof and decoder.unused_data:
                raise _Corrupt("data behind the end of the compressed stream")
            data = decoder.unconsumed_tail
        if decoder.eof and handle.read(1):
            raise _Corrupt("data behind the end of the compressed stream")
    if not decoder.eof:
        raise EOFError("the compressed stream ends too early")


def _xz(handle: Any) -> Iterator[bytes]:
    """One stream of xz behind the other, with zeros between them."""
    decoder, data = lzma.LZMADecompressor(), b""
    while data or (data := bytes(handle.read(_CHUNK))):
        chunk = decoder.decompress(data, _CHUNK)
        if chunk:
            yield chunk
        while not decoder.eof and not decoder.needs_input:
            if chunk := decoder.decompress(b"", _CHUNK):
                yield chunk
        data = b""
        if decoder.eof:
            rest = decoder.unused_data.lstrip(b"\0")
            while not rest and (more := bytes(handle.read(_CHUNK))):
                rest = more.lstrip(b"\0")
            if not rest:
                return
            decoder, data = lzma.LZMADecompressor(), rest
    raise EOFError("the compressed stream ends too early")


def _exactly(handle: Any, size: int) -> bytes:
    data = bytes(handle.read(size))
    if len(data) < size:
        raise EOFError("the compressed stream ends too early")
    return data


def _number(data: bytes) -> int:
    size = int.from_bytes(data, "big")
    if size > _MAX_BLOCK:
        raise _Corrupt(f"a block of {size} bytes: neither frames of snappy nor Hadoop's blocks")
    return size


def _hadoop_blocks(handle: Any) -> Iterator[bytes]:
    """Blocks of snappy as Hadoop and Spark write them: the number of a block's decompressed bytes, then pieces, each
    behind the number of its compressed bytes."""
    codec = pa.Codec("snappy")
    while first := handle.read(1):
        size, done = _number(bytes(first) + _exactly(handle, 3)), 0
        while done < size:
            data = _exactly(handle, _number(_exactly(handle, 4)))
            length = _snappy_length(data)
            if not 0 < length <= size - done:
                raise _Corrupt(f"a piece of {length} bytes in a block of {size}")
            yield codec.decompress(data, length, asbytes=True)
            done += length


def _snappy_length(data: bytes) -> int:
    """The number with which raw snappy data begins: its decompressed bytes."""
    value = 0
    for i, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value
    raise _Corrupt("no snappy data")


def _snappy_frames(handle: Any) -> Iterator[bytes]:
    """The frames of snappy's own tools. Each is decoded by itself behind the stream's header, checksum included."""
    cramjam = _cramjam()
    while begin := handle.read(1):
        size = int.from_bytes(_exactly(handle, 3), "little")
        frame = bytes(begin) + size.to_bytes(3, "little") + _exactly(handle, size)
        kind = frame[0]
        if kind in (0x00, 0x01):
            try:
                chunk = bytes(cramjam.snappy.decompress(_SNAPPY_MAGIC + frame))
            except cramjam.DecompressionError as err:
                raise _Corrupt(str(err)) from err
            if chunk:
                yield chunk
        elif 0x02 <= kind <= 0x7F:
            raise _Corrupt(f"a frame of the unknown kind {kind}")


def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError as err:
        raise ConnectorError(
            "a file of snappy's frames needs a package that is not installed",
            expected="the package 'cramjam'",
            got=str(err),
            remedy="pip install 'penstock[snappy]' on every task manager",
        ) from err
    return cramjam
