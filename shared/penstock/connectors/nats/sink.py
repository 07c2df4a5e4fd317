"""The at-least-once JetStream sink: rows are published at once; the number of unacknowledged messages is
bounded.

A checkpoint is acknowledged when every row before its barrier is stored. After a failure
rows since the last checkpoint are published again. A lost message is published again together with all
messages after it (``send_window``), so that the last message of a key has its newest value.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cancelling import end_tasks
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.nats.client import JetStreamApi, connect, server_url
from penstock.connectors.nats.encoding import MessageEncoder
from penstock.connectors.nats.send_window import SendWindow
from penstock.connectors.nats.settings import OPTIONS
from penstock.connectors.nats.streams import sink_stream
from penstock.connectors.staging import commit_left
from penstock.errors import BrokerError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from nats.aio.msg import Msg

    from penstock.connectors.base import SourceContext
    from penstock.connectors.nats.send_window import Sending
    from penstock.types import Batch

#: After this time without an acknowledgement, a message and all after it are published again.
RETRY_S = 5.0
#: After this time without an acknowledgement, the task fails.
GIVE_UP_S = 60.0
#: The number of rows waiting for a place in the window from which ``ready`` is False.
_MAX_QUEUED = 8_192


class AtLeastOnceWriter(SinkWriter):
    """Publishes messages at once and repeats those that are not acknowledged."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._window = SendWindow(self._options["sink.max-in-flight"], RETRY_S)
        self._changed = asyncio.Event()
        self._work = asyncio.Event()
        self._failure: PenstockError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        from penstock.connectors.nats.exactly_once import ExactlyOnceWriter

        self.ctx = ctx
        await commit_left(ExactlyOnceWriter(self._table), ctx, restored)
        self._encoder = MessageEncoder(self._table, self._options, ctx)
        url = server_url(self._options, ctx.config)
        client = await connect(url, f"penstock sink {ctx.uid} {ctx.subtask_index}")
        self._api = JetStreamApi(client, url)
        self._stream = await sink_stream(self._api, self._options, self._encoder.template.wildcard)
        self._encoder.max_payload = client.max_payload
        self._inbox = client.new_inbox()
        await client.subscribe(f"{self._inbox}.*.*", cb=self._acknowledged, pending_bytes_limit=0)
        await self._encoder.open()
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._retry())]

    def write(self, batch: Batch) -> None:
        self._check()
        self._window.add(self._encoder.encode(batch))
        self._work.set()

    def away(self) -> str | None:
        return self._api.away()

    def ready(self) -> bool:
        return self._window.waiting < _MAX_QUEUED or self._failure is not None

    async def wait_ready(self) -> None:
        while not self.ready():
            self._changed.clear()
            await self._changed.wait()
        self._check()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        last = self._window.taken

        async def stored() -> list[bytes]:
            await self._until_stored(last)
            return []

        return stored()

    async def finish(self) -> None:
        await self._until_stored(self._window.taken)

    async def close(self) -> None:
        await end_tasks(self._tasks)
        if self._tasks:
            await self._api.client.close()

    # -- inside -------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, err: PenstockError) -> None:
        self._failure = err
        self._changed.set()

    async def _until_stored(self, last: int) -> None:
        """Wait until the first ``last`` messages are acknowledged."""
        while self._window.stored < last:
            self._check()
            self._changed.clear()
            await self._changed.wait()
        self._check()

    async def _publish(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                while (sending := self._window.next(loop.time())) is not None:
                    await self._send(sending)
                self._changed.set()
                self._work.clear()
                await self._work.wait()
        except PenstockError as err:
            self._fail(err)

    async def _send(self, sending: Sending) -> None:
        import nats.errors

        message = sending.message
        reply = f"{self._inbox}.{sending.round}.{sending.number}"
        try:
            await self._api.client.publish(
                message.subject, message.data, reply=reply, headers=message.headers
            )
        except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionReconnectingError, OSError):
            return  # the client is not connected now; ``_retry`` sends the message again
        except nats.errors.Error as err:
            raise BrokerError(
                f"cannot publish to NATS at {self._api.url}",
                got=f"{type(err).__name__} {err}".strip(),
                where=f"subject '{message.subject}'",
                remedy="check the server and the account's permissions",
            ) from err

    async def _acknowledged(self, msg: Msg) -> None:
        round_, number = map(int, msg.subject.rsplit(".", 2)[1:])
        if (msg.headers or {}).get("Status") == "503":
            return  # no stream takes the message now, because a leader is being elected; ``_retry`` sends it again
        if b'"error"' in msg.data and (error := msgspec.json.decode(msg.data).get("error")):
            if error.get("code") == 503:
                return
            self._fail(self._refused(number, error))
            return
        self._window.acknowledge(round_, number)
        self._work.set()
        self._changed.set()

    def _refused(self, number: int, error: dict[str, Any]) -> BrokerError:
        message = self._window.message(number)
        return BrokerError(
            f"stream '{self._stream}' refused a message",
            got=f"{error.get('description')} (err_code {error.get('err_code')})",
            where=f"subject '{message.subject}'" if message else f"stream '{self._stream}'",
            remedy="check the stream's limits (max_bytes, max_msgs with discard new, max_msg_size)",
        )

    async def _retry(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(RETRY_S / 5)
                self._changed.set()
                now, window = loop.time(), self._window
                since = window.oldest_sent_s()
                if since is not None and now - since > GIVE_UP_S:
                    raise BrokerError(
                        f"stream '{self._stream}' at {self._api.url} does not acknowledge",
                        expected=f"an acknowledgement within {GIVE_UP_S:g} s",
                        got=f"{window.unacknowledged} messages without one",
                        where=f"stream '{self._stream}'",
                        remedy="check that the server runs and the stream has a leader",
                    )
                if self._api.client.is_connected and window.is_overdue(now):
                    window.again()
                    self._work.set()
        except PenstockError as err:
            self._fail(err)
