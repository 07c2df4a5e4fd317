"""Writes compressed files of text, as ``formats.compressed`` reads them. Such files may be joined: their bytes one behind the
other are a file of all their rows."""

from __future__ import annotations

import lzma
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.formats.api import Output

#: Name of a compression → extension of its files.
COMPRESSIONS = {"gzip": "gz", "bzip2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}
_ARROW = {"gzip": "gzip", "bzip2": "bz2", "zstd": "zstd", "lz4": "lz4"}


class CompressedFile:
    """An ``Output`` that compresses what is written into ``file``. ``close`` ends the compressed stream; the file beneath stays
    open."""

    def __init__(self, file: Output, compression: str) -> None:
        self._file = file
        self._lzma: lzma.LZMACompressor | None = None
        self._stream: Any = None
        if compression == "xz":
            self._lzma = lzma.LZMACompressor()
        else:
            self._beneath = pa.PythonFile(_Unclosed(file), mode="w")
            self._stream = pa.CompressedOutputStream(self._beneath, _ARROW[compression])
        self._given = 0

    def write(self, data: Any) -> int:
        """Append ``data``; the number of its bytes before compression."""
        size = memoryview(data).nbytes
        self._given += size
        if self._lzma is not None:
            self._append(self._lzma.compress(data))
        else:
            self._stream.write(data)
        return size

    def tell(self) -> int:
        """The number of bytes given so far, before compression."""
        return self._given

    def close(self) -> None:
        """Write the end of the compressed stream."""
        if self._lzma is not None:
            self._append(self._lzma.flush())
        else:
            self._stream.close()

    def _append(self, data: bytes) -> None:
        if data:
            self._file.write(data)


class _Unclosed:
    """The file beneath, which pyarrow must not close."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        """Does nothing: the file is flushed when it is closed."""

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.closed = True
