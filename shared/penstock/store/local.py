"""A folder as object storage: atomic, durable, conditional create.

Ours and not obstore's ``LocalStore``, because that one never calls fsync (seen with
strace, obstore 0.12): after a loss of power a checkpoint that counted as complete could
be empty. An object is written beside its place, fsynced, then renamed (put) or
hard-linked (create: fails when the name exists), and the folder is fsynced.
Every call runs in a thread; file I/O releases the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import ObjectStoreError
from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.ports import Store

T = TypeVar("T")

#: Names of files being written start so; never listed, left behind only by a crash.
_PARTIAL = ".partial-"


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
        def delete(root: Path) -> None:
            for key in keys:
                (root / check_key(key)).unlink(missing_ok=True)

        await self._run(None, delete)

    async def remove_folder(self, folder: str) -> None:
        """If it is empty. Only for folders that nobody writes to any more: a put that has just made
        sure of its folder would fail."""

        def remove(root: Path) -> None:
            path = root / check_key(folder)
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()

        await self._run(None, remove)

    async def copy(self, key: str, target: str) -> None:
        """An object that never changes may have two names; across file systems it is copied."""

        def copy(path: Path) -> None:
            to = self.root / check_key(target)
            try:
                self._make_folder(to.parent)
            except OSError as err:  # it is not the source that is missing
                raise self._error(err, target) from err
            partial = to.parent / f"{_PARTIAL}{uuid.uuid4().hex}"
            try:
                try:
                    os.link(path, partial)
                except FileNotFoundError:
                    raise
                except OSError:
                    shutil.copyfile(path, partial)
                    with partial.open("rb+") as file:
                        os.fsync(file.fileno())
                os.replace(partial, to)
                _fsync_folder(to.parent)
            finally:
                partial.unlink(missing_ok=True)

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
        """``mkdir -p``, each new entry durable in its parent."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:  # of ``create`` that would mean that the object is there
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        _fsync_folder(folder.parent)

    def _write(self, path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
        self._make_folder(path.parent)
        partial = path.parent / f"{_PARTIAL}{uuid.uuid4().hex}"
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            publish(partial, path)
            _fsync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)

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


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


if TYPE_CHECKING:
    _port: type[Store] = LocalStore
