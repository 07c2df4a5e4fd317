"""The public port of resource providers.

A provider makes the world as it is wanted: ``ensure`` says which workers there are to be, ``list`` says which
there are. Both are level-triggered: they look at the world, not at what this object did before, so that
they can be repeated, a call that was cut off can be made again, and the next leader, which has another
object in another process, goes on where the last one stopped.

Who wants workers mints their ids and writes them down before it asks. An id stands for one worker for ever:
a provider never starts a second worker under an id, since a task manager is known by it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

import msgspec

__all__ = ["ResourceProvider", "WorkerPhase", "WorkerProfile"]


class WorkerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has. ``slots``: task slots; ``memory_bytes`` and ``cpus``: None where the provider gives
    its own default; ``settings``: further configuration keys of the task manager."""

    slots: int = 1
    memory_bytes: int | None = None
    cpus: float | None = None
    settings: dict[str, str] = {}


class WorkerPhase(enum.Enum):
    """::

        PENDING ──▶ RUNNING ──▶ ENDED
           │           │
           └───────────┴──▶ STOPPING ──▶ (not listed)

    PENDING: asked for, nothing runs yet (no room, no image). RUNNING: its process runs; whether the task
    manager in it works is for its heartbeats to say. STOPPING: no longer wanted, and still there. ENDED: it
    was wanted and is gone; it is listed until it is no longer wanted, and never comes back.
    """

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class ResourceProvider(Protocol):
    """Workers of one cluster. Raises ``ExternalError`` (retryable) when the system behind it does not
    answer, ``SpecError`` for a profile that it can never provide."""

    async def ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        """Exactly these workers are to be: start those that were never started, stop all others of this
        cluster. Returns when that is under way. An id that is known keeps the profile it was started with.
        Workers of other clusters are not touched."""

    async def list(self) -> Mapping[str, WorkerPhase]:
        """Every worker of this cluster that is there, is on its way, or was wanted and has ended."""

    async def close(self) -> None:
        """This object ends; the workers stay."""
