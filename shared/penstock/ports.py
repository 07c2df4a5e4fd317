"""Ports: what pure cores need from outside, as protocols with stated guarantees.

Services and slots receive them as arguments. The real implementations are in ``bus``, ``leases``,
``store`` and in the services' shells, the simulated ones in ``testing``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """The wall clock, a monotonic clock, and sleep. Pure cores take ``now_ms`` as an argument instead."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC. May jump in either direction."""

    def monotonic_ms(self) -> float:
        """Milliseconds since an unspecified start. Never decreases."""

    async def sleep(self, seconds: float) -> None:
        """Waits for so many seconds."""


class Subscription(Protocol):
    """The subscription of a handler to a subject."""

    async def unsubscribe(self) -> None:
        """Ends the subscription; messages that arrive later do not reach the handler."""


#: ``handler(subject, data)`` returns the reply, or None for no reply.
Handler = Callable[[str, bytes], Awaitable["bytes | None"]]


class Transport(Protocol):
    """Request and reply, and publications, on subjects (NATS).

    A message may be lost, delayed or repeated, and messages on different subjects may change their order.
    Messages from one publisher to one subscription keep their order. Commands therefore carry ids and are
    repeated. Every method raises ``BrokerError`` (retryable) when not connected.
    """

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        """Sends ``data`` and returns one reply. Raises ``BrokerError`` after ``timeout_s`` seconds without a
        reply, and at once if nobody serves the subject."""

    async def publish(self, subject: str, data: bytes) -> None:
        """Sends ``data`` to all subscribers of the subject. Delivery is not confirmed."""

    async def serve(self, subject: str, handler: Handler, *, queue: str | None = None) -> Subscription:
        """Calls ``handler(subject, data)`` for every message on ``subject`` (a pattern with ``*`` and ``>``).

        What the handler returns is the reply to a request; for a publication it is dropped. If the handler
        raises, there is no reply (``bus.envelope.serve_typed`` replies with the error). ``queue``: of the
        members of one queue group only one receives each message.
        """

    async def close(self) -> None:
        """Disconnects, and cancels handlers that still run."""


class LeaseStore(Protocol):
    """Leases with an expiry (Redis or Valkey). They help to elect a leader; the store may lose them at any
    time.

    A method raises ``LeaseStoreError`` if the store does not answer.
    """

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        """Takes the lease for ``ttl_ms`` milliseconds. True if ``owner`` holds it now, also if it held the
        lease before."""

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        """Extends the lease to ``ttl_ms`` milliseconds from now. False if ``owner`` no longer holds it."""

    async def release(self, name: str, owner: str) -> None:
        """Gives the lease up if ``owner`` holds it; does nothing otherwise."""

    async def holder(self, name: str) -> str | None:
        """The owner of the lease, or None if nobody holds it."""

    async def close(self) -> None:
        """Disconnects from the store."""


class Store(Protocol):
    """Object storage with flat keys, whose parts are separated by ``/``.

    A write is atomic, and durable once it has returned. ``list`` may lag behind writes. ``create`` must be
    conditional (``store.probe`` checks that at start). A method raises ``ObjectStoreError`` if the store
    fails.
    """

    async def get(self, key: str) -> bytes:
        """The whole object. Raises KeyError if it is absent."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Bytes ``start`` to ``start + length`` of the object. Raises KeyError if it is absent."""

    async def put(self, key: str, data: bytes) -> None:
        """Writes the object, and replaces an older one of this key."""

    async def create(self, key: str, data: bytes) -> bool:
        """Writes the object only if the key is absent. Returns False, and writes nothing, if it exists."""

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """(key, size in bytes) of every object whose key begins with ``prefix``, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes the objects. Absent keys are no error."""


class Executor(Protocol):
    """Runs blocking calls that release the interpreter's lock outside the event loop's thread."""

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call()``. Raises what the call raises."""


class Spawner(Protocol):
    """Starts processes and reports their end."""

    async def spawn(self, argv: Sequence[str], env: dict[str, str]) -> int:
        """Starts ``argv`` with the environment ``env``, and returns the process id."""

    async def wait(self, pid: int) -> int:
        """Waits for the process to end. Returns its exit code, or the negative number of the signal that
        ended it."""

    def kill(self, pid: int, signal: int) -> None:
        """Sends the signal to the process."""
