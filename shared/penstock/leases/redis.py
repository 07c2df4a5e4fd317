"""Leases in Redis (≥ 7) or Valkey: keys with an expiry, changed only by scripts that check the owner.

``SET … IFEQ`` would do the same, but Redis 7 lacks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock import internal_tls
from penstock.errors import LeaseStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import LeaseStore

_ACQUIRE = """
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end
if owner then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
return 1
"""
_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

#: A call that takes longer counts as failed. It is well below any sensible expiry.
CALL_TIMEOUT_S = 2.0


class RedisLeases:
    """Leases on the server at ``url``; see ``penstock.ports.LeaseStore``.

    The key of a lease is ``<prefix>:lease:<name>``, and its value is the owner. Every method raises
    LeaseStoreError if the server does not answer. Each call is tried twice, for at most ``CALL_TIMEOUT_S``
    seconds each.
    """

    def __init__(self, url: str, *, prefix: str = "penstock") -> None:
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        address = urlsplit(url)
        #: The server's URL without user and password, for errors.
        self.address = f"{address.scheme}://{address.hostname}:{address.port or 6379}"
        self._prefix = prefix
        self._redis = redis.asyncio.Redis.from_url(
            url,
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=CALL_TIMEOUT_S,
            health_check_interval=0,
            # The election repeats failed calls. One immediate retry covers a connection that the server has
            # closed.
            retry=Retry(NoBackoff(), 1),
            **(internal_tls.redis_options() if address.scheme == "rediss" else {}),
        )
        self._acquire = self._redis.register_script(_ACQUIRE)
        self._renew = self._redis.register_script(_RENEW)
        self._release = self._redis.register_script(_RELEASE)

    def _key(self, name: str) -> str:
        return f"{self._prefix}:lease:{name}"

    async def _call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        import redis.exceptions

        try:
            return await call()
        except (redis.exceptions.RedisError, OSError, TimeoutError) as err:
            raise LeaseStoreError(
                f"the lease store at {self.address} does not answer: {type(err).__name__} {err}".rstrip(),
                expected="a Redis ≥ 7 or Valkey server",
                where=f"lease '{name}'",
                remedy="start it there, or set high-availability.redis.url to where it runs",
            ) from err

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        """See ``LeaseStore.acquire``."""
        got = await self._call(name, lambda: self._acquire(keys=[self._key(name)], args=[owner, ttl_ms]))
        return bool(got)

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        """See ``LeaseStore.renew``."""
        got = await self._call(name, lambda: self._renew(keys=[self._key(name)], args=[owner, ttl_ms]))
        return bool(got)

    async def release(self, name: str, owner: str) -> None:
        """See ``LeaseStore.release``."""
        await self._call(name, lambda: self._release(keys=[self._key(name)], args=[owner]))

    async def holder(self, name: str) -> str | None:
        """See ``LeaseStore.holder``."""
        owner = await self._call(name, lambda: self._redis.get(self._key(name)))
        return None if owner is None else owner.decode()

    async def close(self) -> None:
        """Closes the connections."""
        await self._redis.aclose()


if TYPE_CHECKING:
    _port: type[LeaseStore] = RedisLeases
