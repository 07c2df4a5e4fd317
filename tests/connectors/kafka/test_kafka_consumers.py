"""Messages as blocks of columns are those that the Python client gives as objects."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.connectors.kafka import librdkafka
from penstock.connectors.kafka.blocks import Block, before, keys_of, offsets_of, only, times_of, values_of
from penstock.connectors.kafka.consumer import BlockConsumer, ObjectConsumer, partition_consumer
from tests.native.kernels import kernels as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.kafka.consumer import PartitionConsumer
    from tests.servers.kafka_server import KafkaServer

pytestmark = pytest.mark.cluster

#: Values that are absent, empty and long; keys; times; headers that are absent, come twice, have no value or an odd name.
MESSAGES: list[dict[str, Any]] = [
    {"value": b"v%d" % i * (i % 40), "key": None if i % 3 else b"k%d" % i, "timestamp": 1_790_000_000_000 + i, "partition": i % 2}
    for i in range(200)
] + [
    {"value": None, "key": b"gone", "partition": 0},
    {"value": b"", "key": b"", "partition": 1},
    {"value": b"x", "headers": [("a", b"1"), ("a", b"2"), ("leer", b""), ("none", None), ("ä", b"\xff\0")], "partition": 0},
]  # fmt: skip
_DEADLINE_S = 300


def properties(kafka: KafkaServer, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap, "group.id": "consumers", "enable.auto.commit": False, "log_level": 0,
        "enable.partition.eof": True, "auto.offset.reset": "error", **more,
    }  # fmt: skip


def told(message: Any) -> tuple[Any, ...]:
    error = message.error()
    if error is not None:
        return message.topic(), message.partition(), message.offset(), error.code()
    return (
        message.topic(), message.partition(), message.offset(), message.timestamp(), message.leader_epoch(),
        message.key(), message.value(), message.headers(),
    )  # fmt: skip


def until_ends(consumer: PartitionConsumer, partitions: int) -> list[tuple[tuple[str, int], Sequence[Any]]]:
    """The runs up to the ends of so many partitions."""
    found, ends, deadline = [], 0, time.monotonic() + _DEADLINE_S
    while ends < partitions:
        assert time.monotonic() < deadline, "the broker does not answer"
        runs = [*consumer.take(1, 0.5), *consumer.take(50, 0)]
        ends += sum(1 for _, run in runs for m in run if m.error() is not None)
        found += runs
    return found


@pytest.fixture
def filled(shared_kafka: KafkaServer) -> str:
    topic: str = shared_kafka.topic(2)
    shared_kafka.produce(topic, MESSAGES)
    return topic


@pytest.fixture
def consumers(kernels: Any, shared_kafka: KafkaServer) -> Iterator[list[PartitionConsumer]]:
    errors: list[KafkaError] = []
    given = properties(shared_kafka)
    made = [partition_consumer(given, errors.append), ObjectConsumer(given, errors.append)]
    assert isinstance(made[0], BlockConsumer)
    yield made
    for consumer in made:
        consumer.close()
    assert not errors


def test_blocks_hold_what_the_objects_of_the_client_hold(
    consumers: list[PartitionConsumer], filled: str
) -> None:
    found: list[dict[Any, list[Any]]] = []
    for consumer in consumers:
        consumer.incremental_assign([TopicPartition(filled, 0, 0), TopicPartition(filled, 1, 5)])
        messages: dict[Any, list[Any]] = {}
        for place, run in until_ends(consumer, 2):
            assert isinstance(run, Block) == (consumer is consumers[0])
            values = list(values_of(run))
            assert values == [m.value() for m in run]
            assert list(keys_of(run)) == [m.key() or b"" for m in run]
            assert times_of(run).tolist() == [m.timestamp()[1] * 1000 for m in run]
            assert offsets_of(run).tolist() == [m.offset() for m in run]
            assert [m.offset() for m in before(run, 7)] == [m.offset() for m in run if m.offset() < 7]
            assert [told(m) for m in only(run, range(0, len(run), 3))] == [told(m) for m in list(run)[::3]]
            assert [told(m) for m in run[1:4]] == [told(m) for m in list(run)[1:4]]
            messages.setdefault(place, []).extend(map(told, run))
        assert consumer.watermarks(TopicPartition(filled, 0), None) == (0, 102)
        assert consumer.watermarks(TopicPartition(filled, 1), 60) == (0, 101)
        consumer.incremental_unassign([TopicPartition(filled, 0)])
        found.append(messages)
    assert found[0] == found[1]
    assert [len(found[0][filled, p]) for p in (0, 1)] == [103, 97]


def test_an_offset_that_is_gone_is_an_event_of_its_partition(
    consumers: list[PartitionConsumer], filled: str
) -> None:
    events = []
    for consumer in consumers:
        consumer.incremental_assign([TopicPartition(filled, 1, 1_000)])
        [(place, run)] = until_ends(consumer, 1)
        (event,) = run
        error = event.error()
        events.append((place, event.topic(), event.partition(), error.code(), error.str()))
    assert events[0] == events[1]
    assert events[0][3] == KafkaError._AUTO_OFFSET_RESET


def test_offsets_are_committed_to_the_group(
    consumers: list[PartitionConsumer], shared_kafka: KafkaServer, filled: str
) -> None:
    consumers[0].commit_soon([TopicPartition(filled, 0, 17), TopicPartition(filled, 1, 3)])
    deadline = time.monotonic() + _DEADLINE_S
    while shared_kafka.committed("consumers", filled, 2) != [17, 3]:
        assert time.monotonic() < deadline, "the offsets are not committed"


def test_errors_of_properties_and_brokers_are_told(kernels: Any, shared_kafka: KafkaServer) -> None:
    errors: list[KafkaError] = []
    with pytest.raises(KafkaException, match=r"fetch\.min\.bytes"):
        partition_consumer(properties(shared_kafka, **{"fetch.min.bytes": "many"}), errors.append)
    away = {**properties(shared_kafka), "bootstrap.servers": "127.0.0.1:1"}
    consumer = partition_consumer(away, errors.append)
    consumer.incremental_assign([TopicPartition("t", 0, 0)])
    deadline = time.monotonic() + _DEADLINE_S
    while not any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in errors):
        assert time.monotonic() < deadline, "nobody was told that no broker answers"
        consumer.take(1, 0.5)
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.watermarks(TopicPartition("t", 0), None)


class Watched:
    """The functions of librdkafka; notes what has ended, and holds questions for watermarks until they may go on."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        self.ended: list[str] = []
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)
        if name not in ("rd_kafka_get_watermark_offsets", "rd_kafka_queue_destroy", "rd_kafka_destroy_flags"):
            return function

        def call(*args: Any) -> Any:
            if name == "rd_kafka_get_watermark_offsets":
                self.asked.set()
                assert self.may_answer.wait(_DEADLINE_S)
            result = function(*args)
            self.ended.append(name)
            return result

        return call


def watched(kernels: Any) -> tuple[Watched, BlockConsumer]:
    """A consumer without a broker."""
    functions = Watched(librdkafka.functions())
    given = {"bootstrap.servers": "127.0.0.1:1", "group.id": "watched", "log_level": 0}
    consumer = BlockConsumer(kernels, functions, given, lambda _: None)  # type: ignore[arg-type]
    consumer.incremental_assign([TopicPartition("t", 0, 0)])
    return functions, consumer


def test_a_consumer_is_not_freed_while_another_thread_asks_it(kernels: Any) -> None:
    functions, consumer = watched(kernels)
    ask = threading.Thread(target=consumer.watermarks, args=(TopicPartition("t", 0), None))
    ask.start()
    assert functions.asked.wait(_DEADLINE_S)
    close = threading.Thread(target=consumer.close)
    close.start()
    close.join(0.3)
    assert "rd_kafka_destroy_flags" not in functions.ended
    with pytest.raises(RuntimeError, match="closed"):
        consumer.take(1, 0)
    functions.may_answer.set()
    for thread in (ask, close):
        thread.join(_DEADLINE_S)
    assert functions.ended == [
        "rd_kafka_get_watermark_offsets", "rd_kafka_queue_destroy", "rd_kafka_destroy_flags",
    ]  # fmt: skip


def test_a_consumer_that_is_dropped_without_close_is_freed(kernels: Any) -> None:
    functions, consumer = watched(kernels)
    del consumer
    gc.collect()
    assert functions.ended == ["rd_kafka_queue_destroy", "rd_kafka_destroy_flags"]
