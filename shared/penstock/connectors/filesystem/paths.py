"""The port ``Files``: files on the local disk and in object storage.

A path is plain (``/data/x``), ``file:///data/x``, or a URL that obstore knows
(``s3://bucket/prefix``, ``gs://…``, ``az://…``). Hidden names (with a part that begins with ``.`` or ``_``)
are never listed, because uncommitted output has such names.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote, urlsplit

from penstock.errors import ConnectorError

if TYPE_CHECKING:
    pass

GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, its size in bytes, and when it was last modified (ms since the epoch)."""

    path: str
    size: int
    modified_ms: int = 0

    @classmethod
    def local(cls, path: Path) -> FileInfo:
        """A file of this machine."""
        found = path.stat()
        return cls(str(path), found.st_size, found.st_mtime_ns // 1_000_000)


#: Errors that another attempt does not mend: permissions, wrong paths, read-only file systems.
LASTING_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EEXIST,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EROFS,
        errno.ENAMETOOLONG,
    }
)


def _unreadable(path: str, why: str) -> ConnectorError:
    return ConnectorError(
        f"'{path}' cannot be read",
        expected="a file or folder that the task managers' user may read",
        got=why,
        where="connector 'filesystem', option 'path'",
        remedy="check the path and its permissions on every task manager",
    )


class Files(ABC):
    """The methods block and release the interpreter's lock; run them in the helper thread."""

    @abstractmethod
    def list(self, pattern: str) -> list[FileInfo]:
        """The file, the files below a folder, or the files that a glob matches, sorted by path."""

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder, even one without files. Object stores have none."""
        return False

    def make_folder(self, path: str) -> None:
        """Makes a folder, if it is not there. Object stores need none."""
        return

    @abstractmethod
    def open_input(self, path: str) -> BinaryIO:
        """A seekable file for reading."""

    @abstractmethod
    def open_output(self, path: str) -> Any:
        """A new file with ``write(bytes)`` and ``close()``; folders are made."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Makes what was written and closed survive a crash of the machine."""

    @abstractmethod
    def rename(self, source: str, target: str) -> bool:
        """Moves a file, replacing nothing. False if ``source`` is absent (already moved)."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Deletes a file; an absent file is no error."""


def join(folder: str, *names: str) -> str:
    """A path below ``folder``."""
    return "/".join([folder.rstrip("/"), *names])


def has_wildcard(path: str) -> bool:
    """True for a glob."""
    return bool(GLOB.search(path))


def hidden(relative: PurePosixPath) -> bool:
    """Whether a file of this path below a table's folder is hidden. A folder ``_column=value`` is a partition, and is not hidden."""
    return any(
        part.startswith(".") or (part.startswith("_") and ("=" not in part or part == relative.name))
        for part in relative.parts
    )


class LocalFiles(Files):
    """The files of this machine."""

    def list(self, pattern: str) -> list[FileInfo]:
        self._check_readable(pattern)
        if GLOB.search(pattern):
            root = Path(GLOB.split(pattern)[0]).parent
            found = [Path(p) for p in glob.glob(pattern, recursive=True)]
        else:
            root = Path(pattern)
            if root.is_file():
                return [FileInfo.local(root)]
            found = list(root.rglob("*")) if root.is_dir() else []
        out = []
        for path in sorted(found):
            try:
                if path.is_file() and not hidden(PurePosixPath(path.relative_to(root))):
                    out.append(FileInfo.local(path))
            except FileNotFoundError:
                continue  # the file was renamed or deleted since it was listed
        return out

    def _check_readable(self, pattern: str) -> None:
        """Raises an error if the folder is not readable. Listing would skip it and report that there is no
        file."""
        root = Path(GLOB.split(pattern)[0]).parent if GLOB.search(pattern) else Path(pattern)
        if root.is_dir() and not os.access(root, os.R_OK | os.X_OK):
            raise _unreadable(str(root), "permission denied")

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def open_input(self, path: str) -> BinaryIO:
        try:
            return open(path, "rb")
        except OSError as err:
            if err.errno in LASTING_ERRNOS:
                raise _unreadable(path, err.strerror or str(err)) from err
            raise

    def open_output(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb")

    def sync(self, path: str) -> None:
        for target in (path, str(Path(path).parent)):
            handle = os.open(target, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def rename(self, source: str, target: str) -> bool:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(source, target)
        except FileNotFoundError:  # the file was moved already, perhaps just now by an older attempt
            return False
        self.sync(target)
        return True

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


def local_path(path: str) -> str | None:
    """The path on this machine's disk, None for object storage."""
    parts = urlsplit(path)
    if not parts.scheme:
        return path
    return unquote(parts.path) if parts.scheme == "file" else None


#: The folder to which relative paths refer while planning. None: there is none, because the user who wrote
#: the path works on another machine (in the planner of a cluster).
working_folder: ContextVar[Callable[[], str] | None] = ContextVar("working_folder", default=os.getcwd)


def absolute_path(path: str, *, where: str) -> str:
    """The path in a form that means the same in every process of a cluster: URLs are unchanged, ``~`` and
    relative paths are resolved. ConnectorError if there is no folder to resolve them against."""
    local = local_path(path)
    if local is None or os.path.isabs(local):
        return path
    folder = working_folder.get()
    if folder is None:
        raise ConnectorError(
            f"'{path}' is a relative path",
            expected="an absolute path or a URL: this job is planned in the cluster, which does not "
            "know your folder",
            got=repr(path),
            where=where,
            remedy="write the whole path, or submit with 'penstock sql -f' or 'penstock run', which "
            "resolve it against the folder that you are in",
        )
    expanded = os.path.expanduser(local)
    # normpath must not be used: it would change a glob's '**' and drop a trailing '/'.
    return expanded if os.path.isabs(expanded) else os.path.join(folder(), expanded)
