"""Leases with expiry: who may try to lead. Liveness only; truth is the decision log."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.errors import SpecError
from penstock.leases.memory import MemoryLeases
from penstock.plugins import Register, function

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.ports import LeaseStore

    OpenLeases = Callable[[str, str], LeaseStore]

__all__ = ["LEASES", "MemoryLeases", "open_leases"]


def _open_memory(url: str, prefix: str) -> LeaseStore:
    return MemoryLeases.named(url)


def _open_redis(url: str, prefix: str) -> LeaseStore:
    from penstock.leases.redis import RedisLeases

    return RedisLeases(url, prefix=prefix)


#: By the URL's scheme: ``open(url, prefix) -> LeaseStore``.
LEASES: Register[OpenLeases] = Register(
    "lease store",
    "penstock.leases",
    builtin={
        "memory": "penstock.leases:_open_memory",
        **dict.fromkeys(("redis", "rediss", "unix"), "penstock.leases:_open_redis"),
    },
    make=function,
    expected="a function open(url, prefix) that returns a penstock.ports.LeaseStore",
    error=SpecError,
)


def open_leases(url: str, *, prefix: str = "penstock") -> LeaseStore:
    """``redis://…``, ``rediss://…`` or ``memory://`` (one process), or a scheme that an installed package
    provides. Connects at first use. ``prefix``: of all names, so that clusters may share a server."""
    return LEASES.find(urlsplit(url).scheme, where="high-availability.redis.url")(url, prefix)
