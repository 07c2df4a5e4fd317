"""A file that is being written, as formats take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.filesystem.paths import LASTING_ERRNOS
from penstock.errors import ConnectorError, ExternalError

if TYPE_CHECKING:
    from penstock.connectors.filesystem.paths import Files
    from penstock.formats.api import RowFile
    from penstock.formats.compressing import CompressedFile


class CountingFile:
    """A file object for pyarrow that wraps a file opened by a ``Files`` port and counts the bytes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append ``data``; return the number of its bytes."""
        self._handle.write(data)
        size = memoryview(data).nbytes
        self.written += size
        return size

    def tell(self) -> int:
        """The number of bytes written."""
        return self.written

    def flush(self) -> None:
        """Does nothing: the handle flushes when it is closed."""

    def readable(self) -> bool:
        """False: the file is only written."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False: the file is written from its start to its end."""
        return False

    def close(self) -> None:
        """Close the handle, once."""
        if not self.closed:
            self.closed = True
            self._handle.close()


@dataclass(slots=True)
class OpenFile:
    """A file that a sink writes. ``folder``: the partition's folder below the table's; empty without partitions. Times are ms
    since the epoch: when it was begun, and when rows were written last."""

    folder: str
    path: str
    file: CountingFile
    rows: RowFile
    created_ms: int
    written_ms: int
    compressed: CompressedFile | None = None
    #: Whether the visible file ends with this part; else the next part continues it.
    ends: bool = False

    def close(self) -> None:
        """Write the ends of the format and of the compression, and close the file. Blocks."""
        self.rows.close()
        if self.compressed is not None:
            self.compressed.close()
        self.file.close()


def make_table_folder(files: Files, folder: str) -> None:
    """A table into which a job writes is there, even if no row comes. Raises what ``write_error`` makes of an error."""
    try:
        files.make_folder(folder)
    except OSError as err:
        raise write_error(err, folder) from err


def write_error(err: Exception, folder: str) -> Exception:
    """``err`` as an error that names the ``folder`` in which a file cannot be written."""
    if isinstance(err, OSError):
        # A full disk may recover by itself; permissions and wrong paths do not.
        kind = ConnectorError if err.errno in LASTING_ERRNOS else ExternalError
        out = kind(
            "cannot write a file",
            got=str(err),
            where=folder,
            remedy="check the disk's space and the folder's permissions on every task manager",
        )
        out.__cause__ = err
        return out
    return err
