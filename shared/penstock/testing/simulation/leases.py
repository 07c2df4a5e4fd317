"""The lease store of a simulated cluster: one server, and one client in each process.

The server expires leases by its own clock, so a lease runs out while its owner hangs. A
call may be applied and its answer lost; the server may be down, or forget everything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import LeaseStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import LeaseStore
    from penstock.testing.simulation.world import Process, World

#: A client gives up after this many seconds without an answer.
TIMEOUT_S = 0.5


class LeaseServer:
    """The server. ``cut``: names of processes that cannot reach it. ``error``: probability that an answer is
    lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down = False
        self.cut: set[str] = set()
        self.error = 0.0
        self.held: dict[str, tuple[str, float]] = {}

    def owner(self, name: str) -> str | None:
        owner, until_s = self.held.get(name, ("", 0.0))
        return owner if until_s > self.world.now_s else None

    def wipe(self) -> None:
        self.world.trace("leases", "wiped")
        self.held.clear()

    def set_down(self, down: bool) -> None:
        self.world.trace("leases", "down" if down else "up")
        self.down = down

    def reaches(self, process: Process) -> bool:
        return not self.down and process.name not in self.cut


class SimLeases:
    """The lease store as one process uses it."""

    def __init__(self, server: LeaseServer, process: Process) -> None:
        self._server = server
        self._process = process

    async def _call(self, apply: Callable[[], bool]) -> bool:
        server, world = self._server, self._server.world
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(result: bool) -> None:
            if not answer.done():
                answer.set_result(result)

        def at_server() -> None:
            if not server.reaches(self._process):
                return
            result = apply()
            if world.random.random() >= server.error:
                world.after(
                    world.random.uniform(0.0002, 0.002),
                    lambda: self._process.loop.call_soon(settle, result),
                )

        world.after(world.random.uniform(0.0002, 0.002), at_server)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise LeaseStoreError("the simulated lease store does not answer") from None

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        return await self._call(lambda: self._take(name, owner, ttl_ms, (None, owner)))

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        return await self._call(lambda: self._take(name, owner, ttl_ms, (owner,)))

    def _take(self, name: str, owner: str, ttl_ms: int, allowed: tuple[str | None, ...]) -> bool:
        server = self._server
        if server.owner(name) not in allowed:
            return False
        if server.owner(name) is None:
            server.world.trace(owner, "lease", name)
        server.held[name] = (owner, server.world.now_s + ttl_ms / 1000)
        return True

    async def release(self, name: str, owner: str) -> None:
        def release() -> bool:
            if self._server.owner(name) == owner:
                del self._server.held[name]
            return True

        await self._call(release)

    async def holder(self, name: str) -> str | None:
        found: list[str | None] = []

        def look() -> bool:
            found.append(self._server.owner(name))
            return True

        await self._call(look)
        return found[0]

    async def close(self) -> None:
        return None


if TYPE_CHECKING:
    _port: type[LeaseStore] = SimLeases
