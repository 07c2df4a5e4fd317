"""Files in an object store, through obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure.

What a store answers is told apart: refused credentials and a bucket that is not there are errors of the table's options, which
another attempt does not mend; everything else is a store that does not answer now.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from penstock.connectors.filesystem.paths import GLOB, FileInfo, Files, hidden
from penstock.connectors.unanswered import unanswered
from penstock.errors import ConnectorError, ObjectStoreError, PenstockError, ServerAwayError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class ObjectFiles(Files):
    """Files in an object store; a path stays the whole URL."""

    def __init__(self, root: str, options: Mapping[str, str], *, impatient: bool = False) -> None:
        from penstock.store.open import open_obstore

        parts = urlsplit(root)
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._store = open_obstore(self._root, options, impatient=impatient)

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/")

    def list(self, pattern: str) -> list[FileInfo]:
        import obstore

        key = self._key(pattern)
        prefix = GLOB.split(key)[0].rpartition("/")[0] if GLOB.search(key) else key
        matches = re.compile(_glob_regex(key)) if GLOB.search(key) else None
        out = []
        if matches is None and key and self.exists(pattern):
            with _asked(pattern):
                return [_object_info(pattern, obstore.head(self._store, key))]
        with _asked(pattern, listing=True):
            for page in obstore.list(self._store, prefix=prefix or None):
                for entry in page:
                    path = entry["path"]
                    relative = PurePosixPath(path).relative_to(prefix) if prefix else PurePosixPath(path)
                    if not hidden(relative) and (matches is None or matches.fullmatch(path)):
                        out.append(_object_info(f"{self._root}/{path}", entry))
        return sorted(out, key=lambda f: f.path)

    def open_input(self, path: str) -> BinaryIO:
        import obstore

        with _asked(path):
            return _Readable(obstore.open_reader(self._store, self._key(path)), path)  # type: ignore[return-value]

    def open_output(self, path: str) -> Any:
        import obstore

        with _asked(path):
            return _Writable(obstore.open_writer(self._store, self._key(path)), path)

    def sync(self, path: str) -> None:
        """A closed object is durable."""

    def rename(self, source: str, target: str) -> bool:
        import obstore

        with _asked(source):
            try:
                obstore.copy(self._store, self._key(source), self._key(target))
                obstore.delete(self._store, self._key(source))
            except FileNotFoundError:
                return False
        return True

    def exists(self, path: str) -> bool:
        import obstore

        with _asked(path):
            try:
                obstore.head(self._store, self._key(path))
            except FileNotFoundError:
                return False
        return True

    def delete(self, path: str) -> None:
        import obstore

        with _asked(path), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(path))


def _object_info(path: str, entry: Any) -> FileInfo:
    return FileInfo(path, entry["size"], round(entry["last_modified"].timestamp() * 1000))


class _Readable:
    """Wraps obstore's reader as the file object that pyarrow needs."""

    def __init__(self, reader: Any, path: str) -> None:
        self._reader = reader
        self._path = path
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        with _asked(self._path):
            return bytes(self._reader.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Does nothing: the file is only read."""

    def close(self) -> None:
        self.closed = True


class _Writable:
    """Wraps obstore's writer, so that its errors name the object."""

    def __init__(self, writer: Any, path: str) -> None:
        self._writer = writer
        self._path = path

    def write(self, data: Any) -> None:
        with _asked(self._path):
            self._writer.write(data)

    def close(self) -> None:
        with _asked(self._path):
            self._writer.close()


def _glob_regex(pattern: str) -> str:
    out = ""
    for part in re.split(r"(\*\*/?|\*|\?|\[[^\]]*\])", pattern):
        match part:
            case "**" | "**/":
                out += ".*"
            case "*":
                out += "[^/]*"
            case "?":
                out += "[^/]"
            case _ if part.startswith("["):
                out += part.replace("[!", "[^")
            case _:
                out += re.escape(part)
    return out


@contextlib.contextmanager
def _asked(path: str, *, listing: bool = False) -> Iterator[None]:
    """Turns what obstore raises inside into errors that name ``path``. ``listing``: an absent folder is an empty list, so
    what was not found is the bucket."""
    import obstore.exceptions

    try:
        yield
    except PenstockError:
        raise
    except (obstore.exceptions.BaseError, OSError) as err:
        raise _store_error(path, err, listing=listing) from err


def _store_error(path: str, err: Exception, *, listing: bool) -> PenstockError:
    import obstore.exceptions

    from penstock.store.objects import short

    said = short(err)[:500]
    refused = (
        obstore.exceptions.PermissionDeniedError,
        obstore.exceptions.UnauthenticatedError,
        PermissionError,
    )
    if isinstance(err, refused) or any(words in said for words in _REFUSED):
        return ConnectorError(
            "the object store refuses these credentials",
            expected="credentials that may list, read and write there",
            got=said,
            where=path,
            remedy="set the keys as the table's fs.* options (fs.access_key_id …), as secrets, or in the task managers' environment",
        )
    absent = isinstance(err, (FileNotFoundError, obstore.exceptions.NotFoundError))
    if any(word in str(err) for word in _NO_BUCKET) or (absent and listing):
        return ConnectorError(
            "there is no such bucket",
            expected="a bucket (of Azure: a container) that exists",
            got=said,
            where=path,
            remedy="check the URL and the endpoint, or create the bucket",
        )
    kind = ServerAwayError if unanswered(said) else ObjectStoreError
    return kind(
        "object storage failed",
        got=said,
        where=path,
        remedy="check that the bucket exists, the credentials and the connection",
    )


#: What errors say that have no class of their own: those of obstore's writers, and of listings.
_REFUSED = (
    "The operation lacked valid authentication credentials",
    "The operation lacked the necessary privileges",
    "status code: 401",
    "status code: 403",
)
#: What the stores call a bucket that is not there.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
