"""``debezium-avro-confluent``: Debezium's schemas, Flink's, what is written, and what goes wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json

import fastavro
import pytest

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.formats.avro.confluent import Registered
from penstock.testing.conformance import FormatConformance
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t
from tests.servers.registry_app import RegistryApp

NAME = "debezium-avro-confluent"
INSERT, BEFORE, AFTER, DELETE = RowKind
URL = {f"{NAME}.url": "http://registry:8081"}
SINK = {**URL, f"{NAME}.subject": "products-value"}
TABLE = Schema.of(("id", t.BigIntType(False)), ("name", t.VarCharType()), ("weight", t.DoubleType()))

#: As Debezium's connector for MySQL registers it: the row's type is defined once, times are numbers with Connect's names.
ROW = {
    "type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"},
        {"name": "weight", "type": ["null", "double"], "default": None},
        {"name": "name", "type": {"type": "string", "connect.default": "?"}, "default": "?"},
        {"name": "day", "type": ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}]},
        {"name": "at", "type": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "sold", "type": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.Timestamp"}},
        {"name": "ns", "type": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.NanoTimestamp"}},
    ],
}  # fmt: skip
DEBEZIUM = {
    "type": "record", "name": "Envelope", "namespace": "server1.shop.products", "connect.name": "server1.shop.products.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "namespace": "io.debezium.connector.mysql", "fields": [
            {"name": "version", "type": "string"}, {"name": "ts_ms", "type": "long"}, {"name": "db", "type": "string"},
            {"name": "table", "type": ["null", "string"], "default": None},
        ]}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {"name": "transaction", "type": ["null", {"type": "record", "name": "Block", "fields": [{"name": "id", "type": "string"}]}], "default": None},
    ],
}  # fmt: skip
SOURCE = {"version": "2.7", "ts_ms": 1_589_355_606_000, "db": "shop", "table": "products"}


@pytest.fixture
def registry():
    app = RegistryApp()
    app.install(Registered(NAME, URL).settings)
    return app


def fail(error, raw, where):
    raise error


def row(key, name, weight, **more):
    return {
        "id": key,
        "name": name,
        "weight": weight,
        "day": 18_395,
        "at": 1_000_001,
        "sold": 1_500,
        "ns": 5,
    } | more


def message(schema_id, schema, record):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def change(registry, op, before, after, schema=DEBEZIUM):
    record = {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1_589_362_330_904}
    return message(registry.add("products-value", schema), schema, record)


def read(messages, schema=TABLE, options=URL, bad=fail, projection=None, metadata=()):
    projection = range(len(schema)) if projection is None else projection
    made = get_format(NAME).decoder(FormatContext(schema, projection, options, bad, metadata=metadata))
    missing = made.prepare(messages)
    if missing is not None:
        asyncio.run(missing)
    batch, of = made.decode_numbered(messages, lambda i: f"offset {i}")
    assert len(of) == len(batch)
    return [(RowKind(kind), values) for kind, values in batch.rows()], of.tolist()


def write(batch, schema=TABLE, options=SINK):
    made = get_format(NAME).encoder(schema, options)
    asyncio.run(made.open())
    return made.encode(batch)


CHANGED = Batch.of(
    TABLE, [(1, "scooter", 3.14), (1, "scooter", 3.14), (1, "scooter", 5.15), (1, None, None)],
    kinds=[INSERT, BEFORE, AFTER, DELETE],
)  # fmt: skip
WRITTEN = [
    (INSERT, (1, "scooter", 3.14)), (DELETE, (1, "scooter", 3.14)), (INSERT, (1, "scooter", 5.15)), (DELETE, (1, None, None)),
]  # fmt: skip


class TestDebeziumAvro(FormatConformance):
    def format(self):
        self.options = {**SINK, f"{NAME}.timestamp_mapping.legacy": "false"}
        self.app = getattr(self, "app", None) or RegistryApp()
        self.app.install(Registered(NAME, self.options).settings)
        return get_format(NAME)


# -- reading ----------------------------------------------------------------------------------


def test_changes_of_all_kinds_stay_in_order_and_tombstones_are_none(registry):
    old, new = row(1, "scooter", 3.14), row(1, "scooter", 5.15)
    one = [
        change(registry, "c", None, old), change(registry, "u", old, new), b"", change(registry, "d", new, None),
        change(registry, "r", None, row(2, "car", None)),
    ]  # fmt: skip
    found, of = read(one * 50)
    assert found == [
        (INSERT, (1, "scooter", 3.14)), (BEFORE, (1, "scooter", 3.14)), (AFTER, (1, "scooter", 5.15)),
        (DELETE, (1, "scooter", 5.15)), (INSERT, (2, "car", None)),
    ] * 50  # fmt: skip
    assert of == [5 * i + j for i in range(50) for j in (0, 1, 1, 3, 4)]
    assert read(one, projection=[1])[0][3] == (DELETE, ("scooter",))
    assert [kind for kind, _ in read(one, projection=[])[0]] == [INSERT, BEFORE, AFTER, DELETE, INSERT]


def test_times_mean_what_debezium_says_and_are_numbers_where_numbers_are_declared(registry):
    one = change(registry, "u", row(1, "a", 1), row(2, "b", 2))
    times = Schema.of(("day", t.DateType()), ("at", t.TimestampType(6)), ("sold", t.TimestampType(3)))
    want = (
        dt.date(2020, 5, 13),
        dt.datetime(1970, 1, 1, 0, 0, 1, 1),
        dt.datetime(1970, 1, 1, 0, 0, 1, 500_000),
    )
    assert read([one], times)[0] == [(BEFORE, want), (AFTER, want)]
    numbers = Schema.of(("day", t.IntType()), ("at", t.BigIntType()), ("sold", t.BigIntType()))
    assert read([one], numbers)[0] == [
        (BEFORE, (18_395, 1_000_001, 1_500)),
        (AFTER, (18_395, 1_000_001, 1_500)),
    ]


def test_a_time_that_cannot_be_read_exactly_is_refused_by_column(registry):
    one = change(registry, "c", None, row(1, "a", 1))
    with pytest.raises(ConnectorError, match=r"of another type") as raised:
        read([one], Schema.of(("ns", t.TimestampType(6))))
    assert "ns" in str(raised.value)


def test_metadata_stands_beside_each_row(registry):
    keys = ("source.table", "source.database", "source.schema", "source.timestamp", "ingestion-timestamp")
    found, _ = read([change(registry, "u", row(1, "a", 1), row(1, "b", 1))], projection=[1], metadata=keys)
    at = dt.datetime(2020, 5, 13, 7, 40, 6, tzinfo=dt.UTC)
    came = dt.datetime(2020, 5, 13, 9, 32, 10, 904_000, tzinfo=dt.UTC)
    assert found == [
        (kind, (name, "products", "shop", None, at, came)) for kind, name in ((BEFORE, "a"), (AFTER, "b"))
    ]
    assert set(get_format(NAME).metadata) == set(keys)


@pytest.mark.parametrize("places", [("null", 1), (0, "null")])
def test_a_union_of_null_and_the_record_is_read_as_the_record(registry, places):
    schema = [DEBEZIUM if place != "null" else place for place in places]
    record = {"before": None, "after": row(7, "x", 0.5), "source": SOURCE, "op": "c", "ts_ms": 1}
    schema_id = registry.add("products-value", schema)
    good, null = message(schema_id, schema, record), message(schema_id, schema, None)
    bad = []
    found = read([good, null, good], bad=lambda e, raw, where: bad.append((e, raw, where)))
    assert found == ([(INSERT, (7, "x", 0.5))] * 2, [0, 2])
    [(error, raw, where)] = bad
    assert (raw, where) == (null, "offset 1")
    assert "null, or no branch" in error.got


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda r: b"{}", "2 bytes are less than the header"),
        (lambda r: b"\0\0\0\0\x63abc", "schema id 99"),
        (lambda r: change(r, "t", None, None), "'op' is no change of a row"),
        (lambda r: change(r, "u", None, row(1, "a", 1)), "REPLICA IDENTITY FULL"),
        (lambda r: change(r, "c", row(1, "a", 1), None), "an insertion has no 'after'"),
        (lambda r: change(r, "c", None, row(1, "a", 1))[:-4], "no Avro record of the schema registry"),
    ],
)
def test_a_bad_record_is_an_error_with_its_place_or_left_out(registry, make, said):
    good, broken = change(registry, "c", None, row(1, "a", 1)), make(registry)
    with pytest.raises(RecordError, match=said) as raised:
        read([good, broken, good])
    assert "offset 1" in raised.value.where
    assert "'on-error'" in raised.value.remedy
    bad = []
    found = read([good, broken, good], bad=lambda e, raw, where: bad.append((raw, where)))
    assert found == ([(INSERT, (1, "a", 1.0))] * 2, [0, 2])
    assert bad == [(broken, "offset 1")]


def test_a_schema_that_does_not_fit_is_an_error_that_names_id_and_column(registry):
    one = change(registry, "c", None, row(1, "a", 1))
    with pytest.raises(ConnectorError, match="of another type") as raised:
        read([one], Schema.of(("name", t.BigIntType())), bad=lambda *_: None)
    assert raised.value.where == "schema id 1, http://registry:8081"
    assert "name" in str(raised.value)


# -- writing ----------------------------------------------------------------------------------


def test_rows_are_written_with_the_schema_that_flink_registers(registry):
    registry.install(Registered(NAME, SINK).settings)
    messages = write(CHANGED)
    null, record = schema = json.loads(registry.schemas[1]["schema"])
    assert null == "null"
    assert [f["name"] for f in record["fields"]] == ["before", "after", "op"]
    assert {f["type"][0] for f in record["fields"]} == {"null"}
    assert [f["name"] for f in record["fields"][1]["type"][1]["fields"]] == ["id", "name", "weight"]
    assert all(m[:6] == b"\0\0\0\0\1\2" for m in messages)
    first, second = (fastavro.schemaless_reader(io.BytesIO(m[5:]), schema, None) for m in messages[:2])
    kept = {"id": 1, "name": "scooter", "weight": 3.14}
    assert first == {"before": None, "after": kept, "op": "c"}
    assert second == {"before": kept, "after": None, "op": "d"}
    assert read(messages, options=SINK)[0] == WRITTEN


@pytest.mark.parametrize("union", [True, False])
def test_a_given_schema_is_registered_and_written(registry, union):
    columns = [
        {"name": "weight", "type": ["null", "double"]}, {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
    ]  # fmt: skip
    record = {"type": "record", "name": "Envelope", "namespace": "shop", "fields": [
        {"name": "op", "type": ["null", "string"]},
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": columns}]},
        {"name": "after", "type": ["null", "Value"]},
    ]}  # fmt: skip
    options = {**SINK, f"{NAME}.schema": json.dumps(["null", record] if union else record)}
    get_format(NAME).check(TABLE, options)
    messages = write(CHANGED, options=options)
    assert json.loads(registry.schemas[1]["schema"]) == json.loads(options[f"{NAME}.schema"])
    assert read(messages, options=options)[0] == WRITTEN


def test_a_given_schema_that_does_not_fit_is_refused_by_column():
    def given(columns):
        rows = {"type": "record", "name": "Value", "fields": columns}
        fields = [("before", ["null", rows]), ("after", ["null", "Value"]), ("op", ["null", "string"])]
        return json.dumps(
            {"type": "record", "name": "E", "fields": [{"name": n, "type": s} for n, s in fields]}
        )

    with pytest.raises(ConnectorError, match=r"column 'before\.name'"):
        get_format(NAME).check(TABLE, {**SINK, f"{NAME}.schema": given([{"name": "id", "type": "long"}])})
    for text in ('["null", "string"]', '"string"', "{"):
        with pytest.raises(ConnectorError, match="the Avro schema that the table gives"):
            get_format(NAME).check(TABLE, {**SINK, f"{NAME}.schema": text})


def test_options_that_cannot_be_right_are_refused_in_the_formats_words():
    for options, said in (
        ({}, f"'{NAME}.url' is missing"),
        ({**URL, f"{NAME}.encoding": "json"}, "unknown option"),
        ({**URL, f"{NAME}.properties.no.such": "x"}, "has no effect"),
    ):
        with pytest.raises(ConnectorError, match=said):
            get_format(NAME).check(TABLE, options)
    with pytest.raises(ConnectorError, match=f"'{NAME}.subject' is missing"):
        get_format(NAME).encoder(TABLE, URL)
    with pytest.raises(UnsupportedError) as raised:
        get_format(NAME).check(Schema.of(("at", t.TimestampLtzType(3))), URL)
    assert f"'{NAME}.timestamp_mapping.legacy'" in raised.value.remedy
