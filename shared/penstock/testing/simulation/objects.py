"""Object storage of a simulated cluster: one server, and one client in each process.

The server applies a write even if the writer dies before the answer comes. A call may fail before or
after it is applied (the caller cannot tell which), and it may be slow. A listing may show an earlier
state. Reads see the last write; a create is atomic.
"""

from __future__ import annotations

import asyncio
import bisect
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ObjectStoreError
from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.ports import Store
    from penstock.testing.simulation.world import Process, World


@dataclass
class StoreFaults:
    """``before``, ``after``: probability that a call fails before, or after, it is applied. ``only``: the
    faults apply to keys that contain this text. ``lag_s``: how old a listing may be."""

    before: float = 0.0
    after: float = 0.0
    only: str = ""
    delay_s: tuple[float, float] = (0.0005, 0.004)
    slow: float = 0.0
    slow_s: tuple[float, float] = (0.1, 1.0)
    lag_s: float = 0.0


class ObjectServer:
    """The server. ``on_write(who, key, data)`` and ``on_delete(who, key)`` are called before the change."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = StoreFaults()
        self.objects: dict[str, bytes] = {}
        self.on_write: list[Callable[[Process, str, bytes], None]] = []
        self.on_delete: list[Callable[[Process, str], None]] = []
        #: (time, key, size or None) of changes, for listings that lag
        self._changes: list[tuple[float, str, int | None]] = []

    def write(self, who: Process, key: str, data: bytes) -> None:
        for listener in self.on_write:
            listener(who, key, data)
        self._changed(check_key(key), data)

    def create(self, who: Process, key: str, data: bytes) -> bool:
        """Create an object; returns False when the key exists already."""
        if key in self.objects:
            return False
        self.write(who, key, data)
        return True

    def _changed(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self._changes.append((self.world.now_s, key, len(data)))

    def delete(self, who: Process, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self.objects:
                for listener in self.on_delete:
                    listener(who, key)
                del self.objects[key]
                self._changes.append((self.world.now_s, key, None))

    def listing(self, prefix: str) -> list[tuple[str, int]]:
        lag_s = self.faults.lag_s
        if not lag_s:
            return sorted((k, len(v)) for k, v in self.objects.items() if k.startswith(prefix))
        seen_s = self.world.now_s - self.world.random.uniform(0, lag_s)
        until = bisect.bisect_right(self._changes, seen_s, key=lambda change: change[0])
        found: dict[str, int] = {}
        for _, key, size in self._changes[:until]:
            if key.startswith(prefix):
                if size is None:
                    found.pop(key, None)
                else:
                    found[key] = size
        return sorted(found.items())


class SimStore:
    """The object store as one process uses it."""

    def __init__(self, server: ObjectServer, process: Process) -> None:
        self.server = server
        self._process = process

    async def _call(self, what: str, key: str, apply: Callable[[], Any], data: bytes | None = None) -> Any:
        server, world = self.server, self.server.world
        faults, chance = server.faults, server.world.random
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        process = self._process

        def tell(result: Any) -> None:
            if not answer.done():
                if isinstance(result, BaseException):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

        def back(result: Any) -> None:
            world.after(chance.uniform(*faults.delay_s) / 2, lambda: process.loop.call_soon(tell, result))

        def at_server() -> None:
            hit = faults.only in key
            if hit and faults.before and chance.random() < faults.before:
                back(self._error(what, key))
                return
            try:
                result = apply()
            except KeyError as err:
                back(err)
                return
            if what not in ("get", "list"):
                told = "" if data is None else f" {len(data)} {zlib.crc32(data):08x}"
                world.trace(process.name, what, key + told)
            if hit and faults.after and chance.random() < faults.after:
                back(self._error(what, key))
            else:
                back(result)

        delay_s = chance.uniform(*faults.delay_s) / 2
        if faults.slow and faults.only in key and chance.random() < faults.slow:
            delay_s += chance.uniform(*faults.slow_s)
        world.after(delay_s, at_server)
        return await answer

    def _error(self, what: str, key: str) -> ObjectStoreError:
        self.server.world.trace(self._process.name, "fails", f"{what} {key}")
        return ObjectStoreError(f"the simulated object store failed to {what}", where=key)

    async def get(self, key: str) -> bytes:
        found: bytes = await self._call("get", key, lambda: self._read(key))
        return found

    def _read(self, key: str) -> bytes:
        if key not in self.server.objects:
            raise KeyError(key)
        return self.server.objects[key]

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return (await self.get(key))[start : start + length]

    async def put(self, key: str, data: bytes) -> None:
        await self._call("put", key, lambda: self.server.write(self._process, key, bytes(data)), data)

    async def create(self, key: str, data: bytes) -> bool:
        created: bool = await self._call(
            "create", key, lambda: self.server.create(self._process, key, bytes(data)), data
        )
        return created

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        found: list[tuple[str, int]] = await self._call("list", prefix, lambda: self.server.listing(prefix))
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            await self._call("delete", keys[0], lambda: self.server.delete(self._process, keys))


if TYPE_CHECKING:
    _port: type[Store] = SimStore
