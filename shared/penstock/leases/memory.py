"""Leases within one process, for tests and the simulation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import LeaseStore


def _loop_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


class MemoryLeases:
    """Leases in a dict; see ``penstock.ports.LeaseStore``.

    ``now_ms`` gives the lease store's time in milliseconds; by default that of the running event loop.
    """

    _named: ClassVar[dict[str, MemoryLeases]] = {}

    def __init__(self, now_ms: Callable[[], float] = _loop_ms) -> None:
        self._now_ms = now_ms
        self._held: dict[str, tuple[str, float]] = {}

    @classmethod
    def named(cls, url: str) -> MemoryLeases:
        """The one lease store of this process for ``url``."""
        return cls._named.setdefault(url, cls())

    def _owner(self, name: str) -> str | None:
        owner, expires_ms = self._held.get(name, ("", 0.0))
        return owner if expires_ms > self._now_ms() else None

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        """See ``LeaseStore.acquire``."""
        if self._owner(name) not in (None, owner):
            return False
        self._held[name] = (owner, self._now_ms() + ttl_ms)
        return True

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        """See ``LeaseStore.renew``."""
        if self._owner(name) != owner:
            return False
        self._held[name] = (owner, self._now_ms() + ttl_ms)
        return True

    async def release(self, name: str, owner: str) -> None:
        """See ``LeaseStore.release``."""
        if self._owner(name) == owner:
            del self._held[name]

    async def holder(self, name: str) -> str | None:
        """See ``LeaseStore.holder``."""
        return self._owner(name)

    def wipe(self) -> None:
        """Forgets all leases, as a lease store may do at any time."""
        self._held.clear()

    async def close(self) -> None:
        """Does nothing: there is no connection."""
        return None


if TYPE_CHECKING:
    _port: type[LeaseStore] = MemoryLeases
