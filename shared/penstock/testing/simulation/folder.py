"""Object storage in a folder whose machine may lose its power.

``FolderServer`` writes objects with the code of the real ``LocalStore``. ``LossyFolder`` knows which bytes
and which names were synced. When the power fails, the seed decides how much of the rest the disk holds: all,
half or nothing.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock.store.local
from penstock.store.keys import check_key
from penstock.store.local import LocalStore
from penstock.testing.simulation.intercept import replaced
from penstock.testing.simulation.objects import ObjectServer

if TYPE_CHECKING:
    from penstock.testing.simulation.world import Process, World


class _Syncs:
    """Takes the place of the module ``os``; its ``fsync`` also notifies the folder."""

    def __init__(self, folder: LossyFolder) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        self._folder.synced(Path(os.readlink(f"/proc/self/fd/{fd}")))


class LossyFolder:
    """A folder that tracks what is durable. ``root``: a real folder. A file's durable content is that of its
    last sync, and its durable names are those of its folder's last sync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self._content: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {root: {}}
        self.os = _Syncs(self)

    def synced(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._content[path.stat().st_ino] = path.read_bytes()

    def power_fails(self, chance: random.Random) -> None:
        """Fail the power: changes that were not synced survive entirely, partly or not at all."""
        after: dict[Path, bytes] = {}
        self._survivors(self.root, chance, after)
        for path in sorted(self.root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self._content.clear()
        self._names = {self.root: {}}
        for path, data in after.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.synced(path)
        for folder in [self.root, *(p for p in self.root.rglob("*") if p.is_dir())]:
            self.synced(folder)

    def _survivors(self, folder: Path, chance: random.Random, after: dict[Path, bytes]) -> None:
        durable = self._names.get(folder, {})
        live = {entry.name: entry.inode() for entry in os.scandir(folder)} if folder.is_dir() else {}
        for name in sorted({*live, *durable}):
            path, inode = folder / name, durable.get(name)
            if inode != live.get(name) and chance.random() < 0.5:
                inode = live.get(name)  # the disk happened to write it
            if inode is None:
                continue
            if path.is_dir() or path in self._names:  # a removal may not be durable
                self._survivors(path, chance, after)
            elif inode in self._content:
                after[path] = self._content[inode]
            elif path.exists():
                data = path.read_bytes()
                after[path] = chance.choice((data, data[: len(data) // 2], b""))


class FolderServer(ObjectServer):
    """As ``ObjectServer``, with objects in a folder. After ``power_fails`` it has the objects that the folder
    still holds."""

    def __init__(self, world: World, root: Path) -> None:
        super().__init__(world)
        self._folder = LossyFolder(root)
        self._store = LocalStore(root)

    def write(self, who: Process, key: str, data: bytes) -> None:
        for listener in self.on_write:
            listener(who, key, data)
        with replaced((penstock.store.local, "os", self._folder.os)):
            self._store._write(self._folder.root / check_key(key), data, os.replace)
        self._changed(key, data)

    def create(self, who: Process, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        for listener in self.on_write:
            listener(who, key, data)
        with replaced((penstock.store.local, "os", self._folder.os)):
            self._store._write(self._folder.root / check_key(key), data, os.link)
        self._changed(key, data)
        return True

    def delete(self, who: Process, keys: Any) -> None:
        super().delete(who, keys)
        self._store._delete(list(keys))

    def power_fails(self, chance: random.Random) -> None:
        before = len(self.objects)
        self._folder.power_fails(chance)
        self.objects = {key: (self._folder.root / key).read_bytes() for key, _ in self._store._list("")}
        self.world.trace("store", "power", f"{before} objects, {len(self.objects)} left")
