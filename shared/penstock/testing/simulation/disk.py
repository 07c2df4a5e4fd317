"""A disk that many hosts share; implements the ``Files`` port of the filesystem connector.

Bytes that a process wrote and did not flush are lost when the process dies. Changes (flushed bytes, renames,
deletions) that were not synced are undone when the power fails.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.connectors.filesystem.paths import FileInfo, Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.simulation.world import World


@dataclass
class _Content:
    """The content of a file. ``durable``: the bytes that survive a power failure; None if there are none
    yet."""

    data: bytes = b""
    durable: bytes | None = None


@dataclass
class _Handle:
    disk: SimDisk
    content: _Content
    buffer: bytearray = field(default_factory=bytearray)
    closed: bool = False

    def write(self, data: Any) -> int:
        self.buffer += data
        return len(data)

    def flush(self) -> None:
        self.content.data += bytes(self.buffer)
        self.buffer.clear()

    def close(self) -> None:
        if not self.closed:
            self.flush()
            self.closed = True


class SimDisk(Files):
    """The shared disk. ``on_rename(target)`` is called before a file is renamed to ``target``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._live: dict[str, _Content] = {}
        self._durable: dict[str, _Content] = {}
        self.on_rename: list[Callable[[str], None]] = []

    def power_fails(self) -> None:
        self._world.trace("disk", "power", f"{len(self._live)} files, {len(self._durable)} on disk")
        self._live = {}
        for path, content in self._durable.items():
            if content.durable is not None:
                self._live[path] = _Content(content.durable, content.durable)
        self._durable = dict(self._live)

    def read(self, path: str) -> bytes:
        return self._live[path].data

    # -- the port ------------------------------------------------------------------------

    def list(self, pattern: str) -> list[FileInfo]:
        prefix = pattern.rstrip("/") + "/"
        found = [p for p in self._live if p.startswith(prefix)]
        shown = [p for p in found if not any(n[0] in "._" for n in p.removeprefix(prefix).split("/"))]
        return [FileInfo(p, len(self._live[p].data)) for p in sorted(shown)]

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self._live[path].data)

    def open_output(self, path: str) -> Any:
        content = self._live[path] = _Content()
        return _Handle(self, content)

    def sync(self, path: str) -> None:
        """Make the file's bytes and the names in its folder durable."""
        content = self._live[path]
        content.durable = content.data
        folder = path.rsplit("/", 1)[0]
        for known in [p for p in self._durable if p.rsplit("/", 1)[0] == folder]:
            if known not in self._live:
                del self._durable[known]
        for known, found in self._live.items():
            if known.rsplit("/", 1)[0] == folder:
                self._durable[known] = found

    def rename(self, source: str, target: str) -> bool:
        if source not in self._live:
            return False
        for listener in self.on_rename:
            listener(target)
        self._world.trace("disk", "renamed", target)
        self._live[target] = self._live.pop(source)
        self.sync(target)
        return True

    def exists(self, path: str) -> bool:
        return path in self._live

    def delete(self, path: str) -> None:
        self._live.pop(path, None)
