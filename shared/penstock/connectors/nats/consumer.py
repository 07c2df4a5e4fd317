"""Reads one (stream, filter subject) in order by pull requests, with a bounded prefetch.

The server keeps an ephemeral consumer without acknowledgements. Messages come in answer to pull requests,
never more than ``prefetch`` ahead. After a gap in the consumer's own numbering, a missing heartbeat, or a
reconnect, a new consumer is made that starts after the last received message. No message is therefore lost,
repeated or reordered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.cancelling import end_tasks
from penstock.connectors.nats.client import JetStreamApi, JetStreamError
from penstock.errors import ConnectorError, PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg

_log = EventLog("penstock.connectors.nats")

PULL_EXPIRES_S = 30.0
HEARTBEAT_S = 5.0
#: Attempts to make the consumer again before the task fails; with growing pauses they take about a minute.
MAX_ATTEMPTS = 12
_NS = 1_000_000_000


class Message(NamedTuple):
    """A message of a stream. ``time_ns``: the time at which the server stored it."""

    sequence: int
    time_ns: int
    subject: str
    data: bytes
    headers: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Start:
    """The place to read from: after ``after`` (restored or received), else from ``sequence``, else from
    ``time_ms``, else from the first message.

    ``created`` is the time at which the server made the stream that these sequences belong to; None if it is
    unknown, as in older snapshots.
    """

    after: int | None = None
    sequence: int | None = None
    time_ms: int | None = None
    created: str | None = None

    def policy(self) -> dict[str, Any]:
        """The delivery policy in the form of JetStream's consumer configuration."""
        if self.after is not None or self.sequence is not None:
            first = self.after + 1 if self.after is not None else self.sequence
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first or 0)}
        if self.time_ms is not None:
            seconds, ms = divmod(self.time_ms, 1000)
            import datetime as dt

            stamp = dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
            return {"deliver_policy": "by_start_time", "opt_start_time": f"{stamp}.{ms:03d}Z"}
        return {"deliver_policy": "all"}


def parse_reply(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, consumer sequence, time ns, pending) of a delivery's reply subject,
    in its form of 9 tokens or that of 11 and more (with domain and account)."""
    tokens = reply.split(".")
    at = 5 if len(tokens) < 11 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]), int(tokens[at + 3])


class OrderedConsumer:
    """Reads in order. ``messages``: messages received and not yet taken; ``pending``: how many more the
    server has (None: not known yet); ``failure``: the error that ended reading."""

    def __init__(
        self, api: JetStreamApi, stream: str, subject: str, start: Start, *,
        prefetch: int, prefetch_bytes: int, wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._api = api
        self.stream = stream
        self.subject = subject
        self._start = start
        self._received = start.after
        self._created = start.created
        #: The sequence after which the server's consumer began.
        self._begin = 0
        self._prefetch = max(1, prefetch)
        self._prefetch_bytes = prefetch_bytes
        self._wake = wake
        self.messages: deque[Message] = deque()
        self.pending: int | None = None
        self.failure: PenstockError | None = None
        self._name: str | None = None
        self._subscription: Any = None
        self._generation = 0
        self._outstanding = 0
        self._delivered = 0
        self._heard = 0.0
        self._reset = asyncio.Event()
        self._closed = False
        self._reset.set()
        self._task = asyncio.create_task(self._supervise())

    # -- for the reader -----------------------------------------------------------------

    def taken(self) -> None:
        """The reader has taken messages: ask for more if half of the prefetch is free."""
        if self._name and len(self.messages) + self._outstanding <= self._prefetch // 2:
            self._ask()

    def reconnected(self) -> None:
        """The client has reconnected, so requests under way are lost."""
        self._reset.set()

    @property
    def caught_up(self) -> bool:
        """Whether no message waits, here or at the server."""
        return not self.messages and self.pending == 0

    async def last_sequence_passed(self) -> int | None:
        """A stream sequence up to which nothing of this filter is left to read, or None if something is
        left. Costs two requests."""
        if not self.caught_up or self._name is None:
            return None
        generation, received = self._generation, self._received
        info = await self._api.stream_info(self.stream)
        # The stream itself must be asked, after its end was seen. The consumer's count of pending messages is
        # updated in the background, and a count that is too low would skip a message for ever.
        if await self._api.has_from(
            self.stream, self.subject, (self._begin if received is None else received) + 1
        ):
            return None
        unchanged = self._generation == generation and self._received == received
        return info["state"]["last_seq"] if unchanged and self.caught_up else None

    async def close(self) -> None:
        """Delete the consumer and stop."""
        self._closed = True
        await end_tasks([self._task])
        await self._drop()

    # -- inside -------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Makes a new consumer whenever ``_reset`` is set, and watches for missing heartbeats."""
        import nats.errors

        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._reset.wait(), HEARTBEAT_S)
            except TimeoutError:
                if self._outstanding and loop.time() - self._heard > 3 * HEARTBEAT_S:
                    self._reset.set()
                continue
            if not self._api.client.is_connected:
                await asyncio.sleep(0.2)
                continue
            self._reset.clear()
            try:
                await self._create()
                attempt = 0
            except ConnectorError as err:
                self._fail(err)
                return
            except (PenstockError, JetStreamError, nats.errors.Error, OSError) as err:
                attempt += 1
                if attempt >= MAX_ATTEMPTS:
                    self._fail(
                        err if isinstance(err, PenstockError) else self._api.refused("a consumer", err)
                    )
                    return
                _log.warning("nats_read_retried", subject=self.subject, stream=self.stream, error=err)
                self._reset.set()
                await asyncio.sleep(min(10.0, 0.1 * 2**attempt))

    def _fail(self, err: PenstockError) -> None:
        self.failure = err
        self._wake()

    async def _create(self) -> None:
        await self._drop()
        self._generation += 1
        start = self._start
        if self._received is not None:
            start = Start(after=self._received, created=self._created)
        await self._check_position(start)
        config: dict[str, Any] = {
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 300 * _NS,
            **start.policy(),
        }
        if self.subject != ">":
            config["filter_subject"] = self.subject
        body = {"stream_name": self.stream, "config": config}
        created = await self._api.request(f"CONSUMER.CREATE.{self.stream}", body)
        self._delivered = 0
        self._outstanding = 0
        self._begin = created["delivered"]["stream_seq"]
        self.pending = created.get("num_pending", 0)
        inbox = self._api.client.new_inbox()
        generation = self._generation

        async def receive(msg: Msg) -> None:
            if generation == self._generation:
                self._receive(msg)

        self._inbox = inbox
        self._subscription = await self._api.client.subscribe(
            inbox, cb=receive, pending_msgs_limit=4 * self._prefetch + 1024, pending_bytes_limit=0
        )
        self._name = created["name"]
        self._heard = asyncio.get_running_loop().time()
        self._ask()
        self._wake()

    async def _check_position(self, start: Start) -> None:
        """Raise ConnectorError unless the stream is the one that ``start`` refers to and still has its messages."""
        wanted = start.sequence if start.after is None else start.after + 1
        info = await self._api.stream_info(self.stream)
        state = info["state"]
        last = state["last_seq"]
        if (start.created or info["created"]) != info["created"]:
            expected, got = f"the stream made at {start.created}", f"one made at {info['created']}"
        elif start.after is not None and start.after > last:
            expected, got = f"messages behind sequence {start.after}", f"the last one is {last}"
        else:
            self._created = info["created"]
            if wanted is not None and wanted < state["first_seq"]:
                raise self._lost(
                    "no longer has the position that is needed",
                    expected=f"messages from sequence {wanted} on",
                    got=f"the first one left is {state['first_seq']}: older ones were purged or expired",
                    remedy="raise the stream's limits",
                )
            return
        raise self._lost(
            "is another one than was read before: it was deleted and made anew, or restored from an old backup",
            expected=expected,
            got=f"{got}: which of its messages were read cannot be told",
            remedy="bring the old stream back",
        )

    def _lost(self, what: str, *, expected: str, got: str, remedy: str) -> ConnectorError:
        return ConnectorError(
            f"stream '{self.stream}' {what}",
            expected=expected,
            got=got,
            where=f"connector 'nats', subject '{self.subject}'",
            remedy=f"{remedy}; to go on without what is lost, start without this state or with "
            "'scan.startup.mode' = 'earliest'",
        )

    async def _drop(self) -> None:
        """Deletes the server's consumer; if that fails, the server removes it by itself."""
        name, self._name = self._name, None
        subscription, self._subscription = self._subscription, None
        self._outstanding = 0
        try:
            if subscription is not None:
                await subscription.unsubscribe()
            if name is not None and self._api.client.is_connected:
                await self._api.request(f"CONSUMER.DELETE.{self.stream}.{name}")
        except Exception as err:
            _log.debug("nats_consumer_not_deleted", consumer=name, error=err)

    def _ask(self) -> None:
        count = self._prefetch - len(self.messages) - self._outstanding
        if count <= 0 or self._name is None:
            return
        body = {
            "batch": count,
            "max_bytes": self._prefetch_bytes,
            "expires": int(PULL_EXPIRES_S * _NS),
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
        }
        self._outstanding += count
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._name}"
        task = asyncio.ensure_future(
            self._api.client.publish(subject, msgspec.json.encode(body), reply=self._inbox)
        )
        task.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._closed:
            _log.debug("nats_pull_failed", error=task.exception())
            self._reset.set()

    def _receive(self, msg: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        headers = msg.headers
        if not msg.reply or not msg.reply.startswith("$JS.ACK."):
            self._status(headers or {})
            return
        sequence, delivered, time_ns, pending = parse_reply(msg.reply)
        if delivered != self._delivered + 1:
            self._generation += 1  # later messages of this consumer are ignored
            self._reset.set()
            return
        self._delivered = delivered
        self._received = sequence
        self._outstanding -= 1
        self.pending = pending
        self.messages.append(Message(sequence, time_ns, msg.subject, msg.data, headers))
        self._wake()

    def _status(self, headers: dict[str, str]) -> None:
        """Handle a status message. 100: a heartbeat. 404, 408, 409: a pull request ended before it was
        filled."""
        code = headers.get("Status", "")
        if code == "100":
            return
        if code == "503" or "Consumer Deleted" in headers.get("Description", ""):
            self._reset.set()
            return
        self._outstanding = max(0, self._outstanding - int(headers.get("Nats-Pending-Messages", "0")))
        if "Nats-Pending-Messages" not in headers:
            self._outstanding = 0
        self.taken()
