"""Avro behind a schema registry: the header, other writers' schemas, registration, and what goes wrong."""

from __future__ import annotations

import asyncio
import io
import json

import fastavro
import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.kafka.rows import parts_of
from penstock.connectors.kafka.settings import KAFKA_OPTIONS
from penstock.errors import ConnectorError, ExternalError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.formats.avro.confluent import Registered
from penstock.formats.schema_registry import client
from penstock.testing.conformance import FormatConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.servers.registry_app import RegistryApp

URL = {"avro-confluent.url": "http://registry:8081"}
SINK = {**URL, "avro-confluent.subject": "orders-value"}
TABLE = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def settings_of(options):
    return Registered("avro-confluent", options).settings


@pytest.fixture
def registry():
    app = RegistryApp()
    app.install(settings_of(URL))
    return app


def fail(error, raw, where):
    raise error


def decoder(schema=TABLE, options=URL, bad=fail, projection=None):
    projection = range(len(schema)) if projection is None else projection
    return get_format("avro-confluent").decoder(FormatContext(schema, projection, options, bad))


def read(messages, schema=TABLE, options=URL, bad=fail, projection=None):
    made = decoder(schema, options, bad, projection)
    missing = made.prepare(messages)
    if missing is not None:
        asyncio.run(missing)
    return made.decode(messages, lambda i: f"message {i}").to_pylist()


def write(rows, schema=TABLE, options=SINK):
    made = get_format("avro-confluent").encoder(schema, options)
    asyncio.run(made.open())
    return made.encode(Batch.of(schema, rows))


def message(schema_id, schema, record):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


class InMemory(FormatConformance):
    legacy = "true"

    def format(self):
        self.options = {**SINK, "avro-confluent.timestamp_mapping.legacy": self.legacy}
        self.app = getattr(self, "app", None) or RegistryApp()
        self.app.install(settings_of(self.options))
        return get_format("avro-confluent")


class TestAvroConfluent(InMemory):
    pass


class TestAvroConfluentWithZonedTimes(InMemory):
    legacy = "false"


# -- bytes ------------------------------------------------------------------------------------


def test_a_sink_registers_its_schema_and_writes_the_header_and_the_record(registry):
    (one,) = write([(7, "x")])
    assert registry.asked == ["POST /subjects/orders-value/versions"]
    assert one[:5] == b"\0\0\0\0\1"
    schema = json.loads(registry.schemas[1]["schema"])
    assert schema["name"] == "org.apache.flink.avro.generated.record"
    assert [(f["name"], f["type"]) for f in schema["fields"]] == [
        ("id", ["null", "long"]),
        ("name", ["null", "string"]),
    ]
    assert fastavro.schemaless_reader(io.BytesIO(one[5:]), schema, None) == {"id": 7, "name": "x"}
    assert read([one]) == [(7, "x")]


def test_writers_of_several_schemas_are_read_as_the_table_says_in_their_order(registry):
    old = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record", "name": "Order", "namespace": "shop", "fields": [
            {"name": "note", "type": ["null", {"type": "record", "name": "Note", "fields": []}], "default": None},
            {"name": "name", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
            {"name": "id", "type": "long"},
        ],
    }  # fmt: skip
    first, second = registry.add("s", old), registry.add("s", new)
    messages = [
        message(second, new, {"note": {}, "name": "b", "id": 2**40}),
        message(first, old, {"id": 1}),
        message(second, new, {"note": None, "name": "a", "id": 3}),
    ]
    assert read(messages) == [(2**40, "b"), (1, None), (3, "a")]
    assert registry.asked == ["GET /schemas/ids/1", "GET /schemas/ids/2"]
    assert read(messages[::-1], projection=[1]) == [("a",), (None,), ("b",)]
    assert len(registry.asked) == 2, "what was fetched once is asked again"


def test_times_are_read_by_the_unit_that_their_writer_declares(registry):
    table = Schema.of(
        ("at", t.TimestampType(3)),
    )
    messages = []
    for logical, number in (("timestamp-micros", 1_500_000), ("timestamp-millis", 2_500)):
        schema = {
            "type": "record",
            "name": "r",
            "fields": [{"name": "at", "type": {"type": "long", "logicalType": logical}}],
        }
        plain = {"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]}
        messages.append(message(registry.add("s", schema), plain, {"at": number}))
    assert [row[0].timestamp() if row[0].tzinfo else str(row[0]) for row in read(messages, table)] == [
        "1970-01-01 00:00:01.500000", "1970-01-01 00:00:02.500000",
    ]  # fmt: skip


def test_schemas_that_refer_to_others_are_read(registry):
    inner = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    middle = {
        "type": "record",
        "name": "Shop",
        "namespace": "geo",
        "fields": [{"name": "place", "type": "Place"}],
    }
    outer = {
        "type": "record", "name": "Order", "fields": [
            {"name": "shop", "type": "geo.Shop"}, {"name": "other", "type": ["null", "geo.Place"]},
        ],
    }  # fmt: skip
    registry.add("place", inner)
    registry.add("shop", middle, references=[{"name": "geo.Place", "subject": "place", "version": 1}])
    found = registry.add("order", outer, references=[
        {"name": "geo.Shop", "subject": "shop", "version": 1}, {"name": "geo.Place", "subject": "place", "version": 1},
    ])  # fmt: skip
    place = t.RowType((t.Field("x", t.IntType()),))
    table = Schema.of(("shop", t.RowType((t.Field("place", place),))), ("other", place))
    record = {"shop": {"place": {"x": 1}}, "other": {"x": 2}}
    named = {}
    for schema in (inner, middle):
        fastavro.parse_schema(schema, named)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(outer, named), record)
    ((shop, other),) = read([b"\0" + found.to_bytes(4, "big") + body.getvalue()], table)
    assert shop == {"place": {"x": 1}}
    assert other == {"x": 2}


# -- what goes wrong --------------------------------------------------------------------------


def test_an_unknown_id_and_a_missing_header_are_bad_records_with_their_places(registry):
    good = write([(1, "a")])[0]
    bad = []
    rows = read(
        [b"", good, b"\0\0\0\0\x63abc", b"{json}", good], bad=lambda e, raw, where: bad.append((e, where))
    )
    assert rows == [(1, "a"), (1, "a")]
    said = sorted((where, str(error)) for error, where in bad)
    assert [where for where, _ in said] == ["message 0", "message 2", "message 3"]
    assert "schema id 99" in said[1][1]
    assert "40403" in said[1][1]
    assert "'avro-confluent.url'" in said[1][1]
    assert "first byte is 123" in said[2][1]
    with pytest.raises(RecordError, match="schema id 99"):
        read([b"\0\0\0\0\x63abc"])


def test_a_writer_whose_schema_does_not_fit_is_an_error_that_names_id_and_column(registry):
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    found = registry.add("s", schema)
    with pytest.raises(ConnectorError, match="column 'id' is of another type") as raised:
        read([message(found, schema, {"id": "x"})], bad=lambda *_: None)
    assert raised.value.where == "schema id 1, http://registry:8081"


def test_wrong_credentials_are_an_error_that_is_not_tried_again(registry):
    registry.login = "ada:secret"
    with pytest.raises(ConnectorError, match="refuses the credentials") as raised:
        write([(1, "a")])
    assert "subject 'orders-value'" in raised.value.where
    assert "401" in raised.value.got
    assert len(registry.asked) == 1
    options = {
        **SINK,
        "avro-confluent.basic-auth.credentials-source": "USER_INFO",
        "avro-confluent.basic-auth.user-info": "ada:secret",
    }
    for given in (
        options,
        {**SINK, "avro-confluent.url": "http://ada:secret@registry:8081"},
        {**SINK, "avro-confluent.properties.basic.auth.user.info": "ada:secret"},
    ):
        registry.install(settings_of(given))
        assert len(write([(1, "a")], options=given)) == 1
    registry.token = "t1"
    given = {
        **SINK,
        "avro-confluent.bearer-auth.credentials-source": "STATIC_TOKEN",
        "avro-confluent.bearer-auth.token": "t1",
    }
    registry.install(settings_of(given))
    assert len(write([(1, "a")], options=given)) == 1
    assert "secret" not in repr(settings_of(options))


def test_a_registry_that_is_away_is_asked_again_and_the_log_says_why(registry, caplog):
    registry.breaks = [None, 503, None, 429]
    with caplog.at_level("WARNING"):
        assert len(write([(1, "a")])) == 1
    assert registry.pauses == [0.1, 0.2, 0.4, 0.8]
    said = [str(r.msg) for r in caplog.records if str(r.msg).startswith("schema_registry_away")]
    assert len(said) == 4
    assert "All connection attempts failed" in said[0]
    assert "subject 'orders-value'" in said[0]
    assert "503" in said[1]


def test_a_registry_that_stays_away_fails_the_task_which_may_be_restarted(registry, monkeypatch):
    monkeypatch.setattr(client, "_PATIENCE_S", 0)
    registry.breaks = [503, 503]
    with pytest.raises(ExternalError, match="does not answer") as raised:
        write([(1, "a")])
    assert raised.value.retryable
    assert "503" in raised.value.got
    with pytest.raises(ExternalError, match="does not answer") as raised:
        read([b"\0\0\0\0\1x"])
    assert "schema id 1" in raised.value.where


def test_another_registry_answers_when_the_first_is_away(registry):
    options = {**SINK, "avro-confluent.url": "http://a:1, http://b:2/"}
    registry.install(settings_of(options))
    registry.breaks = [None]
    assert len(write([(1, "a")], options=options)) == 1
    assert registry.pauses == []


def test_a_schema_that_is_not_compatible_names_the_subject(registry):
    registry.incompatible.add("orders-value")
    with pytest.raises(ConnectorError, match="not compatible") as raised:
        write([(1, "a")])
    assert "subject 'orders-value'" in raised.value.where
    assert "409" in raised.value.got


def test_without_registration_the_schema_is_looked_up(registry):
    options = {**SINK, "avro-confluent.auto.register.schemas": "false"}
    registry.install(settings_of(options))
    with pytest.raises(ConnectorError, match="does not have the table's schema"):
        write([(1, "a")], options=options)
    write([(1, "a")])
    assert len(write([(1, "a")], options=options)) == 1
    assert registry.asked[-1] == "POST /subjects/orders-value"


def test_a_schema_of_another_kind_and_a_url_of_something_else_are_refused(registry):
    registry.add("s", "syntax = ...", schemaType="PROTOBUF")
    with pytest.raises(ConnectorError, match="of another kind"):
        read([b"\0\0\0\0\1x"])
    registry.breaks = [404]
    with pytest.raises(ConnectorError, match="refuses the request") as raised:
        read([b"\0\0\0\0\2x"])
    assert "base URL" in raised.value.remedy


def test_a_decoder_that_was_not_prepared_says_so(registry):
    with pytest.raises(ConnectorError, match="was not fetched"):
        decoder().decode([b"\0\0\0\0\x07abc"], str)


# -- a schema that the user gives -------------------------------------------------------------


def given(*fields, **more):
    return json.dumps(
        {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields), **more}
    )


def test_a_given_schema_is_registered_and_written_in_its_own_words(registry):
    text = given(
        {"name": "name", "type": [{"type": "string", "avro.java.string": "String"}, "null"], "default": "?"},
        {"name": "id", "type": ["null", "long"], "doc": "its number"},
        doc="An order.",
    )
    options = {**SINK, "avro-confluent.schema": text}
    get_format("avro-confluent").check(TABLE, options)
    (one,) = write([(7, None)], options=options)
    assert json.loads(registry.schemas[1]["schema"]) == json.loads(text)
    assert fastavro.schemaless_reader(io.BytesIO(one[5:]), json.loads(text), None) == {"id": 7, "name": None}
    assert read([one], options={**URL, "avro-confluent.schema": text}) == [(7, None)]


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        ([{"name": "id", "type": ["null", "long"]}], "name"),
        ([{"name": "id", "type": ["null", "int"]}, {"name": "name", "type": ["null", "string"]}], "id"),
        ([{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}], "id"),
        (
            [
                {"name": n, "type": ["null", k]}
                for n, k in (("id", "long"), ("name", "string"), ("more", "int"))
            ],
            "more",
        ),
    ],
)
def test_a_given_schema_that_does_not_fit_is_refused_by_column(fields, column):
    with pytest.raises(ConnectorError, match=f"column '{column}'"):
        get_format("avro-confluent").check(TABLE, {**SINK, "avro-confluent.schema": given(*fields)})


def test_a_given_schema_that_is_none_is_refused():
    for text in ("{", '"string"', '{"type": "record", "name": "r"}'):
        with pytest.raises(ConnectorError, match="the Avro schema that the table gives"):
            get_format("avro-confluent").check(TABLE, {**SINK, "avro-confluent.schema": text})


def test_a_default_that_would_be_read_as_null_is_refused(registry):
    text = given(
        {"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["string", "null"], "default": "?"}
    )
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    one = message(registry.add("s", old), old, {"id": 1})
    with pytest.raises(ConnectorError, match="lacks the field 'name'"):
        read([one], options={**URL, "avro-confluent.schema": text})
    assert read([one]) == [(1, None)]


def test_a_symbol_that_the_enum_lacks_is_a_record_error(registry):
    text = given(
        {"name": "id", "type": ["null", "long"]},
        {"name": "name", "type": ["null", {"type": "enum", "name": "K", "symbols": ["a"]}]},
    )
    with pytest.raises(RecordError, match="cannot be written") as raised:
        write([(1, "a"), (2, "b")], options={**SINK, "avro-confluent.schema": text})
    assert "'b'" in raised.value.got


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "'avro-confluent.url' is missing"),
        ({"avro-confluent.url": "registry:8081"}, "URL of the schema registry is malformed"),
        ({**URL, "avro-confluent.basic-auth.credentials-source": "USER_INFO"}, "user-info' is missing"),
        ({**URL, "avro-confluent.basic-auth.credentials-source": "URL"}, "URL holds no user"),
        ({**URL, "avro-confluent.basic-auth.credentials-source": "SASL_INHERIT"}, "not passed on"),
        ({**URL, "avro-confluent.bearer-auth.credentials-source": "STATIC_TOKEN"}, "token' is missing"),
        ({**URL, "avro-confluent.basic-auth.user-info": "a:b", "avro-confluent.bearer-auth.token": "t"}, "two credentials"),
        ({**URL, "avro-confluent.properties.basic.auth.user.inf": "a:b"}, "has no effect"),
        ({**URL, "avro-confluent.ssl.truststore.location": "/no/such"}, "truststore of the schema registry cannot be read"),
        ({**URL, "avro-confluent.encoding": "json"}, "unknown option"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_right_are_refused(options, said):
    with pytest.raises(ConnectorError, match=said):
        get_format("avro-confluent").check(TABLE, options)


def test_a_java_keystore_is_refused_with_how_to_convert_it(tmp_path):
    path = tmp_path / "trust.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConnectorError, match="no PEM file") as raised:
        get_format("avro-confluent").check(
            TABLE, {**URL, "avro-confluent.ssl.truststore.location": str(path)}
        )
    assert "keytool" in raised.value.remedy


def test_a_zoned_time_under_the_old_mapping_is_refused_with_this_formats_option():
    with pytest.raises(UnsupportedError) as raised:
        get_format("avro-confluent").check(Schema.of(("at", t.TimestampLtzType(3))), URL)
    assert "'avro-confluent.timestamp_mapping.legacy'" in raised.value.remedy


def test_the_subject_follows_from_kafkas_topic():
    options = {
        "connector": "kafka", "topic": "orders", "properties.bootstrap.servers": "x:1", "key.format": "avro-confluent",
        "key.fields": "id", "key.avro-confluent.url": "http://k", "value.format": "avro-confluent",
        "value.avro-confluent.url": "http://v",
    }  # fmt: skip

    def subjects(options):
        table = TableInfo(TABLE, options)
        return [
            p.options.get("avro-confluent.subject")
            for p in parts_of(table, KAFKA_OPTIONS.read(options), [0], "k")
        ]

    assert subjects(options) == ["orders-key", "orders-value"]
    assert subjects({**options, "value.avro-confluent.subject": "mine"}) == ["orders-key", "mine"]
    assert subjects({**options, "topic": "a;b"}) == [None, None]


def test_a_sink_without_a_subject_is_refused():
    with pytest.raises(ConnectorError, match="subject' is missing"):
        get_format("avro-confluent").encoder(TABLE, URL)
