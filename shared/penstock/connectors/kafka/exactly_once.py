"""The exactly-once Kafka sink.

Rows are *staged* until their checkpoint is complete (``connectors.staging``). Then one transaction holds the
rows of the epoch and a *marker*: the offset that the transactional id, taken as the name of a consumer group,
commits for partition 0 of the topic. The offset is the checkpoint; its metadata name the job. The broker
therefore stores the rows and the marker together or not at all.

- A writer begins by taking over its transactional id: the broker refuses everything that an older producer of
  that id still sends, and ends its open transaction. Then the writer reads the marker and knows whether its
  epoch is stored.
- A repeated commit does the same with a new producer, and repeats only what the broker lacks.
- Another subtask than the one that staged an epoch may commit it; it uses the transactional id of the subtask
  that staged it.
- No transaction is open between checkpoints, so readers do not wait for one, and a job that is down for
  longer than ``transaction.timeout.ms`` loses nothing.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.kafka.client import ANSWER_S, Caller, client_properties, failure, patiently
from penstock.connectors.kafka.encoding import OutMessage, size_of
from penstock.connectors.kafka.limits import TRANSACTION_TIMEOUT_MS
from penstock.connectors.kafka.producer import KafkaProducer, TakenOverError
from penstock.connectors.staging import StagedWriter
from penstock.errors import ConnectorError, FencedError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.kafka.encoding import MessageEncoder
    from penstock.connectors.staging import Committable, StagedMessage
    from penstock.options import OptionSet
    from penstock.types import Batch

_log = EventLog("penstock.connectors.kafka")

#: The number of messages handed to the client at a time while an epoch is published.
_SLICE = 2_000
#: The most jobs that a marker remembers: jobs that were restored from each other's savepoints.
_MAX_JOBS = 16
#: Pauses in seconds before a transactional id is taken back from another subtask that took it over.
_PAUSES_S = (0.1, 0.3, 1.0, 3.0)
#: How long brokers keep the offsets of a group without members, if they do not tell: Kafka's default.
_RETENTION_MINUTES = 7 * 24 * 60


class Marker(msgspec.Struct, frozen=True):
    """The record of what a transactional id has committed. ``done``: for each job, its last stored
    checkpoint; ``job``, ``attempt``: the present writer. Lower attempts of that job are refused."""

    job: str
    attempt: int
    done: dict[str, int] = {}


class Transactions:
    """The transactions of one transactional id, by one attempt of one job."""

    def __init__(
        self, properties: Mapping[str, str], topic: str, name: str, job: str, attempt: int, where: str
    ) -> None:
        self._properties = {k: v for k, v in properties.items() if k != "group.id"}
        self._topic, self._name, self._where = topic, name, f"{where}, transactional id '{name}'"
        self._job, self._attempt = job, attempt
        self._producer: KafkaProducer | None = None
        self._caller = Caller("kafka-marker")
        self._consumer: Any = None
        self._marker = Marker(job, 0)

    @property
    def marker_found(self) -> bool:
        """Whether the broker knew this id. Valid after ``take_over``."""
        return self._marker.attempt > 0

    async def take_over(self) -> KafkaProducer:
        """A producer that has fenced all earlier ones. Also reads the broker's marker."""
        if self._producer is not None:
            return self._producer
        timeout = self._properties.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        producer = KafkaProducer(
            self._properties, self._topic, self._where,
            **{"transactional.id": self._name, "transaction.timeout.ms": timeout},
        )  # fmt: skip
        try:
            await producer.begin_epoch()
            self._marker = await self._read() or Marker(self._job, 0)
            self._check()
        except BaseException:
            await producer.close()
            raise
        self._producer = producer
        return producer

    def _check(self) -> None:
        marker = self._marker
        if marker.job == self._job and marker.attempt > self._attempt:
            raise FencedError(
                "an older attempt of this sink may no longer commit",
                expected=f"attempt {marker.attempt} of job {marker.job}, or later",
                got=f"attempt {self._attempt} of job {self._job}",
                where=self._where,
                remedy="nothing, if a newer attempt runs; two jobs need two 'sink.transactional-id-prefix'",
            )

    async def fence(self) -> None:
        """Write a marker of this attempt, so that an older attempt that comes late sees the marker and
        stops."""

        async def mark(producer: KafkaProducer) -> None:
            if (self._marker.job, self._marker.attempt) != (self._job, self._attempt):
                await producer.begin()
                await self._commit(producer, self._marker.done)

        await self._in_charge(mark)

    async def _in_charge(self, step: Callable[[KafkaProducer], Awaitable[None]]) -> None:
        """Run ``step`` with a producer of this id. After a rescaling another subtask of the same attempt may
        take the id over to commit restored rows; this method then takes the id back and reads the marker
        again. FencedError if the marker is of a newer attempt."""
        for pause_s in _PAUSES_S:
            try:
                await step(await self.take_over())
                return
            except TakenOverError as err:
                _log.warning("kafka_sink_taken_over", where=self._where, error=err.got)
                await self.forget()
                await asyncio.sleep(pause_s)
        await step(await self.take_over())

    async def publish(
        self, item: Committable, load: Callable[[str], Awaitable[Sequence[StagedMessage]]]
    ) -> None:
        """Publish the rows of an epoch and its marker, unless the broker has them."""

        async def send(producer: KafkaProducer) -> None:
            done = self._marker.done
            if done.get(item.job, -1) >= item.checkpoint_id:
                return
            try:
                await producer.begin()
                for key, _ in item.objects:
                    rows = await load(key)
                    for first in range(0, len(rows), _SLICE):
                        producer.send(map(_message, rows[first : first + _SLICE]))
                        await producer.drain()
            except BaseException:
                await self.forget()
                raise
            others = {job: at for job, at in list(done.items())[-_MAX_JOBS:] if job != item.job}
            await self._commit(producer, {**others, item.job: item.checkpoint_id})

        await self._in_charge(send)

    async def _commit(self, producer: KafkaProducer, done: dict[str, int]) -> None:
        """End the transaction with a marker. After an error it is unknown whether the marker was stored:
        ``take_over`` reads it."""
        from confluent_kafka import TopicPartition

        marker = Marker(self._job, self._attempt, done)
        text = msgspec.json.encode(marker).decode()
        place = TopicPartition(self._topic, 0, done.get(self._job, 0), text)
        try:
            await producer.commit([place], self._group().consumer_group_metadata())
        except BaseException:
            await self.forget()
            raise
        self._marker = marker

    def _group(self) -> Any:
        """A consumer that never reads messages. It is needed for the group's name and offsets."""
        import confluent_kafka

        if self._consumer is None:
            own = ("transaction.timeout.ms", "message.timeout.ms", "auto.offset.reset")
            given = {k: v for k, v in self._properties.items() if k not in own}
            self._consumer = confluent_kafka.Consumer(
                # Only with this isolation does the broker wait for offsets of open transactions to be settled.
                {**given, "group.id": self._name, "isolation.level": "read_committed",
                 "enable.auto.commit": False, "log_level": 0}
            )  # fmt: skip
        return self._consumer

    async def _read(self) -> Marker | None:
        from confluent_kafka import KafkaException, TopicPartition

        place = TopicPartition(self._topic, 0)
        loop = asyncio.get_running_loop()
        try:
            [found] = await self._caller.call(loop, patiently, self._group().committed, [place], ANSWER_S)
        except KafkaException as err:
            raise failure(err.args[0], "the marker of a transaction cannot be read", self._where) from None
        if found.error is not None:
            raise failure(found.error, "the marker of a transaction cannot be read", self._where)
        if found.offset < 0 or not found.metadata:
            return None
        return msgspec.json.decode(found.metadata, type=Marker)

    async def forget(self) -> None:
        """Close the producer, which can no longer be used. The next step takes over with a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def close(self) -> None:
        """End the transactions and close their clients."""
        await self.forget()
        if self._consumer is not None:
            await self._caller.call(asyncio.get_running_loop(), self._consumer.close)
        self._caller.close()


def _message(row: StagedMessage) -> OutMessage:
    """A staged row; earlier versions staged three parts of each, and no shorter ones."""
    if len(row) == 2:
        return row
    key, value, partition, timestamp, headers = row if len(row) == 5 else (*row, 0, None)
    return key, value, partition, timestamp, headers and [(name, told) for name, told in headers]


class ExactlyOnceWriter(StagedWriter):
    """Stages messages and writes them in a Kafka transaction when their checkpoint is complete."""

    def __init__(self, table: TableInfo, option_set: OptionSet, encoder: MessageEncoder) -> None:
        super().__init__()
        self._options = option_set.read(table.options)
        self._properties = client_properties(table.options, option_set.owner)
        self._owner = option_set.owner
        self._topic = self._options["topic"]
        self._encoder = encoder
        self._latest = encoder.buffer(self._options, self._take_all)
        #: transactional id → its transactions
        self._transactions: dict[str, Transactions] = {}

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self._open_staging(ctx)
        self._where = f"{self._owner}, {self._properties['bootstrap.servers']}, topic '{self._topic}'"
        prefix = self._options["sink.transactional-id-prefix"] or ctx.job_id
        # Two sinks of a job may write the same table, and then have the same prefix.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{prefix}-{ctx.uid}")
        self._marker = f"{name}-{ctx.subtask_index}"
        partitions = await self._probe()
        await self._commit_restored(restored)
        await self._of(self._marker).fence()
        # Ids of other subtasks, or of a former greater parallelism, are fenced so that no old rows come late.
        for name, others in list(self._transactions.items()):
            if name != self._marker:
                await others.fence()
                await others.close()
                del self._transactions[name]
        # This comes last, because it may wait for other services than the brokers; the restored rows must not
        # wait for those.
        await self._encoder.open(ctx, partitions)

    async def _probe(self) -> int:
        """The number of the topic's partitions."""
        producer = KafkaProducer(self._properties, self._topic, self._where)
        try:
            return await producer.partitions()
        finally:
            await producer.close()

    def _of(self, name: str) -> Transactions:
        if name not in self._transactions:
            self._transactions[name] = Transactions(
                self._properties, self._topic, name, self.ctx.job_id, self.ctx.attempt, self._where
            )
        return self._transactions[name]

    def write(self, batch: Batch) -> None:
        messages = self._encoder.encode(batch)
        if self._latest is not None:
            self._latest.add(messages)
        else:
            self._take_all(messages)

    def _take_all(self, messages: list[OutMessage]) -> None:
        self._take(messages, size_of(messages))

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        if self._latest is not None:
            self._latest.flush()
        return super().begin_checkpoint(checkpoint_id)

    async def _publish(
        self, item: Committable, load: Callable[[str], Awaitable[Sequence[StagedMessage]]]
    ) -> None:
        transactions = self._of(item.marker)
        await transactions.take_over()
        if not transactions.marker_found and item.made_ms:
            await self._check_age(item)
        await transactions.publish(item, load)

    async def _check_age(self, item: Committable) -> None:
        """Refuse an epoch that is too old. The offsets of a group without members expire, and the marker with
        them, so nobody can know any more whether the epoch was stored."""
        kept_ms = await self._retention_minutes() * 60_000
        age_ms = self.ctx.now_ms() - item.made_ms
        if age_ms < kept_ms:
            return
        raise ConnectorError(
            "the checkpoint is older than the broker remembers committed transactions",
            expected=f"a checkpoint younger than the broker's offsets.retention.minutes ({kept_ms // 60_000})",
            got=f"rows of checkpoint {item.checkpoint_id}, staged {age_ms // 60_000} minutes ago",
            where=f"{self._where}, transactional id '{item.marker}'",
            remedy="start from a younger savepoint, or without this state; look into the topic whether it has the "
            "rows, and raise offsets.retention.minutes",
        )

    async def _retention_minutes(self) -> int:
        """The broker's retention of offsets; Kafka's default if this user may not ask for it."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.admin._config import ConfigResource

        caller = Caller("kafka-settings")

        def ask() -> int:
            client = AdminClient({k: v for k, v in self._properties.items() if k != "group.id"})
            broker = next(iter(client.list_topics(timeout=ANSWER_S).brokers))
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
            [answer] = client.describe_configs([resource], request_timeout=ANSWER_S).values()
            return int(answer.result()["offsets.retention.minutes"].value)

        try:
            return await caller.call(asyncio.get_running_loop(), ask)
        except KafkaException as err:
            _log.warning("kafka_setting_not_read", where=self._where, error=err.args[0].str())
            return _RETENTION_MINUTES
        finally:
            caller.close()

    async def close(self) -> None:
        if self._latest is not None:
            self._latest.close()
        await super().close()
        for transactions in self._transactions.values():
            await transactions.close()
