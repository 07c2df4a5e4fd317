"""The NATS client of services and connectors, and how it is connected: nothing that a server says or a
network does closes it for good. nats-py ends a client on most ``-ERR`` lines (a subject that is too long,
a slow consumer, an expired login); here each of them is told, and the client connects again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats.errors
from nats.aio.client import DEFAULT_PENDING_SIZE, Client

from penstock.cancelling import end_tasks
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: Errors after which the server keeps the connection.
_HARMLESS = ("permissions violation", "invalid subject", "invalid publish subject")
_PAUSE_S = 0.5
_log = EventLog("penstock.bus")
#: Of one attempt to connect again: another follows.
_ATTEMPT_S = 2
_CLOSE_S = 1


class ReconnectingClient(Client):
    """Connect it with ``max_reconnect_attempts=-1``; ``error_cb`` hears why it was disconnected."""

    async def _process_err(self, err_msg: str) -> None:
        text = err_msg.strip().strip("'")
        err = nats.errors.Error(f"the server says: {text}")
        self._err = err
        await self._error_cb(err)
        if not any(harmless in text.lower() for harmless in _HARMLESS):
            await self._process_op_err(err)

    async def _attempt_reconnect(self) -> None:
        """An error that nats-py does not expect (of a half-read greeting, of a callback) ends one
        attempt, not all that would follow."""
        while True:
            try:
                await super()._attempt_reconnect()
                return
            except Exception as err:
                await self._error_cb(err)
            if self.is_closed or self.is_connected:
                return
            self._status = Client.RECONNECTING
            await asyncio.sleep(_PAUSE_S)


class ConnectingFailedError(Exception):
    """No server took the connection in time. The text is the last thing that was said of it."""


async def connect(
    url: str,
    *,
    name: str,
    deadline_s: float,
    error_ends_it_after_s: float | None = None,
    reconnect_wait_s: float = 0.1,
    pending_bytes: int = DEFAULT_PENDING_SIZE,
    proof: Mapping[str, Any] | None = None,
    on_error: Callable[[Client, str], None],
    on_disconnect: Callable[[Client], Awaitable[None]] | None = None,
    on_reconnect: Callable[[Client], Awaitable[None]] | None = None,
) -> ReconnectingClient:
    """A client that is connected and, from now on, connects again for ever.

    ``url``: servers, comma separated. ``deadline_s``: when to give up; the attempts until then are repeated.
    ``error_ends_it_after_s``: give up at the first error after so long instead, and let one attempt take the
    whole deadline: a wrong address is answered early, a busy machine gets its time. ``pending_bytes``: what
    may wait to be sent while the client is not connected. ``proof``: arguments of nats-py's ``connect`` that say
    who connects (``tls``, ``user_credentials``, ``nkeys_seed``). ``on_error`` hears of errors at any time;
    ``on_disconnect`` and ``on_reconnect`` of changes later. ConnectingFailedError when the deadline is over.
    """
    client = ReconnectingClient()
    said: list[str] = []
    wrong = asyncio.Event()

    async def heard(err: Exception) -> None:
        text = f"{type(err).__name__}: {err}".rstrip(": ")
        on_error(client, text)
        said[:] = [text]
        wrong.set()

    async def disconnected() -> None:
        if on_disconnect is not None:
            await on_disconnect(client)

    async def reconnected() -> None:
        if on_reconnect is not None:
            await on_reconnect(client)

    connecting = asyncio.ensure_future(
        client.connect(
            servers=[part.strip() for part in url.split(",") if part.strip()],
            name=name,
            connect_timeout=_ATTEMPT_S if error_ends_it_after_s is None else int(deadline_s),
            reconnect_time_wait=reconnect_wait_s,  # type: ignore[arg-type]  # seconds, any number
            max_reconnect_attempts=-1,  # and so the first connect tries for ever, too
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=pending_bytes,
            **(proof or {}),
            error_cb=heard,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
        )
    )
    told = asyncio.ensure_future(wrong.wait())
    try:
        if error_ends_it_after_s is None:
            await asyncio.wait({connecting}, timeout=deadline_s)
        else:
            await asyncio.wait({connecting}, timeout=error_ends_it_after_s)
            rest_s = deadline_s - error_ends_it_after_s
            await asyncio.wait({connecting, told}, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            raise TimeoutError("no answer")
        await connecting
    except (TimeoutError, OSError, ValueError, nats.errors.Error) as err:
        await end_tasks([connecting])
        try:
            await asyncio.wait_for(client.close(), _CLOSE_S)
        except (TimeoutError, OSError, nats.errors.Error) as closing:
            _log.debug("nats_close_failed", error=closing)
        raise ConnectingFailedError(said[0] if said else f"{type(err).__name__}: {err}".rstrip(": ")) from err
    finally:  # also when this is cancelled
        await end_tasks([connecting, told])
    client.options["connect_timeout"] = _ATTEMPT_S
    return client
