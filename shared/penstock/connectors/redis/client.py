"""The client of a server; turns its errors into Penstock's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.connectors.redis.settings import OWNER
from penstock.errors import BrokerError, ConnectorError, ExternalError, PenstockError
from penstock.redaction import hide, without_credentials

if TYPE_CHECKING:
    from redis.asyncio import Redis

#: Seconds to wait for an answer. A server that is silent for longer counts as away.
ANSWER_S = 30.0
#: Seconds that a check at planning waits.
CHECK_S = 2.0


def address(url: str) -> str:
    """The server without user and password."""
    return without_credentials(url).partition("?")[0]


def client(url: str, *, timeout_s: float = ANSWER_S) -> Redis:
    """A client without retries, because the connector itself tries again. Raises ConnectorError."""
    import redis.asyncio
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    parts = urlsplit(url)
    if parts.password:
        hide(parts.password)
    try:
        found: Redis = redis.asyncio.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=min(timeout_s, 5.0), retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )  # fmt: skip
    except (ValueError, KeyError) as err:
        raise ConnectorError(
            "option 'url' is no address of Redis",
            expected="redis://host:6379/0, rediss://… or unix://…",
            got=address(url),
            where=OWNER,
            remedy=str(err),
        ) from None
    return found


def failure(err: Exception, where: str) -> PenstockError:
    """The error for a client's error: ExternalError if waiting may mend it, else an error of the table or of
    the user's rights."""
    import redis.exceptions as r

    said = str(err)
    words = {
        "WRONGTYPE": "set 'data-type' to what lies at the key, or choose another 'key'",
        "NOAUTH": "put user and password into 'url'",
        "WRONGPASS": "correct user and password in 'url'",
        "NOPERM": "allow the user the command and the keys",
        "invalid username": "correct user and password in 'url'",
        "invalid password": "correct user and password in 'url'",
        "Authentication required": "put user and password into 'url'",
        "DB index is out of range": "correct the number of the database in 'url'",
        "MOVED": "a Redis Cluster is not supported: name a single server, or a proxy",
        "unknown command": "the server must be Redis 7 or Valkey 7, or newer",
    }
    for word, remedy in words.items():
        if word in said:
            return ConnectorError("Redis refuses", got=said, where=where, remedy=remedy)
    if isinstance(err, r.AuthenticationError):
        return ConnectorError(
            "Redis refuses the user", got=said, where=where, remedy="correct user and password in 'url'"
        )
    if isinstance(err, r.ResponseError) and not isinstance(err, r.BusyLoadingError):
        passing = ("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "OOM", "MISCONF", "BUSY", "TRYAGAIN")
        if not said.startswith(passing):
            return ConnectorError(
                "Redis refuses a command", got=said, where=where, remedy="see what Redis says"
            )
    return BrokerError(
        "Redis does not answer", got=said or type(err).__name__, where=where,
        remedy="start it, or correct 'url'; Penstock tries again",
    )  # fmt: skip


def errors() -> tuple[type[Exception], ...]:
    """The classes of errors that the client raises."""
    import redis.exceptions

    return (redis.exceptions.RedisError, OSError, TimeoutError)


def check_server(url: str) -> None:
    """ConnectorError if the server answers and refuses the user. A server that does not answer is no error:
    the job waits for it."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client(url)  # the address
    found: Any = redis.Redis.from_url(
        url, socket_timeout=CHECK_S, socket_connect_timeout=CHECK_S, retry=Retry(NoBackoff(), 0)
    )
    try:
        found.ping()
    except errors() as err:
        told = failure(err, f"{OWNER}, {address(url)}")
        if not isinstance(told, ExternalError):
            raise told from None
    finally:
        found.close()
