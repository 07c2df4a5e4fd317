"""Subscribes to topics in a session that the broker keeps; messages are acknowledged when the checkpoint that holds them is
complete."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.config import CHECKPOINT_INTERVAL_MS
from penstock.connectors.mqtt.client import ERRORS, Link, failure, where_of
from penstock.connectors.mqtt.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.connectors.unconfirmed import Unconfirmed
from penstock.errors import BrokerError, ConnectorError, RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.away import Away
    from penstock.connectors.base import SourceContext, Split, TableInfo


class MqttReader(ReceivingReader):
    """Reads at least once with quality 1, at most once with 0; exactly once by the correlation data of messages."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        super().__init__(OWNER, where_of(self._options))
        self._qos = int(self._options["qos"])
        self._by_id = self._options["use-correlation-data"]
        self._unconfirmed: dict[str, Unconfirmed] = {}
        self._links: dict[str, Link | None] = {}

    async def open(self, ctx: SourceContext) -> None:
        if self._qos and not CHECKPOINT_INTERVAL_MS.read(ctx.config):
            raise ConnectorError(
                "messages of quality 1 are read without checkpoints",
                expected="checkpoints, after which messages are acknowledged",
                got=f"'{CHECKPOINT_INTERVAL_MS.key}' = 0",
                where=OWNER,
                remedy=f"set '{CHECKPOINT_INTERVAL_MS.key}', to 10 s for example, or 'qos' = '0'",
            )
        await super().open(ctx)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            retention_ms = self._options["scan.id-retention"]
            # An acknowledgement has no answer, so what was acknowledged is remembered as long as what may be lost.
            self._unconfirmed[split.id] = Unconfirmed(
                split.position, retention_ms, self.ctx.now_ms(), acknowledged_kept_ms=retention_ms
            )
        super().add_splits(splits)

    async def receive(self, place: Place, away: Away) -> None:
        unconfirmed = self._unconfirmed[place.split.id]
        payload = place.split.payload
        numbers = itertools.count(1)
        early: list[Any] = []
        link: Link | None = None

        def take(message: Any) -> None:
            # The broker sends what it kept before it answers; until then it is not known whether the session is the same.
            if link is None:
                early.append(message)
            elif self._links.get(place.split.id) is link:
                self._take_in(place, unconfirmed, self._arrived(message, next(numbers)))

        try:
            async with Link(self._options, client_id=payload["client-id"], take=take) as connected:
                self._check_session(place, unconfirmed, connected)
                self.discard(place)
                unconfirmed.begin(self.ctx.now_ms())
                link = self._links[place.split.id] = connected
                for message in early:
                    take(message)
                await self._subscribe(connected, payload["filter"])
                unconfirmed.subscribed = True
                away.answered()
                await asyncio.wait({connected.gone})
                error = connected.gone.exception()
                raise BrokerError("the broker has ended the connection", got=str(error), where=self._where)
        except ERRORS as err:
            raise failure(err, self._where) from err
        finally:
            self._links[place.split.id] = None

    def _check_session(self, place: Place, unconfirmed: Unconfirmed, link: Link) -> None:
        if not self._qos or link.session_present or not unconfirmed.subscribed:
            return
        raise ConnectorError(
            "the broker no longer has the session, and so not the messages that came meanwhile",
            expected=f"the session of the client '{place.split.payload['client-id']}'",
            got="a new session",
            where=self._where,
            remedy="raise 'session-expiry', and let the broker keep sessions over its restarts (persistence); the job goes on "
            "without the messages that are lost when it is restored again",
        )

    async def _subscribe(self, link: Link, filter: str) -> None:
        shared = filter.startswith("$share/")
        options = SubscribeOptions(
            qos=self._qos,
            # What is retained comes when the subscription is new, not at each connection.
            retainHandling=SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if shared else SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
        )  # fmt: skip
        [code] = await link.subscribe(filter, options=options)
        if getattr(code, "value", code) == self._qos:
            return
        raise ConnectorError(
            "the broker refuses the subscription", expected=f"quality {self._qos} of '{filter}'", got=str(code),
            where=self._where, remedy="allow the user to read the topic, or take 'qos' = '0'",
        )  # fmt: skip

    def _take_in(self, place: Place, unconfirmed: Unconfirmed, message: Arrived) -> None:
        tag, id = message.token
        if message.told["qos"] == 0 and not self._by_id:
            tag = None
        if self._by_id and id is None:
            error = RecordError(
                "a message has no correlation data",
                expected="some of its own in each message ('use-correlation-data' = 'true')",
                got="none",
                where=message.where,
                remedy="let the sender set it, or remove the option: then messages are read at least once",
            )
            try:
                self.ctx.bad_record(error, message.data, message.where)
            except RecordError as err:
                self.fail(err)
                return
            unconfirmed.skip(tag)
        elif unconfirmed.arrive(tag, id):
            self.hold(place, message)

    def _arrived(self, message: Any, number: int) -> Arrived:
        properties = message.properties
        data = getattr(properties, "CorrelationData", None)
        told = {
            "qos": message.qos,
            "topic": message.topic,
            "retained": bool(message.retain),
            "correlation-data": None if data is None else data.decode(errors="replace"),
            "response-topic": getattr(properties, "ResponseTopic", None),
            "user-properties": list(dict(getattr(properties, "UserProperty", None) or ()).items()),
        }
        id = data.hex() if self._by_id and data else None
        where = f"topic '{message.topic}', message {number} of the connection"
        return Arrived(message.payload, where, told, None, ((message.mid, message.qos), id))

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        self._unconfirmed[place.split.id].poll([message.token[1] for message in messages])
        return place.position

    def position_of(self, place: Place) -> Any:
        unconfirmed = self._unconfirmed[place.split.id]
        return {**unconfirmed.position(), "subscribed": unconfirmed.subscribed}

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        for split in positions:
            unconfirmed, link = self._unconfirmed[split.id], self._links.get(split.id)
            if link is None:
                # The time in which the broker is away does not count: it may have forgotten the last acknowledgements.
                continue
            unconfirmed.forget(self.ctx.now_ms())
            entries = unconfirmed.ripe(split.position)
            for entry in entries:
                if entry.tag is not None and entry.tag[1]:
                    link.acknowledge(*entry.tag)
            unconfirmed.acknowledged(entries, self.ctx.now_ms())
