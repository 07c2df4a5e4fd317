"""Avro: Flink's schema of a table, files of other writers, and records that do not fit."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib.util
import io
from decimal import Decimal

import fastavro
import pytest

from penstock.errors import ConnectorError, PenstockError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FileContext, FormatContext
from penstock.formats.avro.schema import table_schema
from penstock.types import Batch, Schema
from penstock.types import logical as t

TABLE = Schema.of(
    ("id", t.BigIntType(nullable=False)),
    ("name", t.VarCharType()),
    ("at", t.TimestampType(3)),
    ("fine", t.TimestampType(6)),
    ("day", t.DateType()),
    ("price", t.DecimalType(10, 2)),
    ("place", t.RowType((t.Field("x", t.IntType()),))),
    ("tags", t.MapType(t.VarCharType(nullable=False), t.IntType())),
)
ROW = (
    1, "a", dt.datetime(2024, 1, 2, 3, 4, 5, 6000), dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.date(2024, 1, 2),
    Decimal("1.25"), {"x": 7}, {"k": 1},
)  # fmt: skip


def raise_it(error, raw, where):
    raise error


def decoder(schema, options=None, bad=raise_it):
    return get_format("avro").decoder(FormatContext(schema, range(len(schema)), options or {}, bad))


def rows_of(path, schema):
    async def run(call):
        return call()

    async def read():
        files = get_format("avro").files
        part = {"start": 0, "end": path.stat().st_size}
        context = FileContext(
            str(path), part, lambda: path.open("rb"), run,
            FormatContext(schema, range(len(schema)), {}, raise_it), 100,
        )  # fmt: skip
        return [
            row async for block in files.reader(context).blocks(None) for row in block.decode().to_pylist()
        ]

    return asyncio.run(read())


def write(path, fields, records, codec="null"):
    with path.open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, records, codec=codec)
    return path


def test_the_schema_of_a_table_is_flinks():
    fields = {f["name"]: f for f in table_schema(TABLE, legacy=True)["fields"]}
    assert table_schema(TABLE, legacy=True)["name"] == "org.apache.flink.avro.generated.record"
    assert fields["id"] == {"name": "id", "type": "long"}
    assert fields["name"] == {"name": "name", "type": ["null", "string"], "default": None}
    assert fields["at"]["type"][1] == {"type": "long", "logicalType": "timestamp-millis"}
    assert fields["fine"]["type"][1] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["price"]["type"][1]["logicalType"] == "decimal"
    assert fields["place"]["type"][1]["name"] == "org.apache.flink.avro.generated.record_place"
    new = {f["name"]: f for f in table_schema(TABLE, legacy=False)["fields"]}
    assert new["at"]["type"][1]["logicalType"] == "local-timestamp-millis"


def test_another_library_reads_what_is_written():
    (message,) = get_format("avro").encoder(TABLE, {}).encode(Batch.of(TABLE, [ROW]))
    schema = fastavro.parse_schema(table_schema(TABLE, legacy=True))
    record = fastavro.schemaless_reader(io.BytesIO(message), schema, None)
    assert record["at"] == ROW[2].replace(tzinfo=dt.UTC)
    assert record["fine"] == ROW[3].replace(tzinfo=dt.UTC)
    assert (record["day"], record["price"], record["place"]) == (ROW[4], ROW[5], {"x": 7})


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ("z", t.TimestampLtzType(3)),
        ("n", t.TimeType(6)),
        ("m", t.MapType(t.IntType(), t.IntType())),
        ("a-b", t.IntType()),
    ],
)
def test_a_column_without_an_avro_form_is_refused_by_name(column, type_):
    with pytest.raises(UnsupportedError, match=column):
        get_format("avro").check(Schema.of((column, type_)), {})


def test_two_rows_of_one_avro_name_are_refused():
    inner = t.RowType((t.Field("x", t.IntType()),))
    schema = Schema.of(("a", t.RowType((t.Field("b", inner),))), ("a_b", inner))
    with pytest.raises(UnsupportedError, match="same Avro name"):
        get_format("avro").check(schema, {})


@pytest.mark.parametrize("spoil", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b""])
def test_a_record_that_is_cut_or_too_long_is_bad(spoil):
    (message,) = get_format("avro").encoder(TABLE, {}).encode(Batch.of(TABLE, [ROW]))
    seen = []
    got = decoder(TABLE, bad=lambda error, raw, where: seen.append((error, where))).decode(
        [message, spoil(message), message], lambda i: f"offset {i}"
    )
    assert len(got) == 2
    ((error, where),) = seen
    assert isinstance(error, RecordError)
    assert where == "offset 1"


@pytest.mark.parametrize("index", [b"\x01", b"\x03", b"\x05", b"\x04", b"\x06", b"\x7f"])
def test_a_branch_of_a_union_that_does_not_exist_is_bad(index):
    schema = Schema.of(("v", t.IntType()))
    with pytest.raises(PenstockError, match="no Avro binary record"):
        decoder(schema).decode([index + b"\x02"], str)


def test_what_the_library_takes_though_it_is_no_record_is_bad():
    flag = Schema.of(("v", t.BooleanType(nullable=False)))
    text = Schema.of(("v", t.VarCharType(nullable=False)), ("w", t.VarCharType(nullable=False)))
    for schema, message in ((flag, b"\x02"), (text, b"\x01\x02a"), (text, b"\x02\xff\x02a")):
        with pytest.raises(PenstockError, match="no Avro binary record"):
            decoder(schema).decode([message], str)


def test_other_spellings_of_a_record_are_read():
    """Numbers with bytes to spare, and arrays and maps in blocks with their sizes."""
    schema = Schema.of(
        ("n", t.IntType(nullable=False)),
        ("a", t.ArrayType(t.IntType(nullable=False), nullable=False)),
        ("m", t.MapType(t.VarCharType(nullable=False), t.IntType(), nullable=False)),
    )
    number = b"\x82\x00"  # 1
    array = b"\x02\x04" + b"\x03\x04\x06\x08" + b"\x00"  # [2], then [3, 4] behind its count and size
    entries = b"\x01\x08\x02k\x02\x0a" + b"\x00"  # {"k": 5} behind its count and size
    [row] = decoder(schema).decode([number + array + entries], str).to_pylist()
    assert row == (1, [2, 3, 4], {"k": 5}) or row == (1, [2, 3, 4], [("k", 5)])
    with pytest.raises(PenstockError, match="no Avro binary record"):
        decoder(schema).decode([number + array + entries.replace(b"\x08", b"\x06")], str)


def test_a_number_beyond_its_column_is_bad():
    schema = Schema.of(("v", t.TinyIntType(nullable=False)))
    with pytest.raises(PenstockError, match="no Avro binary record"):
        decoder(schema).decode([b"\x80\x02"], str)  # the number 128


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_files_of_another_writer_are_matched_by_name(tmp_path, codec):
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    inner = {
        "type": "record",
        "name": "p",
        "fields": [{"name": "y", "type": "int"}, {"name": "x", "type": "int"}],
    }
    fields = [
        {"name": "old", "type": inner},
        {"name": "at", "type": micros},
        {"name": "place", "type": ["p", "null"]},
        {"name": "id", "type": "int"},
    ]
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 6789, tzinfo=dt.UTC)
    record = {"old": {"y": 1, "x": 2}, "at": at, "place": {"y": 3, "x": 4}, "id": 5}
    path = write(tmp_path / "f.avro", fields, [record], codec)
    ((id_, name, when, place),) = rows_of(path, TABLE.select([0, 1, 2, 6]))
    assert (id_, name, when) == (5, None, dt.datetime(2024, 1, 2, 3, 4, 5, 6000))
    assert place["x"] == 4


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"name": "other", "type": "long"}, "no field for column 'id'"),
        ({"name": "id", "type": "string"}, "column 'id' is of another type"),
        ({"name": "id", "type": {"type": "long", "logicalType": "timestamp-millis"}}, "of another type"),
        ({"name": "id", "type": ["int", "string"]}, "of another type"),
    ],
)
def test_a_file_of_another_schema_is_refused_by_name(tmp_path, field, said):
    path = write(tmp_path / "f.avro", [field], [])
    with pytest.raises(ConnectorError, match=said):
        rows_of(path, TABLE.select([0]))


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConnectorError) as err:
        get_format("avro").check(TABLE, {})
    assert "penstock[avro]" in err.value.remedy
