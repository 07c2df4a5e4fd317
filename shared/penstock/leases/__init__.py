"""Leases with expiry: who may try to lead. Liveness only; truth is the decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.leases.memory import MemoryLeases

if TYPE_CHECKING:
    from penstock.leases.redis import RedisLeases

__all__ = ["MemoryLeases", "open_leases"]


def open_leases(url: str, *, prefix: str = "penstock") -> MemoryLeases | RedisLeases:
    """``redis://…``, ``rediss://…`` or ``memory://`` (one process). Connects at first use."""
    if url.startswith("memory:"):
        return MemoryLeases.named(url)
    from penstock.leases.redis import RedisLeases

    return RedisLeases(url, prefix=prefix)
