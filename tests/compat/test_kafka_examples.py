"""PyFlink's own Kafka examples against a real broker: ``PENSTOCK_PYFLINK`` names the folder that its wheel is unpacked in.

Two things in them are replaced: the broker's address, and reading, which they do for ever, ends at the topic's end. Without
the wheel a program of the same calls runs.
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api import execution
from penstock.compat import pyflink
from penstock.testing.harness import run_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobGraph
    from tests.servers.kafka_server import KafkaServer


pytestmark = pytest.mark.cluster

FOLDER = os.environ.get("PENSTOCK_PYFLINK")
WORDS = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello"), (6, "hello")]
#: What the example prints, and the messages that it writes: (key, value).
EXAMPLES: dict[str, tuple[list[str], list[tuple[bytes | None, bytes]]]] = {
    "kafka_json_format.py": (
        [f"({n},{word})" for n, word in WORDS],
        [(None, f'{{"f0":{n},"f1":"{word}"}}'.encode()) for n, word in WORDS],
    ),
    "kafka_csv_format.py": (
        [f"({n},{word})" for n, word in WORDS],
        [(None, f"{n},{word}".encode()) for n, word in WORDS],
    ),
    "kafka_avro_format.py": (
        [f"+I[{n},{word}]" for n, word in WORDS],
        [(None, bytes([2 * n, 2 * len(word)]) + word.encode()) for n, word in WORDS],
    ),
    "kafka_bytearray_format.py": (
        [],
        [
            (None, f'{{"id": {i}, "country": "{name}"}}'.encode())
            for i, name in enumerate(["USA", "Canada", "Germany"], 1)
        ],
    ),
    "kafka_row_field_extractor_example.py": (
        [],
        [
            (b"user-001", b'{"type": "purchase", "item": "laptop", "price": 999.99}'),
            (b"user-002", b'{"type": "view", "item": "phone", "timestamp": "2024-01-07T10:30:00"}'),
            (b"user-001", b'{"type": "add_to_cart", "item": "mouse", "quantity": 2}'),
            (b"user-003", b'{"type": "purchase", "item": "keyboard", "price": 79.99}'),
        ],
    ),
}


@pytest.fixture
def jobs() -> Iterator[list[JobGraph]]:
    """PyFlink's module tree; each job of a program runs at once, in order, in this process."""
    done: list[JobGraph] = []

    def run(graph: JobGraph) -> None:
        done.append(graph)
        run_graph(graph)

    pyflink.install()
    execution.record_with(run)
    yield done
    execution.record_with(None)
    pyflink.uninstall()


def bounded(text: str, server: KafkaServer) -> str:
    text = text.replace("localhost:9092", server.bootstrap)
    end = "KafkaOffsetsInitializer.earliest())"
    return text.replace(end, f"{end}.set_bounded(KafkaOffsetsInitializer.latest())")


@pytest.mark.skipif(FOLDER is None, reason="PENSTOCK_PYFLINK names no folder with PyFlink's wheel")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_writes_and_prints_what_it_should(
    name: str, jobs: list[Any], shared_kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(str(FOLDER)) / "pyflink" / "examples" / "datastream" / "connectors" / name
    text = source.read_text()
    [topic] = set(re.findall(r"set_topic\(['\"](.*?)['\"]\)", text))
    shared_kafka.topic(name=topic)
    file = tmp_path / name
    file.write_text(bounded(text, shared_kafka))
    runpy.run_path(str(file), run_name="__main__")
    printed, written = EXAMPLES[name]
    messages = [(m.key(), m.value()) for m in shared_kafka.read(topic)]
    assert sorted(messages, key=repr) == sorted(written, key=repr)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line for line in lines if line in set(printed)) == sorted(printed)


PROGRAM = """
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource, KafkaTopicPartition)
from pyflink.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

row = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
env = StreamExecutionEnvironment.get_execution_environment()
records = (KafkaRecordSerializationSchema.builder().set_topic("TOPIC")
    .set_key_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(row).build())
    .set_value_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(row).build()).build())
sink = (KafkaSink.builder().set_bootstrap_servers("localhost:9092").set_record_serializer(records)
    .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build())
env.from_collection([(1, "a"), (2, "b")], type_info=row).sink_to(sink)
env.execute()

place = KafkaTopicPartition("TOPIC", 0)
for start in (KafkaOffsetsInitializer.offsets({place: 1}), KafkaOffsetsInitializer.timestamp(0)):
    source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("TOPIC").set_group_id("g")
        .set_starting_offsets(start).set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(row).build()).build())
    env.from_source(source, WatermarkStrategy.no_watermarks(), "kafka").print()
    env.execute()
"""


def test_keys_offsets_and_timestamps(
    jobs: list[Any], shared_kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = shared_kafka.topic()
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("TOPIC", topic).replace("localhost:9092", shared_kafka.bootstrap))
    runpy.run_path(str(file), run_name="__main__")
    assert len(jobs) == 3
    assert [m.key() for m in shared_kafka.read(topic)] == [b'{"id":1,"name":"a"}', b'{"id":2,"name":"b"}']
    assert [line for line in capsys.readouterr().out.splitlines() if line[:2] == "+I"] == [
        "+I[2,b]", "+I[1,a]", "+I[2,b]",
    ]  # fmt: skip
