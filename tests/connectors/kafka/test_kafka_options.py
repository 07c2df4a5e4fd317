"""What tables of Kafka topics may say. No broker is asked."""

import importlib.util
import re
from pathlib import Path

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.kafka.client import client_properties
from penstock.connectors.kafka.positions import specific_offsets
from penstock.connectors.kafka.rows import key_columns, parts_of
from penstock.connectors.kafka.settings import (
    KAFKA_OPTIONS,
    METADATA,
    REFUSED,
    UPSERT_OPTIONS,
    WRITABLE_METADATA,
)
from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError, UnsupportedError
from penstock.jobgraph.specs import SinkSpec
from penstock.options import OptionSet
from penstock.sql.session import SqlSession
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("k_id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType()))
TABLE = {
    "connector": "kafka",
    "topic": "orders",
    "properties.bootstrap.servers": "localhost:9092",
    "format": "json",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"properties.group.id": "g", "properties.auto.offset.reset": "earliest"},
        {"topic": "orders;returns"},
        {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1700000000000"},
        {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:42"},
        {"key.format": "json", "key.fields": "k_id"},
        {"key.format": "raw", "key.fields": "name", "value.fields-include": "EXCEPT_KEY"},
        {"key.format": "csv", "key.csv.field-delimiter": "|", "key.fields": "k_id;name"},
        {"json.ignore-parse-errors": "true"},
        {"scan.topic-partition-discovery.interval": "10 s"},
    ],
)
def test_a_source_is_accepted(more: dict[str, str]) -> None:
    validate_table(SCHEMA, {**TABLE, **more}, role="source")


def test_the_format_of_values_may_be_named_with_its_options() -> None:
    options = {k: v for k, v in TABLE.items() if k != "format"}
    options |= {"value.format": "json", "value.json.ignore-parse-errors": "true"}
    connector = validate_table(SCHEMA, options, role="source")
    info = TableInfo(SCHEMA, options)
    _, value = parts_of(info, KAFKA_OPTIONS.read(options), (), connector.name)
    assert value.options == {"json.ignore-parse-errors": "true"}


@pytest.mark.parametrize(
    ("role", "more", "names"),
    [
        ("source", {"topic": ""}, "'topic' = '…' or 'topic-pattern'"),
        ("source", {"topic-pattern": "ord.*"}, "names topics twice"),
        ("source", {"topic": "", "topic-pattern": "("}, "no regular expression"),
        ("source", {"topics": "orders"}, "did you mean 'topic'"),
        ("source", {"properties.bootstrap.servers": ""}, "properties.bootstrap.servers"),
        ("source", {"scan.startup.mode": "newest"}, "latest-offset"),
        ("source", {"scan.startup.mode": "timestamp"}, "scan.startup.timestamp-millis"),
        ("source", {"scan.startup.timestamp-millis": "5"}, "scan.startup.mode"),
        (
            "source",
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:42"},
            "partition:0,offset:42",
        ),
        ("source", {"key.fields": "k_id"}, "'key.format'"),
        ("source", {"key.format": "json"}, "name the key's columns"),
        ("source", {"key.format": "json", "key.fields": "kid"}, "did you mean 'k_id'"),
        ("source", {"key.format": "parquet", "key.fields": "k_id"}, "for files"),
        ("source", {"value.fields-include": "EXCEPT_KEY"}, "needs a key"),
        ("source", {"key.format": "json", "key.fields": "k_id", "key.fields-prefix": "k_"}, "EXCEPT_KEY"),
        ("source", {"properties.enable.auto.commit": "true"}, "no effect"),
        ("source", {"properties.ssl.truststore.location": "/x.jks"}, "ssl.ca.location"),
        ("source", {"properties.no.such.property": "1"}, "no.such.property"),
        ("source", {"properties.security.protocol": "sasl"}, "security.protocol"),
        ("source", {"format": "parquet"}, "for files"),
        ("sink", {"topic": "a;b"}, "one topic"),
        ("sink", {"sink.partitioner": "org.example.Mine"}, "round-robin"),
        ("sink", {"sink.delivery-guarantee": "exactly"}, "exactly-once"),
    ],
)
def test_what_is_wrong_is_named(role: str, more: dict[str, str], names: str) -> None:
    options = {k: v for k, v in {**TABLE, **more}.items() if v}
    with pytest.raises(ConnectorError) as raised:
        validate_table(SCHEMA, options, role=role)  # type: ignore[arg-type]
    assert names in str(raised.value)


def test_a_java_login_is_understood() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="s3cret";'
    found = client_properties({**TABLE, "properties.sasl.jaas.config": jaas}, "here")
    assert found == {
        "bootstrap.servers": "localhost:9092",
        "sasl.username": "me",
        "sasl.password": "s3cret",
    }
    with pytest.raises(ConnectorError, match=r"sasl\.username"):
        client_properties(
            {**TABLE, "properties.sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, "here"
        )


def test_without_the_client_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "confluent_kafka" else find(name, *a)
    )
    with pytest.raises(ConnectorError, match=r"penstock\[kafka\]"):
        validate_table(SCHEMA, TABLE, role="source")


def test_specific_offsets() -> None:
    assert specific_offsets("partition:0,offset:42; partition:1,offset:300", "o", "here") == {0: 42, 1: 300}
    with pytest.raises(ConnectorError):
        specific_offsets("partition:0,offset:42;partition:0,offset:43", "o", "here")


def test_the_prefix_of_key_columns_is_not_in_the_key() -> None:
    options = {
        **TABLE, "key.format": "json", "key.fields": "k_id", "key.fields-prefix": "k_",
        "value.fields-include": "EXCEPT_KEY",
    }  # fmt: skip
    info = TableInfo(SCHEMA, options)
    read = KAFKA_OPTIONS.read(options)
    key, value = parts_of(info, read, key_columns(info, read["key.fields"], "here"), "here")
    assert key is not None
    assert key.schema.names == ["id"]
    assert value.schema.names == ["name", "n"]


UPSERT = """
CREATE TABLE spent (customer INT, cents BIGINT {key}) WITH ('connector' = 'upsert-kafka', 'topic' = 'spent',
  'properties.bootstrap.servers' = 'localhost:9092', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO spent SELECT customer, {cents} FROM (VALUES (1, 10), (1, 5)) AS o (customer, cents) {group}
"""


@pytest.mark.parametrize(("cents", "group"), [("SUM(cents)", "GROUP BY customer"), ("cents", "")])
def test_a_table_by_key_is_written_by_its_primary_key(cents: str, group: str) -> None:
    key = ", PRIMARY KEY (customer) NOT ENFORCED"
    *_, job = SqlSession().run_script(UPSERT.format(key=key, cents=cents, group=group))
    assert job.job is not None
    [sink] = [o.spec for v in job.job.job_graph.vertices for o in v.operators if isinstance(o.spec, SinkSpec)]
    assert (sink.mode, sink.keys) == ("upsert", (0,))
    with pytest.raises(UnsupportedError, match="declares none"):
        list(SqlSession().run_script(UPSERT.format(key="", cents=cents, group=group)))


def test_a_table_by_key_needs_a_format_of_keys() -> None:
    options = {**TABLE, "connector": "upsert-kafka"}
    with pytest.raises(ConnectorError, match=r"key\.format"):
        validate_table(SCHEMA, options, role="sink")
    validate_table(SCHEMA, {**options, "key.format": "raw"}, role="sink")
    validate_table(SCHEMA, {**options, "key.format": "raw"}, role="source", primary_key=("name",))
    with pytest.raises(ConnectorError, match=r"scan\.startup\.mode"):
        validate_table(
            SCHEMA,
            {**options, "key.format": "raw", "scan.startup.mode": "latest-offset"},
            role="source",
            primary_key=("name",),
        )


def test_the_format_of_keys_holds_the_primary_key() -> None:
    options = {**TABLE, "connector": "upsert-kafka", "key.format": "raw"}
    with pytest.raises((ConnectorError, UnsupportedError), match="raw"):
        validate_table(SCHEMA, options, role="source", primary_key=("k_id", "name"))


#: The options of Flink's connectors, from the factories of flink-connector-kafka 5.0.0-2.2.
FLINK_KAFKA = [
    "format",
    "key.fields",
    "key.fields-prefix",
    "key.format",
    "properties.bootstrap.servers",
    "properties.group.id",
    "scan.bounded.mode",
    "scan.bounded.specific-offsets",
    "scan.bounded.timestamp-millis",
    "scan.parallelism",
    "scan.startup.mode",
    "scan.startup.specific-offsets",
    "scan.startup.timestamp-millis",
    "scan.topic-partition-discovery.interval",
    "sink.delivery-guarantee",
    "sink.parallelism",
    "sink.partitioner",
    "sink.transaction-naming-strategy",
    "sink.transactional-id-prefix",
    "topic",
    "topic-pattern",
    "value.fields-include",
    "value.format",
]
FLINK_UPSERT = [
    "format",
    "key.fields-prefix",
    "key.format",
    "properties.bootstrap.servers",
    "properties.group.id",
    "scan.bounded.mode",
    "scan.bounded.specific-offsets",
    "scan.bounded.timestamp-millis",
    "scan.parallelism",
    "scan.topic-partition-discovery.interval",
    "sink.buffer-flush.interval",
    "sink.buffer-flush.max-rows",
    "sink.delivery-guarantee",
    "sink.parallelism",
    "sink.transaction-naming-strategy",
    "sink.transactional-id-prefix",
    "topic",
    "topic-pattern",
    "value.fields-include",
    "value.format",
]


def audited() -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """The tables of the docs: option → (kafka, upsert-kafka); metadata key → (read, written)."""
    text = (Path(__file__).parents[3] / "docs/connectors/kafka-options.md").read_text()
    tables = [
        {cells[0].strip(" `"): (cells[1].strip(), cells[2].strip()) for cells in
         (line.strip("|").split("|") for line in part.splitlines()[2:] if line.startswith("|"))}
        for part in re.split(r"\n(?=\| (?:option|key) )", text)[1:]
    ]  # fmt: skip
    return tables[0], tables[1]


@pytest.mark.parametrize(
    ("at", "options", "flink"), [(0, KAFKA_OPTIONS, FLINK_KAFKA), (1, UPSERT_OPTIONS, FLINK_UPSERT)]
)
def test_every_option_of_flink_is_there_or_refused_by_name(
    at: int, options: OptionSet, flink: list[str]
) -> None:
    table = {key: words[at] for key, words in audited()[0].items()}
    assert {key for key, word in table.items() if word != "no"} == {*flink, "properties.*"}
    own = {key for key in options.options if not key.startswith("properties.")}
    assert own == {
        k for k, word in table.items() if word == "yes" and not k.startswith("properties.") and k != "format"
    }
    assert {k for k, word in table.items() if word == "refused"} == set(REFUSED)


@pytest.mark.parametrize("key", REFUSED)
def test_a_refused_option_says_why(key: str) -> None:
    with pytest.raises(ConnectorError, match=f"'{key}' is not supported: {REFUSED[key][0]}"):
        validate_table(SCHEMA, {**TABLE, key: "POOLING"}, role="sink")


def test_the_metadata_of_flink_is_there() -> None:
    table = audited()[1]
    assert {key for key, (read, _) in table.items() if read == "yes"} == set(METADATA)
    assert {key for key, (_, written) in table.items() if written == "yes"} == set(WRITABLE_METADATA)
