"""A real Kafka broker in a folder of its own: one process, controller and broker at once."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

#: Small, quick to start, and for one broker.
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=0
"""
_JVM = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class KafkaServer:
    """``bootstrap``: its address. The port stays the same over ``kill`` and ``start``.

    ``settings``: of the broker, with "_" for "."; ``{port}`` and ``{controller}`` in them become its ports. ``users``: of
    SCRAM, as the storage tool takes them.
    """

    def __init__(self, folder: Path, *, users: Iterable[str] = (), **settings: str) -> None:
        self._reserved = [reserve_port(), reserve_port()]
        self.port, controller = (port_of(r) for r in self._reserved)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Any = None
        lines = _SETTINGS.format(port=self.port, controller=controller, data=folder / "data")
        for key, value in settings.items():
            text = value.replace("{port}", str(self.port)).replace("{controller}", str(controller))
            lines += f"{key.replace('_', '.')}={text}\n"
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "server.properties"
        self._settings.write_text(lines)
        scram = [word for user in users for word in ("--add-scram", user)]
        self._java(
            "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._settings), *scram
        )

    def _command(self, *words: str) -> list[str]:
        path = os.pathsep.join(map(str, cache.jars("kafka")))
        return ["java", *_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, *words]

    def _java(self, *words: str) -> None:
        subprocess.run(self._command(*words), check=True, capture_output=True, cwd=self._folder)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        log = (self._folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            self._command("kafka.Kafka", str(self._settings)),
            stdout=log, stderr=log, cwd=self._folder, preexec_fn=die_with_parent_after_exec,
        )  # fmt: skip
        log.close()
        from confluent_kafka import KafkaException

        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended: {(self._folder / 'server.log').read_text()[-2000:]}")
            try:
                if self.admin().list_topics(timeout=2).brokers:
                    return
            except KafkaException:
                time.sleep(0.1)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
        for reserved in self._reserved:
            reserved.close()

    # -- topics -------------------------------------------------------------------------

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """A new topic; gives its name."""
        from confluent_kafka.admin import NewTopic

        name = name or f"t{uuid.uuid4().hex[:10]}"
        made = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        admin = self.admin()
        [future] = admin.create_topics([made]).values()
        future.result()
        while admin.list_topics(name, timeout=60).topics[name].error is not None:
            time.sleep(0.01)  # the broker tells of it a moment later
        return name

    def make_anew(self, topic: str) -> None:
        """Deletes a topic and makes another one of its name; the broker forgets the old one a moment later."""
        from confluent_kafka import KafkaError, KafkaException

        admin = self.admin()
        [deleted] = admin.delete_topics([topic]).values()
        deleted.result()
        made = False
        while not made:
            time.sleep(0.05)
            try:
                made = bool(self.topic(name=topic))
            except KafkaException as err:
                if err.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def produce(self, topic: str, messages: Iterable[Any], **config: Any) -> None:
        """``messages``: values, or dicts as ``Producer.produce`` takes them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **config})
        for message in messages:
            words = message if isinstance(message, dict) else {"value": message}
            producer.produce(topic, **words)
            producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Any]:
        """All messages that a reader of committed data sees, in the order of partitions and offsets.

        A transaction is committed before all partitions know of it: reading goes on to their ends, open
        transactions included.
        """
        from confluent_kafka import KafkaError, TopicPartition

        if self._reader is None:
            self._reader = self._consumer()
        consumer = self._reader
        partitions = sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        ends = self._ends(topic, partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(60)
            assert message is not None, "the broker does not answer"
            if message.error() is None:
                found.append(message)
                continue
            at_end = message.error().code() == KafkaError._PARTITION_EOF
            if at_end and message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
        consumer.unassign()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))

    def _ends(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """The ends of the partitions, open transactions included."""
        from confluent_kafka import KafkaError as E
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        while True:
            admin = self.admin()
            asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}
            try:
                found = admin.list_offsets(asked, request_timeout=60)
                return {place.partition: answer.result().offset for place, answer in found.items()}
            except KafkaException as err:
                if err.args[0].code() not in (E.NOT_LEADER_FOR_PARTITION, E.LEADER_NOT_AVAILABLE):
                    raise
                time.sleep(0.02)  # the partitions were made this moment

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0,
            "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        })  # fmt: skip

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """The offsets of a group; −1001 where it has none."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=60)
        consumer.close()
        return [p.offset for p in found]


def _cluster_id() -> str:
    # Without "-", which at the front would be taken for an option.
    return base64.b64encode(uuid.uuid4().bytes, altchars=b"xy").decode().rstrip("=")
