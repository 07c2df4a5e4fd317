"""The transport over NATS. The client reconnects without limit. While it is disconnected every call raises
``BrokerError`` at once, so that each caller retries by its own deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock import internal_tls
from penstock.bus.credentials import credentials
from penstock.bus.envelope import NobodyServesError
from penstock.bus.permissions import inbox_prefix
from penstock.errors import BrokerError
from penstock.log_events import EventLog
from penstock.redaction import without_credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import nats.aio.client
    import nats.aio.msg
    import nats.aio.subscription

    from penstock.ports import Transport

    Handler = Callable[[str, bytes], Awaitable[bytes | None]]

_log = EventLog("penstock.bus")

#: Handlers of one subscription that may run at once. Further messages wait in the client.
MAX_RUNNING = 256
#: Messages and bytes of one subscription that may wait in the client. Further messages are dropped and
#: logged.
MAX_PENDING = 16_384
MAX_PENDING_BYTES = 32 * 1024 * 1024

_REMEDY = "start nats-server there, or set nats.url to where it runs"


class NatsTransport:
    """A connection to NATS that implements ``penstock.ports.Transport``; ``NatsTransport.connect`` opens one."""

    def __init__(self, client: nats.aio.client.Client, url: str) -> None:
        self._nc = client
        #: The server's URL without credentials, for logs and errors.
        self.url = url
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def client(self) -> nats.aio.client.Client:
        """The underlying nats-py client, for JetStream."""
        return self._nc

    @property
    def connected(self) -> bool:
        """Whether the client is connected at this moment."""
        return bool(self._nc.is_connected)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str = "penstock",
        role: str | None = None,
        deadline_s: float = 10.0,
        on_connection: Callable[[bool], None] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> NatsTransport:
        """Connects to one of the servers in ``url`` (comma separated); ``name`` is shown in the server's
        monitoring. ``role``: the service that connects, which gets answers on subjects of its own. ``config``: where the credentials are (``security.nats.*``).

        ``on_connection(connected)`` is called when the connection is lost or restored later. Raises
        BrokerError if no server accepts within ``deadline_s``.
        """
        from penstock import reconnecting

        shown = without_credentials(url)
        errors = 0

        def on_error(client: nats.aio.client.Client, what: str) -> None:
            nonlocal errors
            if client.is_connected:
                _log.warning("nats_error", url=shown, error=what)
            elif not errors:
                _log.warning("nats_unreachable", url=shown, error=what)
            errors += 1

        async def on_disconnect(client: nats.aio.client.Client) -> None:
            if client.is_closed or client.is_draining:  # ``close`` was called
                return
            _log.warning("nats_disconnected", url=shown)
            if on_connection:
                on_connection(False)

        async def on_reconnect(client: nats.aio.client.Client) -> None:
            _log.warning(
                "nats_reconnected",
                url=client.connected_url and client.connected_url.netloc.rpartition("@")[2],
            )
            if on_connection:
                on_connection(True)

        try:
            client = await reconnecting.connect(
                url,
                name=name,
                deadline_s=deadline_s,
                proof={
                    **_proof(url, config or {}),
                    **({} if role is None else {"inbox_prefix": inbox_prefix(role)}),
                },
                on_error=on_error,
                on_disconnect=on_disconnect,
                on_reconnect=on_reconnect,
            )
        except reconnecting.ConnectingFailedError as err:
            raise BrokerError(
                f"cannot connect to NATS at {shown} within {deadline_s:g} s: {err}",
                expected="a nats-server that accepts connections",
                where="nats.url",
                remedy=_REMEDY,
            ) from err
        return cls(client, shown)

    def _check(self, subject: str) -> None:
        if not self._nc.is_connected:
            raise BrokerError(f"not connected to NATS at {self.url}", where=subject, remedy=_REMEDY)

    async def request(self, subject: str, data: bytes, timeout_s: float = 2.0) -> bytes:
        """See ``Transport.request``. Raises NobodyServesError, a BrokerError, if the subject has no
        subscriber."""
        import nats.errors

        self._check(subject)
        try:
            return bytes((await self._nc.request(subject, data, timeout=timeout_s)).data)
        except nats.errors.NoRespondersError:
            raise NobodyServesError(
                f"nobody serves the subject {subject}",
                where=subject,
                remedy="check that the service runs, with the same cluster.id and nats.url",
            ) from None
        except (TimeoutError, nats.errors.TimeoutError):
            raise BrokerError(f"no answer within {timeout_s:g} s", where=subject) from None
        except (nats.errors.Error, OSError) as err:
            raise self._error(err, subject, len(data)) from err

    async def publish(self, subject: str, data: bytes) -> None:
        """See ``Transport.publish``. Raises BrokerError also if the message is larger than the server
        accepts."""
        import nats.errors

        self._check(subject)
        try:
            await self._nc.publish(subject, data)
        except (nats.errors.Error, OSError) as err:
            raise self._error(err, subject, len(data)) from err

    def _error(self, err: Exception, subject: str, size: int) -> BrokerError:
        import nats.errors

        if isinstance(err, nats.errors.MaxPayloadError):
            return BrokerError(
                f"a message of {size} bytes is larger than the server takes",
                expected=f"at most {self._nc.max_payload} bytes",
                where=subject,
                remedy="raise max_payload in the nats-server's configuration",
            )
        return BrokerError(f"NATS at {self.url}: {type(err).__name__} {err}", where=subject, remedy=_REMEDY)

    async def serve(
        self, subject: str, handler: Handler, *, queue: str | None = None
    ) -> nats.aio.subscription.Subscription:
        """See ``Transport.serve``. Returns once the server knows the subscription.

        Handlers start in the order of arrival and then run concurrently, at most ``MAX_RUNNING`` at once,
        so that a slow handler does not delay the others. A handler that raises is logged, and its
        requester gets no answer.
        """
        running = asyncio.Semaphore(MAX_RUNNING)

        async def answer(msg: nats.aio.msg.Msg) -> None:
            try:
                reply = await handler(msg.subject, msg.data)
                if msg.reply and reply is not None:
                    await self._nc.publish(msg.reply, reply)
            except Exception:
                _log.exception("handler_failed", subject=msg.subject)
            finally:
                running.release()

        async def take(msg: nats.aio.msg.Msg) -> None:
            await running.acquire()
            task = asyncio.get_running_loop().create_task(answer(msg))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        import nats.errors

        self._check(subject)
        try:
            sub = await self._nc.subscribe(
                subject,
                queue=queue or "",
                cb=take,
                pending_msgs_limit=MAX_PENDING,
                pending_bytes_limit=MAX_PENDING_BYTES,
            )
            await self._nc.flush()  # after this the server knows the subscription
        except (nats.errors.Error, OSError) as err:
            raise self._error(err, subject, 0) from err
        return sub

    async def close(self) -> None:
        """Cancels handlers that still run and closes the connection."""
        for task in list(self._tasks):
            task.cancel()
        if not self._nc.is_closed:
            await self._nc.close()


def _proof(url: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Who connects, as nats-py takes it. Raises SpecError if a file is named that cannot be used."""
    found: dict[str, Any] = {}
    if url.startswith("tls://") and (tls := internal_tls.server_tls()) is not None:
        found["tls"] = tls
    found.update(credentials(config))
    return found


if TYPE_CHECKING:
    _port: type[Transport] = NatsTransport


async def connect(url: str, **options: Any) -> NatsTransport:
    """Opens a connection. ``options`` are those of ``NatsTransport.connect``."""
    return await NatsTransport.connect(url, **options)
