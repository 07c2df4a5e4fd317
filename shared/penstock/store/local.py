"""A folder as object storage: atomic, durable, conditional create.

Ours and not obstore's ``LocalStore``, because that one never calls fsync (seen with
strace, obstore 0.12): after a loss of power a checkpoint that counted as complete could
be empty. An object is written beside its place, fsynced, then renamed (put) or
hard-linked (create: fails when the name exists), and the folder is fsynced.

Folders are no part of the port: a write makes those it needs, and whoever takes the last
object out of one takes it away, and those above it that are empty then, but never the root.
Other processes do the same at the same moment. A folder that is not empty cannot be
removed, so a file being written holds its folder; before there is one the folder may go
at any time, and the write begins again.

Every call runs in a thread; file I/O releases the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import ObjectStoreError
from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.ports import Store

T = TypeVar("T")

#: Names of files being written start so; never listed, left behind only by a crash.
_PARTIAL = ".partial-"
#: Times that a write makes its folder anew. Each time another delete has removed it in the few
#: microseconds before the file was there: what fails so often has another reason.
_TRIES = 100
#: Of ``rmdir``: something is in it, or it is no folder but a file or a link.
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
#: And: something is mounted there, or it may not be removed. The objects are deleted all the same.
_LEFT_STANDING = _NOT_EMPTY | {errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}


class LocalStore:
    """``root``: the folder; made when it is not there."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        try:
            self._make_folder(self.root)
        except OSError as err:
            raise self._error(err, "") from err

    # -- the port ---------------------------------------------------------------------

    async def get(self, key: str) -> bytes:
        return await self._run(key, lambda path: path.read_bytes())

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        def read(path: Path) -> bytes:
            with path.open("rb") as file:
                return os.pread(file.fileno(), length, start)

        return await self._run(key, read)

    async def put(self, key: str, data: bytes) -> None:
        await self._run(None, lambda root: self._write(root / check_key(key), data, os.replace))

    async def create(self, key: str, data: bytes) -> bool:
        def create(root: Path) -> bool:
            try:
                self._write(root / check_key(key), data, os.link)
            except FileExistsError:
                return False
            return True

        return await self._run(None, create)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        return await self._run(None, lambda root: self._list(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._run(None, lambda root: self._delete(keys))

    async def remove_folder(self, folder: str) -> None:
        """If it is empty."""

        def remove(root: Path) -> None:
            _remove_empty(root / check_key(folder))

        await self._run(None, remove)

    async def copy(self, key: str, target: str) -> None:
        """An object that never changes may have two names; across file systems it is copied."""

        def copy(source: Path) -> None:
            def fill(partial: Path) -> None:
                try:
                    _link_or_copy(source, partial)
                except (IsADirectoryError, NotADirectoryError):
                    raise KeyError(key) from None
                except FileNotFoundError:
                    if source.exists():  # it is the partial file's folder that is gone
                        raise
                    raise KeyError(key) from None

            try:
                self._make(self.root / check_key(target), fill, os.replace)
            except OSError as err:  # no OSError means that the source is missing
                raise self._error(err, "") from err

        await self._run(key, copy)

    # -- in the thread ----------------------------------------------------------------

    async def _run(self, key: str | None, call: Callable[[Path], T]) -> T:
        """``key``: what is read, KeyError when it is not there."""
        path = self.root if key is None else self.root / check_key(key)
        try:
            return await asyncio.to_thread(call, path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as err:
            if key is None:
                raise self._error(err, "") from err
            raise KeyError(key) from None
        except OSError as err:
            raise self._error(err, key or "") from err

    def _error(self, err: OSError, key: str) -> ObjectStoreError:
        return ObjectStoreError(
            f"the object store in {self.root} failed: {err.strerror or err}",
            where=key or (str(err.filename) if err.filename else str(self.root)),
            remedy="check that the folder exists, is writable and has space left",
        )

    def _make_folder(self, folder: Path) -> None:
        """``mkdir -p``, each new entry durable in its parent. FileNotFoundError when a folder on the
        way was removed meanwhile."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            os.mkdir(folder)
        except FileExistsError:
            # Made by another, maybe removed again. Anything but a folder would mean, of ``create``,
            # that the object is there.
            if not stat.S_ISDIR(os.lstat(folder).st_mode) and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        _fsync_folder(folder.parent)

    def _write(self, path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
        def fill(partial: Path) -> None:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

        self._make(path, fill, publish)

    def _make(
        self, path: Path, fill: Callable[[Path], None], publish: Callable[[Path, Path], object]
    ) -> None:
        """As often as somebody removes the folder before there is a file in it."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._make_once(path, fill, publish)
            except FileNotFoundError:
                if not tries_left:
                    raise
            else:
                return

    def _make_once(
        self, path: Path, fill: Callable[[Path], None], publish: Callable[[Path, Path], object]
    ) -> None:
        """FileNotFoundError: the folder was removed, and nothing is published."""
        self._make_folder(path.parent)
        partial = path.parent / f"{_PARTIAL}{uuid.uuid4().hex}"
        try:
            fill(partial)
            # Opened while the partial file holds it: once published, the object may be deleted,
            # and its folder with it, before the folder is synced.
            with _opened(path.parent) as folder:
                publish(partial, path)
                os.fsync(folder)
        finally:
            self._drop(partial)

    def _drop(self, partial: Path) -> None:
        try:
            partial.unlink()
        except FileNotFoundError:  # renamed, or never there
            return
        # While it was there, a delete could not remove the folder.
        self._prune(partial.parent)

    def _delete(self, keys: Sequence[str]) -> None:
        folders = set()
        for key in keys:
            path = self.root / check_key(key)
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            self._prune(folder)

    def _prune(self, folder: Path) -> None:
        """Remove it and those above it that are empty, below the root. Of a store that is the whole
        file system none: its folders are other people's."""
        if self.root == self.root.parent:
            return
        while folder != self.root and _remove_empty(folder, _LEFT_STANDING):
            folder = folder.parent

    def _list(self, prefix: str) -> Sequence[tuple[str, int]]:
        # Only the folder that the prefix names is walked.
        start = self.root / prefix.rpartition("/")[0]
        found = []
        for folder, _, names in os.walk(start):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self.root).as_posix()
                if name.startswith(_PARTIAL) or not key.startswith(prefix):
                    continue
                try:
                    found.append((key, path.stat().st_size))
                except FileNotFoundError:  # deleted since the walk
                    continue
        return sorted(found)


def _remove_empty(folder: Path, left: frozenset[int] = _NOT_EMPTY) -> bool:
    """Whether it is gone now. ``left``: errors of a folder that may stay."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as err:
        if err.errno not in left:
            raise
        return False
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb+") as file:
            os.fsync(file.fileno())


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _fsync_folder(folder: Path) -> None:
    with _opened(folder) as fd:
        os.fsync(fd)


if TYPE_CHECKING:
    _port: type[Store] = LocalStore
