"""Leader election by lease. A lease says who should try to lead. A leader's decisions are fenced by the
decision log, never by the lease alone.

A leader that cannot renew stops by itself when its lease may have expired: ``ttl_ms`` after the *start* of
the last renewal that succeeded, by its own monotonic clock.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from penstock.errors import LeaseStoreError, PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Clock, LeaseStore

_log = EventLog("penstock.election")

_ENDED = "it ended"
_RESIGNED = "resigned"


class LeaderElection:
    """Bids for the lease ``name`` until cancelled.

    ``on_gained()`` is awaited first (append LeaderEpoch, read the log, begin to act). If it raises, the
    lease is given back and the bidding continues after a pause. ``on_lost(reason)`` is awaited when the
    lease was lost: stop acting. Both run in the election's own task, but renewals continue while
    ``on_gained`` runs.
    """

    def __init__(
        self,
        leases: LeaseStore,
        name: str,
        owner: str,
        ttl_ms: int,
        clock: Clock,
        on_gained: Callable[[], Awaitable[None]],
        on_lost: Callable[[str], Awaitable[None]],
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._leases = leases
        self.name = name
        self.owner = owner
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._jitter = jitter
        self._valid_until_ms = 0.0
        self._leading = False
        self._resign = asyncio.Event()
        self._store_down = False

    def still_leading(self) -> bool:
        """True while the lease cannot have expired. Ask before acting: a process that was paused (SIGSTOP)
        learns here that it no longer leads."""
        return self._leading and self._clock.monotonic_ms() < self._valid_until_ms

    def resign(self) -> None:
        """Gives the lease up (the work is done, or the log fenced this leader) and bids again."""
        self._resign.set()

    async def run(self) -> None:
        """Competes for the lease, leads, and starts again, until it is cancelled. It gives the lease back at
        the end."""
        try:
            while True:
                if await self._acquire():
                    await self._lead()
                else:
                    await self._clock.sleep(self._ttl_ms / 4000 * (0.5 + self._jitter()))
        finally:
            await self._release()

    async def _call(self, call: Callable[[str, str, int], Awaitable[bool]]) -> bool | None:
        """The answer; None if the lease store does not answer."""
        started_ms = self._clock.monotonic_ms()
        try:
            got = await call(self.name, self.owner, self._ttl_ms)
        except LeaseStoreError as err:
            if not self._store_down:
                _log.warning("lease_store_failed", lease=self.name, error=err)
            self._store_down = True
            return None
        if self._store_down:
            _log.warning("lease_store_recovered", lease=self.name)
        self._store_down = False
        if got:
            self._valid_until_ms = started_ms + self._ttl_ms
        return got

    async def _acquire(self) -> bool:
        got = bool(await self._call(self._leases.acquire))
        return got and self._clock.monotonic_ms() < self._valid_until_ms

    async def _lead(self) -> None:
        self._resign.clear()
        self._leading = True
        _log.info("lease_acquired", lease=self.name, owner=self.owner)
        gained: asyncio.Future[None] = asyncio.ensure_future(self._on_gained())
        reason = _ENDED
        try:
            reason = await self._keep(gained)
        finally:
            self._leading = False
            if not gained.done():
                gained.cancel()
            await asyncio.gather(gained, return_exceptions=True)
            if reason in (_ENDED, _RESIGNED):
                _log.info("lease_released", lease=self.name, owner=self.owner, reason=reason)
            else:
                _log.warning("lease_lost", lease=self.name, owner=self.owner, reason=reason)
            await self._on_lost(reason)
        await self._release()
        # Let others go first: the cause of this loss may still be there.
        await self._clock.sleep(self._ttl_ms / 4000 * (0.5 + self._jitter()))

    async def _keep(self, gained: asyncio.Future[None]) -> str:
        """Renews the lease until it is lost; returns why."""
        while True:
            await self._pause(gained)
            if self._resign.is_set():
                return _RESIGNED
            if gained.done() and (err := gained.exception()) is not None:
                if not isinstance(err, PenstockError):
                    _log.error("leader_start_failed", lease=self.name, exc_info=err)
                return f"taking over failed: {err}"
            if self._clock.monotonic_ms() >= self._valid_until_ms:
                return "it could not be renewed in time"
            renewed = await self._call(self._leases.renew)
            if renewed is False:  # a store that merely lost its data gives the lease again at once
                renewed = await self._call(self._leases.acquire)
            if renewed is False:
                return "another owner holds it"

    async def _pause(self, gained: asyncio.Future[None]) -> None:
        """Waits a third of the expiry (less if the lease ends sooner or the store is down). ``resign`` and a
        failed ``on_gained`` cut the wait short."""
        left_ms = self._valid_until_ms - self._clock.monotonic_ms()
        period_ms = max(1.0, min(self._ttl_ms / (10 if self._store_down else 3), left_ms))
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._clock.sleep(period_ms / 1000))]
        waits.append(asyncio.ensure_future(self._resign.wait()))
        try:
            pending: list[asyncio.Future[None]] = [] if gained.done() else [gained]
            await asyncio.wait([*waits, *pending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _release(self) -> None:
        try:
            await self._leases.release(self.name, self.owner)
        except LeaseStoreError as err:
            _log.warning("lease_not_released", lease=self.name, error=err)
