"""Ports: everything a core needs from outside, as protocols with stated guarantees.

Services and slots receive them as arguments; the real ones live in ``bus``, ``leases``,
``store`` and the services' shells, the simulated ones in ``testing``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall clock and sleep. Cores take ``now_ms`` as an argument instead."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""

    def monotonic_ms(self) -> float:
        """Never goes back."""

    async def sleep(self, seconds: float) -> None: ...


class Subscription(Protocol):
    async def unsubscribe(self) -> None: ...


Handler = Callable[[str, bytes], Awaitable["bytes | None"]]


class Transport(Protocol):
    """Request/reply and publish on subjects (NATS).

    At most once: a message may be lost, delayed, repeated or reordered between
    subjects; from one publisher to one subscription order holds. Commands therefore
    carry ids and are retried. Raises ``BrokerError`` (retryable) when not connected.
    """

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        """One reply. ``BrokerError`` on time-out or when nobody serves the subject."""

    async def publish(self, subject: str, data: bytes) -> None: ...

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription:
        """Answer requests (and take publications: the handler's return is then dropped).

        ``handler(subject, data)``; ``queue``: one member of the group gets each message.
        A handler that raises answers with the error (``bus.envelope``).
        """

    async def close(self) -> None: ...


class LeaseStore(Protocol):
    """Leases with expiry (Redis/Valkey). Liveness only: it may forget everything."""

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        """True when ``owner`` holds the lease now (also when it held it before)."""

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        """False when the lease is no longer ``owner``'s."""

    async def release(self, name: str, owner: str) -> None: ...

    async def holder(self, name: str) -> str | None: ...

    async def close(self) -> None: ...


class Store(Protocol):
    """Object storage with flat ``/``-separated keys.

    A write is atomic and, once it returned, durable; ``list`` may lag behind writes.
    ``create`` must be conditional (probed at start: ``store.probe``).
    """

    async def get(self, key: str) -> bytes:
        """KeyError when absent."""

    async def get_range(self, key: str, start: int, length: int) -> bytes: ...

    async def put(self, key: str, data: bytes) -> None: ...

    async def create(self, key: str, data: bytes) -> bool:
        """Write only if absent. False (nothing written) when it exists."""

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """(key, size in bytes) of every key below ``prefix``, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Absent keys are no error."""


class Executor(Protocol):
    """Runs a blocking call that releases the interpreter's lock, off the loop."""

    async def run(self, call: Callable[[], T]) -> T: ...


class Spawner(Protocol):
    """Starts processes and tells when they end."""

    async def spawn(self, argv: Sequence[str], env: dict[str, str]) -> int:
        """Process id."""

    async def wait(self, pid: int) -> int:
        """Exit code, negative for a signal."""

    def kill(self, pid: int, signal: int) -> None: ...
