"""The public port of resource providers.

``ensure`` states which workers there should be, and ``list`` which there are. Both are level-triggered:
they look at the workers that exist, not at what this object did before. So they can be repeated, a call
that was interrupted can be made again, and the next leader, with another object in another process,
continues where the last one stopped.

The caller makes up the ids of the workers and records them before it calls ``ensure``. An id stands for
one worker for ever: a provider never starts a second worker with the same id, because the id also
identifies the task manager.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

import msgspec

__all__ = ["ResourceProvider", "WorkerPhase", "WorkerProfile"]


class WorkerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a worker. ``slots``: task slots. ``memory_bytes`` and ``cpus``: None for the
    provider's default. ``settings``: further configuration keys of the task manager."""

    slots: int = 1
    memory_bytes: int | None = None
    cpus: float | None = None
    settings: dict[str, str] = {}


class WorkerPhase(enum.Enum):
    """::

        PENDING ──▶ RUNNING ──▶ ENDED
           │           │
           └───────────┴──▶ STOPPING ──▶ (not listed)

    PENDING: requested, and nothing runs yet (no room, no image). RUNNING: its process runs; only the
    heartbeats of the task manager tell whether it works. STOPPING: no longer wanted, and still present.
    ENDED: it was wanted and has ended; it stays listed until it is no longer wanted, and never runs again.
    """

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class ResourceProvider(Protocol):
    """The workers of one cluster. Methods raise ``ExternalError`` (retryable) if the system behind the
    provider does not answer, and ``SpecError`` for a profile that it can never provide."""

    async def ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        """Makes the workers of this cluster those in ``wanted`` (worker id → profile): starts those that were
        never started, and stops all others. Returns when the starts and stops are under way. A known id
        keeps the profile with which it was started. Workers of other clusters are not touched."""

    async def list(self) -> Mapping[str, WorkerPhase]:
        """The phase of every worker of this cluster that exists, is being started, or was wanted and has
        ended."""

    async def close(self) -> None:
        """Releases what this object holds. The workers keep running."""
