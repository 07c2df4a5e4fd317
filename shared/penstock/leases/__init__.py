"""Leases with an expiry: who may try to lead. A lease decides nothing; the decision log does."""

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


#: URL scheme → ``open(url, prefix) -> LeaseStore``.
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
    """The lease store at ``redis://…``, ``rediss://…``, ``unix://…`` or ``memory://`` (within one process),
    or at a URL whose scheme an installed package provides. It connects at its first use.

    ``prefix`` begins the name of every key, so that clusters may share a server. Raises SpecError for
    another scheme.
    """
    return LEASES.find(urlsplit(url).scheme, where="high-availability.redis.url")(url, prefix)
