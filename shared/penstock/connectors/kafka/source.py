"""The Kafka source: partitions read in order, with offsets in checkpoints.

One consumer reads all partitions of a subtask; librdkafka fetches in threads of its own, and
``queued.max.messages.kbytes`` bounds what it fetches ahead. The data thread takes
available messages in batches. Only when there are none, another thread waits for the next
message, without holding the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cancelling import end_tasks
from penstock.connectors.base import Fetched, SourceReader, Split
from penstock.connectors.kafka.blocks import before, has_events, only
from penstock.connectors.kafka.client import ANSWER_S, Caller, Trouble, client_properties, failure, weakly
from penstock.connectors.kafka.consumer import partition_consumer
from penstock.connectors.kafka.partition_state import PartitionState
from penstock.connectors.kafka.rows import MessageDecoder
from penstock.connectors.kafka.stored import Place, offset_of
from penstock.connectors.kafka.topics import check_same_topics, topic_ids
from penstock.errors import ConnectorError, PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.kafka.consumer import PartitionConsumer, Run
    from penstock.connectors.kafka.rows import Part
    from penstock.types import Batch

    PartsOf = Callable[[Sequence[int]], tuple[Part | None, Part]]

_log = EventLog("penstock.connectors.kafka")

#: The most that librdkafka fetches ahead for one subtask, in KiB, unless a property says otherwise.
_AHEAD_KIB = "16384"
#: How long one call waits for a message, in seconds.
_WAIT_S = 0.5


class KafkaReader(SourceReader):
    """Reads partitions. ``parts``: makes the key's and the value's part from the key columns of an upsert
    changelog; ``upserts``: messages without a value are deletions."""

    def __init__(self, table: TableInfo, parts: PartsOf, owner: str, *, upserts: bool = False) -> None:
        self._owner = owner
        self._parts_of, self._upserts = parts, upserts
        self._properties = client_properties(table.options, owner)
        self._states: dict[str, PartitionState] = {}
        self._by_place: dict[Place, PartitionState] = {}
        #: Messages taken from the client, in runs of one partition.
        self._runs: deque[tuple[PartitionState, Sequence[Message]]] = deque()
        self._consumer: PartitionConsumer | None = None
        self._caller = Caller("kafka-source")
        self._questions = Caller("kafka-questions")
        #: The call that waits for the next message.
        self._waiting: asyncio.Future[list[Run]] | None = None
        self._asking: asyncio.Future[int] | None = None
        #: The task that fetches what the first of ``_runs`` needs before it can be decoded.
        self._preparing: asyncio.Task[None] | None = None
        #: Tasks that check whether the topics of restored splits are still the same.
        self._checks: list[asyncio.Task[None]] = []
        self._event = asyncio.Event()
        self._failure: PenstockError | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._where = f"{self._owner}, {self._properties['bootstrap.servers']}"
        self._trouble_now = Trouble(self._where)
        key, value = self._parts_of(ctx.pushed.get("keys", ()))
        self._decoder = MessageDecoder(ctx, key, value, upserts=self._upserts)
        #: The group to which offsets are committed; None: the table names none.
        self._group = self._properties.get("group.id")
        given = {k: v for k, v in self._properties.items() if k != "auto.offset.reset"}
        self._consumer = partition_consumer(
            {
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _AHEAD_KIB,
                "client.id": f"penstock-{ctx.uid}-{ctx.subtask_index}",
                "group.id": f"penstock-{ctx.job_id}-{ctx.uid}",
                **given,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # An offset that does not exist any more must be an error: skipping to another would lose
                # rows.
                "auto.offset.reset": "error",
                "log_level": 0,
            },
            weakly(self._note),
        )

    def _note(self, error: Any) -> None:
        """Handle an error of the client. If brokers do not answer, log it and wait for them; an error that
        cannot pass by itself fails the task."""
        found = failure(error, "the Kafka consumer cannot go on", self._where)
        if error.fatal() or isinstance(found, ConnectorError):
            self._failure = found
        self._trouble_now.said(error)
        _log.warning("kafka_source_trouble", where=self._where, error=error.str())

    def away(self) -> str | None:
        return self._trouble_now.reason

    @property
    def _client(self) -> PartitionConsumer:
        assert self._consumer is not None, "the reader was used before open()"
        return self._consumer

    def add_splits(self, splits: Sequence[Split]) -> None:
        from confluent_kafka import TopicPartition

        fresh, restored, ids = [], [], {}
        for split in splits:
            state = PartitionState(split)
            self._states[split.id] = self._by_place[state.place] = state
            if state.done:
                continue
            place = TopicPartition(*state.place, state.offset)
            if split.position is not None and "topic_id" in split.payload:
                restored.append(place)
                ids[split.payload["topic"]] = split.payload["topic_id"]
            else:
                fresh.append(place)
        if fresh:
            self._client.incremental_assign(fresh)
        if restored:
            self._checks.append(asyncio.ensure_future(self._assign_restored(restored, ids)))
        self._event.set()

    async def _assign_restored(self, places: list[TopicPartition], ids: dict[str, str]) -> None:
        """Continue from the positions of a snapshot, once the brokers have confirmed that the topics are the
        same."""
        loop = asyncio.get_running_loop()
        try:
            found = await self._questions.call(loop, topic_ids, self._properties, list(ids), self._where)
            check_same_topics(ids, found, self._where)
            self._client.incremental_assign(places)
        except PenstockError as err:
            self._failure = err
        self._event.set()

    # -- rows ---------------------------------------------------------------------------

    def poll(self) -> Fetched | None:
        if self._failure is not None:
            raise self._failure
        while True:
            if not self._runs and not self._take():
                return None
            if not self._prepared():
                return None
            state, messages = self._runs.popleft()
            limit = self.ctx.batch_rows
            if len(messages) > limit:
                self._runs.appendleft((state, messages[limit:]))
                messages = messages[:limit]
            state.offset = offset_of(messages[-1]) + 1
            batch = self._decoder.decode(messages)
            self._passed(state)
            if len(batch):
                return Fetched(state.split.id, batch)

    async def replay(self, messages: Sequence[Mapping[str, Any]]) -> Batch:
        return await self._decoder.replay(messages)

    def _prepared(self) -> bool:
        """Whether the first run can be decoded. If not, starts to fetch what is missing."""
        if self._preparing is not None:
            if not self._preparing.done():
                return False
            done, self._preparing = self._preparing, None
            done.result()
        missing = self._decoder.prepare(self._runs[0][1][: self.ctx.batch_rows])
        if missing is not None:
            self._preparing = asyncio.create_task(missing)
        return missing is None

    def _take(self) -> bool:
        """Take the messages that the client has now, as one run for each partition; returns False if there
        are none."""
        from confluent_kafka import KafkaException

        runs: list[Run] = []
        try:
            if self._waiting is not None:
                if not self._waiting.done():
                    return False
                waited, self._waiting = self._waiting, None
                runs = waited.result()
            runs = [*runs, *self._client.take(self.ctx.batch_rows, 0)]
        except KafkaException as err:
            raise failure(err.args[0], "the topics cannot be read", self._where) from None
        for place, run in runs:
            state = self._by_place.get(place)
            if state is not None and not state.done:
                self._add(state, run)
            elif state is None and (error := run[-1].error()) is not None:
                self._trouble(error, run[-1], None)
        return bool(self._runs)

    def _add(self, state: PartitionState, run: Sequence[Message]) -> None:
        """Take what the client has for one partition, in order: messages, the event of its end, and
        errors."""
        rows = run
        if has_events(run):
            rows = self._without_events(state, run)
        elif len(run):
            state.end_seen = None
        if len(rows):
            self._trouble_now.over()
            state.asked = state.confirmed = False
        end = state.end
        if end is not None and len(rows) and offset_of(rows[-1]) >= end:
            rows = before(rows, end)
            state.passed_end = True
        if len(rows):
            self._runs.append((state, rows))
        else:
            self._passed(state)

    def _without_events(self, state: PartitionState, run: Sequence[Message]) -> Sequence[Message]:
        """The messages of ``run``; its other events are noted."""
        from confluent_kafka import KafkaError

        rows = []
        for i, message in enumerate(run):
            error = message.error()
            if error is None:
                rows.append(i)
                state.end_seen = None
            elif error.code() == KafkaError._PARTITION_EOF:
                state.end_seen = offset_of(message)
            else:
                self._trouble(error, message, state)
        return only(run, rows)

    def _trouble(self, error: KafkaError, message: Message, state: PartitionState | None) -> None:
        from confluent_kafka import KafkaError

        where = f"{self._where}, topic '{message.topic()}', partition {message.partition()}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise ConnectorError(
                "the topic no longer has the offset that is needed",
                expected="messages" if state is None else f"messages from offset {state.offset} on",
                got=error.str(),
                where=where,
                remedy="raise the topic's retention.ms or retention.bytes; to go on without what is lost, start "
                "without this state or with 'scan.startup.mode' = 'earliest-offset'",
            )
        found = failure(error, "the topic cannot be read", where)
        if isinstance(found, ConnectorError) or error.fatal():
            raise found
        _log.warning("kafka_source_trouble", where=where, error=error.str())

    def _has_run(self, state: PartitionState) -> bool:
        return any(s is state for s, _ in self._runs)

    def _passed(self, state: PartitionState) -> None:
        """Check whether the split has ended after rows were taken. Control records of transactions have
        offsets, too, so the end may lie after the last message; then only the event of the partition's end
        tells."""
        if state.end is None or state.done or self._has_run(state):
            return
        if max(state.offset, state.end_seen or 0) >= state.end or state.passed_end:
            self._finish(state)

    def _finish(self, state: PartitionState) -> None:
        from confluent_kafka import TopicPartition

        state.done = True
        self._client.incremental_unassign([TopicPartition(*state.place)])
        self._event.set()

    async def wait(self) -> None:
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
            return
        if self._runs or self._failure is not None:
            return
        self._event.clear()
        if self._waiting is None:
            loop = asyncio.get_running_loop()
            self._waiting = self._caller.call(loop, self._client.take, 1, _WAIT_S)
        added = asyncio.ensure_future(self._event.wait())
        ends: set[asyncio.Future[Any]] = {self._waiting, added}
        try:
            # The waiting call must not be cancelled with this task: its message belongs to the next ``poll``.
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            added.cancel()

    # -- progress -----------------------------------------------------------------------

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._states.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        """True only if the broker confirmed it after this was first asked: what the client knows may be
        outdated if this process or the network was held up."""
        state = self._states[split_id]
        if state.done:
            return True
        if state.end_seen is None or self._has_run(state):
            return False
        if not state.confirmed and self._asking is None:
            state.asked = True
            self._asking = asyncio.ensure_future(self._ask(state))
        return state.confirmed

    async def _ask(self, state: PartitionState) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        place = TopicPartition(*state.place)
        loop = asyncio.get_running_loop()
        try:
            _, end = await self._questions.call(loop, self._watermarks, place)
        except KafkaException as err:
            _log.debug("kafka_end_not_read", where=self._where, error=err.args[0].str())
            return -1
        finally:
            self._asking = None
        state.confirmed = state.asked and state.end_seen is not None and end <= state.end_seen
        return int(end)

    def _watermarks(self, place: TopicPartition) -> tuple[int, int]:
        return self._client.watermarks(place, ANSWER_S)

    def snapshot(self) -> list[Split]:
        return [
            msgspec.structs.replace(s.split, position={"offset": s.offset}) for s in self._states.values()
        ]

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        """Commits the offsets to the group, for monitoring only; a restore never reads them."""
        if self._group is None or not positions:
            return
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [
            TopicPartition(s.payload["topic"], s.payload["partition"], s.position["offset"])
            for s in positions
            if s.position is not None
        ]
        try:
            self._client.commit_soon(offsets)
        except KafkaException as err:
            _log.warning(
                "kafka_offsets_not_committed", where=self._where, group=self._group, error=err.args[0].str()
            )

    def pending_records(self) -> int | None:
        """The number of messages up to the ends of the partitions, as the client last heard of them."""
        from confluent_kafka import TopicPartition

        lag = 0
        for state in self._states.values():
            if not state.done:
                _, end = self._client.watermarks(TopicPartition(*state.place), None)
                lag += max(0, min(end, state.end or end) - state.offset)
        return lag

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        await end_tasks(self._checks)
        if self._preparing is not None:
            await end_tasks([self._preparing])
        if self._asking is not None:
            await asyncio.wait({self._asking})
        if self._consumer is not None:
            # Runs in the same thread after the waiting call, so no call is under way in a closed client.
            await self._caller.call(loop, self._consumer.close)
        self._caller.close()
        self._questions.close()
