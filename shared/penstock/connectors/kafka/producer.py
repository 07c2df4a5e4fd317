"""A producer that keeps the order of messages, bounds the messages that it holds, and reports failures."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.client import ANSWER_S, Caller, Refused, Trouble, failure, list_topics, weakly
from penstock.connectors.kafka.encoding import Pairs
from penstock.errors import BrokerError, ConnectorError, FencedError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from confluent_kafka import KafkaError, Message

    from penstock.connectors.kafka.encoding import OutMessage
    from penstock.errors import PenstockError

_log = EventLog("penstock.connectors.kafka")

#: Messages that the client may hold before ``full``; and their KiB.
_MAX_MESSAGES = 100_000
_MAX_KIB = 65_536
#: Attempts to find the topic before it is reported missing, and the seconds between them.
_LOOKS, _LOOK_S = 5, 0.3
#: How long a step of a transaction may take, in seconds. The client is told ``ANSWER_S``, and does not always keep
#: to it: ``send_offsets_to_transaction`` has been seen to wait for ever after a broker was killed.
_STUCK_S = ANSWER_S + 5
#: The number of messages handed over before the loop's other work gets its turn.
_SLICE = 2_000


class TakenOverError(FencedError):
    """Another producer of the same transactional id began after this one."""


class KafkaProducer:
    """An idempotent producer: messages that the client repeats are neither duplicated nor reordered.

    ``where``: for errors. With ``transactional_id`` the methods of a transaction must be called in their
    order.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, where: str, **config: Any) -> None:
        import confluent_kafka

        self.topic = topic
        self._where = where
        self._failure: PenstockError | None = None
        self._refused = Refused()
        self._pending: deque[OutMessage] = deque()
        self._caller = Caller("kafka-sink")
        #: A call of the client does not return; nothing more can be asked of it.
        self._stuck = False
        self._config: dict[str, Any] = {
            "queue.buffering.max.messages": _MAX_MESSAGES,
            "queue.buffering.max.kbytes": _MAX_KIB,
            "linger.ms": 5,
            # Kafka's own clients use this, so equal keys go to the same partitions as theirs.
            "partitioner": "murmur2_random",
            **properties,
            **config,
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": weakly(self._delivered),
            "error_cb": weakly(self._note),
            "log_level": 0,
        }
        self.trouble = Trouble(self._where)
        self._client = confluent_kafka.Producer(self._config)

    # -- what the client says -----------------------------------------------------------

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """The client calls this only for messages that were not delivered."""
        from confluent_kafka import KafkaError as E

        if error is None or error.code() in (E._PURGE_QUEUE, E._PURGE_INFLIGHT):
            return
        self._failure = self._failure or failure(error, "a message could not be written", self._where)

    def _note(self, error: KafkaError) -> None:
        self._refused(error)
        found = failure(error, "the Kafka producer cannot go on", self._where)
        if error.fatal() or isinstance(found, ConnectorError):
            self._failure = self._failure or self._fenced(error) or found
        self.trouble.said(error)
        _log.warning("kafka_sink_trouble", where=self._where, error=error.str())

    def _fenced(self, error: KafkaError) -> TakenOverError | None:
        from confluent_kafka import KafkaError as E

        if error.code() not in (E._FENCED, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH):
            return None
        return TakenOverError(
            "another producer has taken over the transactional id of this sink",
            expected="one job for each transactional id",
            got=f"{error.name()}: {error.str()}",
            where=self._where,
            remedy="nothing, if a newer attempt runs; two jobs need two 'sink.transactional-id-prefix'",
        )

    def check(self) -> None:
        """Raises the first failure since the start, if there is one."""
        if self._failure is not None:
            raise self._failure

    # -- messages -----------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the producer should get no more messages now: see ``drain``."""
        return bool(self._pending) or len(self._client) >= _MAX_MESSAGES // 2

    @property
    def empty(self) -> bool:
        """Whether all messages have been sent and acknowledged."""
        return not self._pending and not len(self._client)

    def send(self, messages: Pairs | Iterable[OutMessage]) -> None:
        """Take messages, which are sent in the background."""
        self.check()
        left: Iterator[OutMessage] = iter(messages)
        if not self._pending:
            produce = self._produce_pairs if isinstance(messages, Pairs) else self._produce
            if (refused := produce(left)) is not None:
                self._pending.append(refused)
        self._pending.extend(left)

    def _hand_over(self, most: int) -> None:
        """Hand up to ``most`` waiting messages to the client, in order, until the client is full."""
        pending = self._pending
        refused = self._produce(pending.popleft() for _ in range(min(most, len(pending))))
        if refused is not None:
            pending.appendleft(refused)  # ``drain`` makes room and continues with this message

    def _produce(self, messages: Iterator[OutMessage]) -> OutMessage | None:
        """Hand messages to the client, in order; returns the one for which it had no room, or None if it took all."""
        produce, topic, message = self._client.produce, self.topic, None
        with self._refusals():
            try:
                for message in messages:
                    if len(message) == 2:
                        produce(topic, message[1], message[0])
                    else:
                        key, value, partition, timestamp, headers = message
                        produce(topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                return message
            self._client.poll(0)
        return None

    def _produce_pairs(self, pairs: Iterator[Any]) -> OutMessage | None:
        """The same for pairs of a key and a value, a third quicker."""
        produce, topic = self._client.produce, self.topic
        key = value = None
        with self._refusals():
            try:
                for key, value in pairs:
                    produce(topic, value, key)
            except BufferError:
                return key, value
            self._client.poll(0)
        return None

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as err:
            raise self._error(err.args[0], "a message could not be written") from None

    async def drain(self) -> None:
        """Wait until there is room for more messages."""
        while self.full:
            self.check()
            await self._call(self._client.poll, 0.05)
            self._hand_over(_SLICE)
        self.check()

    async def flush(self) -> None:
        """Wait until the brokers have acknowledged every message, or one has failed."""
        while not self.empty:
            self.check()
            self._hand_over(_SLICE)
            await self._call(self._client.flush, 0.1)
        self.check()

    # -- transactions -------------------------------------------------------------------

    async def begin_epoch(self) -> None:
        """Fences other producers of the same transactional id and ends their open transactions."""
        await self._transactional(self._client.init_transactions, ANSWER_S)

    async def begin(self) -> None:
        """Begin a transaction."""
        await self._transactional(self._client.begin_transaction)

    async def commit(self, offsets: list[Any], group: Any) -> None:
        """Commit the messages sent since ``begin`` and the offsets of ``group``, all or none."""
        await self.flush()
        await self._transactional(self._client.send_offsets_to_transaction, offsets, group, ANSWER_S)
        await self._transactional(self._client.commit_transaction, ANSWER_S)

    async def _transactional(self, f: Callable[..., Any], *args: Any) -> None:
        """Run a step of a transaction. After a ``BrokerError`` the outcome is unknown, and a new producer
        must find it out. The client itself repeats what may be repeated."""
        from confluent_kafka import KafkaException

        while True:
            try:
                await self._in_time(f, *args)
                return
            except KafkaException as err:
                error = err.args[0]
                if not error.retriable():
                    raise self._error(error, "a transaction could not be completed") from None
                _log.warning("kafka_sink_trouble", where=self._where, error=error.str())

    async def _in_time(self, f: Callable[..., Any], *args: Any) -> None:
        call = self._caller.call(asyncio.get_running_loop(), f, *args)
        await asyncio.wait({call}, timeout=_STUCK_S)
        if call.done():
            return call.result()
        self._stuck = True
        raise BrokerError(
            "a step of a transaction does not end",
            expected=f"an answer of the client within {ANSWER_S:.0f} s",
            got=f"none from {f.__name__} after {_STUCK_S:.0f} s",
            where=self._where,
            remedy="nothing: another producer finds out what was stored",
        )

    def _error(self, error: KafkaError, what: str) -> PenstockError:
        return self._fenced(error) or failure(error, what, self._where)

    async def partitions(self) -> int:
        """The topic's number of partitions; ConnectorError if there is no such topic."""
        error = None
        for _ in range(_LOOKS):
            found = await self._call(list_topics, self._client, self._refused, self.topic)
            topic = found.topics[self.topic]
            if topic.error is None:
                return len(topic.partitions)
            error = topic.error
            await asyncio.sleep(_LOOK_S)  # not every broker knows a topic that was created just now
        assert error is not None
        raise failure(error, f"topic '{self.topic}' cannot be written", self._where)

    async def _call(self, f: Callable[..., Any], *args: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return await self._run(f, *args)
        except KafkaException as err:
            raise self._error(err.args[0], "the brokers cannot be written to") from None

    async def _run(self, f: Callable[..., Any], *args: Any) -> Any:
        return await self._caller.call(asyncio.get_running_loop(), f, *args)

    async def close(self) -> None:
        """Drop the messages that were not sent yet; waits for no broker."""
        self._pending.clear()
        if self._stuck:
            # The thread is left to its call, and the client to the thread. Another producer of the transactional
            # id makes the brokers refuse this one.
            self._caller.close()
            return
        # The client has no method that closes without waiting for messages and transactions. Dropping the
        # last reference does that.
        last = [self._client]
        del self._client
        await self._run(last.clear)
        self._caller.close()
