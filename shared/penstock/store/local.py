"""A folder as object storage: atomic, durable, with a conditional create.

Penstock does not use obstore's ``LocalStore`` because it never calls fsync (observed with strace, obstore
0.12): after a loss of power, a checkpoint that counted as complete could be empty. Here an object is
written to a partial file beside its place and fsynced. Then the file is renamed (put) or hard-linked
(create, which fails if the name exists), and the folder is fsynced.

The port knows no folders. A write makes the folders that it needs. Whoever deletes the last object of a
folder removes the folder and its parents as far as they are empty, but never the root. Other processes do
the same at the same time. A partial file keeps its folder from being removed. Until the partial file
exists, another process may remove the folder; then the write starts again.

Every call runs in a thread, because file I/O releases the interpreter's lock.
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

#: The prefix of partial files. They are never listed, and only a crash leaves one behind.
_PARTIAL = ".partial-"
#: How often a write makes its folder again. Each try fails only if a delete removes the folder within the few
#: microseconds before the partial file exists, so a write that fails this often has another cause.
_TRIES = 100
#: Errors of ``rmdir``: the folder is not empty, or the path is a file or a link.
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
#: Further errors of ``rmdir`` that a delete ignores, because its objects are already gone: the folder is a
#: mount point, or this process may not remove it.
_LEFT_STANDING = _NOT_EMPTY | {errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}


class LocalStore:
    """Objects as files below the folder ``root``, which is made if it is absent; see
    ``penstock.ports.Store``.

    Every method raises ObjectStoreError if the file system refuses; so does the constructor.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        try:
            self._make_folder(self.root)
        except OSError as err:
            raise self._error(err, "") from err

    # -- the port ---------------------------------------------------------------------

    async def get(self, key: str) -> bytes:
        """See ``Store.get``."""
        return await self._run(key, lambda path: path.read_bytes())

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ``Store.get_range``. Returns fewer than ``length`` bytes at the end of the object."""

        def read(path: Path) -> bytes:
            with path.open("rb") as file:
                return os.pread(file.fileno(), length, start)

        return await self._run(key, read)

    async def put(self, key: str, data: bytes) -> None:
        """See ``Store.put``."""
        await self._run(None, lambda root: self._write(root / check_key(key), data, os.replace))

    async def create(self, key: str, data: bytes) -> bool:
        """See ``Store.create``."""

        def create(root: Path) -> bool:
            try:
                self._write(root / check_key(key), data, os.link)
            except FileExistsError:
                return False
            return True

        return await self._run(None, create)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """See ``Store.list``."""
        return await self._run(None, lambda root: self._list(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``. Also removes the folders that become empty."""
        await self._run(None, lambda root: self._delete(keys))

    async def remove_folder(self, folder: str) -> None:
        """Removes ``folder`` if it is empty. Does nothing if it is absent or not empty."""

        def remove(root: Path) -> None:
            _remove_empty(root / check_key(folder))

        await self._run(None, remove)

    async def copy(self, key: str, target: str) -> None:
        """Gives the object ``key`` a second name. Objects never change, so a hard link is enough; where the
        file system allows none, the bytes are copied. Raises KeyError if ``key`` is absent."""

        def copy(source: Path) -> None:
            def fill(partial: Path) -> None:
                try:
                    _link_or_copy(source, partial)
                except (IsADirectoryError, NotADirectoryError):
                    raise KeyError(key) from None
                except FileNotFoundError:
                    if source.exists():  # so it is the partial file's folder that another process has removed
                        raise
                    raise KeyError(key) from None

            try:
                self._make(self.root / check_key(target), fill, os.replace)
            except OSError as err:  # an absent source has been raised as KeyError above
                raise self._error(err, "") from err

        await self._run(key, copy)

    # -- in the thread ----------------------------------------------------------------

    async def _run(self, key: str | None, call: Callable[[Path], T]) -> T:
        """Calls ``call`` in a thread with the path of ``key``, the object that is read, or of the root if
        ``key`` is None.

        Raises KeyError if the object is absent, ObjectStoreError on any other failure.
        """
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
        """Makes ``folder`` and its parents, each durable in its parent. Raises FileNotFoundError if another
        process removed a folder of the path meanwhile."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            os.mkdir(folder)
        except FileExistsError:
            # Another process has made the folder and may have removed it again. A path that is no folder must
            # not end as FileExistsError: ``create`` would take that as "the object exists".
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
        """Calls ``_make_once`` again whenever another process has removed the folder before the partial file
        existed."""
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
        """Raises FileNotFoundError if another process removed the folder; nothing is published then."""
        self._make_folder(path.parent)
        partial = path.parent / f"{_PARTIAL}{uuid.uuid4().hex}"
        try:
            fill(partial)
            # The folder is opened while the partial file keeps it. Once the object is published, another
            # process may delete it, and the folder with it, before the folder is synced.
            with _opened(path.parent) as folder:
                publish(partial, path)
                os.fsync(folder)
        finally:
            self._drop(partial)

    def _drop(self, partial: Path) -> None:
        try:
            partial.unlink()
        except FileNotFoundError:  # it was renamed, or never made
            return
        # While the partial file existed, a delete could not remove the folder.
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
        """Removes ``folder`` and its parents as far as they are empty, up to the root. If the root is the
        root of the file system, nothing is removed, because the folders belong to others."""
        if self.root == self.root.parent:
            return
        while folder != self.root and _remove_empty(folder, _LEFT_STANDING):
            folder = folder.parent

    def _list(self, prefix: str) -> Sequence[tuple[str, int]]:
        # Only the folder within the prefix is walked, not the whole store.
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
    """Whether ``folder`` is gone afterwards. Errors with a number in ``left`` mean that the folder stays;
    others raise."""
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
