"""Partitions of the filesystem connector: names of folders, which are read, files open at a time."""

import datetime
import json
import os
import re
from decimal import Decimal

import msgspec
import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.filesystem.partitions import (
    Partitioning,
    escape,
    partitions_of,
    text_of,
    unescape,
    value_of,
)
from penstock.errors import ConnectorError
from penstock.functions.expr import Call, InputRef, Literal
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("k", t.VarCharType()), ("id", t.BigIntType()), ("n", t.IntType()))


def options(folder, keys=("k",), **more):
    out = {
        "connector": "filesystem",
        "path": str(folder),
        "format": "json",
        "partition.keys": json.dumps(keys),
    }
    return {**out, **{key.replace("_", "-"): value for key, value in more.items()}}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("plain", "plain"),
        ("a b", "a b"),
        ("10:00", "10%3A00"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("100%", "100%25"),
        ("%3A", "%253A"),
        ("a\tb\n", "a%09b%0A"),
        ("\"#'*?\\{[]^", "%22%23%27%2A%3F%5C%7B%5B%5D%5E"),
        ("\x7f", "%7F"),
        ("Zoë 🌊", "Zoë 🌊"),
        ("..", ".."),
    ],
)
def test_names_are_escaped_as_hive_and_flink_do(value, name):
    assert escape(value) == name
    assert unescape(name) == value


def test_what_is_no_escape_stays():
    assert unescape("50%zz%4") == "50%zz%4"


VALUES = [
    (t.VarCharType(), "x y", "x y"),
    (t.TinyIntType(), -128, "-128"),
    (t.BigIntType(), 2**63 - 1, str(2**63 - 1)),
    (t.BooleanType(), True, "true"),
    (t.DoubleType(), 1e300, "1e+300"),
    (t.DecimalType(10, 2), Decimal("-1.50"), "-1.50"),
    (t.DateType(), datetime.date(2024, 2, 29), "2024-02-29"),
    (t.TimestampType(3), datetime.datetime(2024, 1, 1, 10, 0), "2024-01-01 10:00:00"),
    (t.TimestampType(6), datetime.datetime(2024, 1, 1, 10, 0, 0, 1500), "2024-01-01 10:00:00.0015"),
    (t.VarCharType(), None, None),
]


@pytest.mark.parametrize(("type_", "value", "text"), VALUES)
def test_values_and_their_texts(type_, value, text):
    assert text_of(type_, value) == text
    if text is not None:
        assert value_of(type_, text) == value


def test_what_others_write_is_read():
    assert value_of(t.IntType(), "01") == 1
    assert value_of(t.BooleanType(), "TRUE") is True
    assert value_of(t.TimestampType(3), "2024-01-01T10:00") == datetime.datetime(2024, 1, 1, 10)
    assert value_of(t.DecimalType(3, 1), "1.50") == Decimal("1.5")


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (t.TinyIntType(), "128"),
        (t.IntType(), "1.5"),
        (t.IntType(), "1_0"),
        (t.IntType(), " 1"),
        (t.BooleanType(), "yes"),
        (t.DecimalType(3, 1), "1.55"),
        (t.DecimalType(3, 1), "100"),
        (t.DateType(), "2024-02-30"),
        (t.DateType(), "2024-01-01 10:00:00"),
        (t.TimestampType(3), "19723"),
        (t.DoubleType(), "1_0"),
    ],
)
def test_what_is_no_value_is_not_guessed(type_, text):
    with pytest.raises(ValueError, match=f"{re.escape(text)}|out of range"):
        value_of(type_, text)


def test_rows_are_split_by_folder_in_their_order():
    partitioning = Partitioning.of(TableInfo(SCHEMA, options("/t", ("k", "n"))))
    rows = [("a", 1, 1), (None, 2, 1), ("a", 3, 1), ("", 4, 1), ("a", 5, None)]
    out = [(folder, part.to_pylist()) for folder, part in partitioning.split(Batch.of(SCHEMA, rows))]
    assert sorted(out) == [
        ("k=__DEFAULT_PARTITION__/n=1", [(2,)]),
        ("k=__DEFAULT_PARTITION__/n=1", [(4,)]),
        ("k=a/n=1", [(1,), (3,)]),
        ("k=a/n=__DEFAULT_PARTITION__", [(5,)]),
    ]


async def test_few_files_are_open_and_every_row_shows(harness, tmp_path):
    opts = options(tmp_path, **{"sink.max-open-files": "2"})
    harness.connector(SCHEMA, opts, role="sink")
    writer = await harness.writer(SCHEMA, opts)
    rows = [(f"{i % 5}:{i % 5}", i, 0) for i in range(100)]
    for start in range(0, 100, 10):
        writer.write(Batch.of(SCHEMA, rows[start : start + 10]))
    assert len(await writer.begin_checkpoint(1)) == 100 // 10 * 5
    assert partitions_of(TableInfo(SCHEMA, opts)) == []
    await writer.commit(1)
    assert not writer._open_files
    await writer.close()
    assert sorted(await harness.read_all(SCHEMA, opts)) == sorted(rows)
    [first, *_] = sorted((tmp_path / "k=0%3A0").iterdir())
    assert "k" not in json.loads(first.read_text().splitlines()[0])


async def test_a_thousand_partitions_are_as_many_files(harness, tmp_path):
    """Within one bound: a partition has one file for each checkpoint."""
    opts = options(tmp_path, **{"sink.max-open-files": "1000"})
    writer = await harness.writer(SCHEMA, opts)
    for _ in range(3):
        writer.write(Batch.of(SCHEMA, [(str(i), i, 0) for i in range(200)]))
    assert len(await writer.begin_checkpoint(1)) == 200
    await writer.commit(1)
    await writer.close()
    assert len(partitions_of(TableInfo(SCHEMA, opts))) == 200


@pytest.mark.parametrize(
    ("keys", "path", "message"),
    [
        (["k"], "k=a/x.json", None),
        (["k"], "k=a/deeper/x.json", None),
        (["k"], "%6B=a/x.json", None),
        (["k"], "x.json", "lies in no partition"),
        (["k"], "n=1/x.json", "lies in no partition"),
        (["k", "n"], "k=a/x.json", "lies in no partition"),
        (["n"], "n=one/x.json", "n=one' has no value of the partition column 'n'"),
        (["n"], "n=__DEFAULT_PARTITION__/x.json", None),
    ],
)
async def test_folders_that_are_none_are_named(harness, tmp_path, keys, path, message):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text('{"id": 1}\n')
    if message is None:
        assert [row[1] for row in await harness.read_all(SCHEMA, options(tmp_path, keys))] == [1]
        return
    with pytest.raises(ConnectorError) as caught:
        await harness.read_all(SCHEMA, options(tmp_path, keys))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "nullable", "message"),
    [
        ("__DEFAULT_PARTITION__", True, "stands for NULL"),
        ("", False, "would be read as NULL"),
        (None, False, "would be read as NULL"),
    ],
)
def test_values_that_would_be_read_as_others_are_refused(value, nullable, message):
    schema = Schema.of(("k", t.VarCharType(nullable=nullable)), ("id", t.BigIntType()))
    partitioning = Partitioning.of(TableInfo(schema, options("/t")))
    with pytest.raises(ConnectorError, match=message):
        partitioning.folder((value,))


def test_a_column_whose_name_hides_its_folder(tmp_path):
    schema = Schema.of((".k", t.VarCharType()), ("_n", t.VarCharType()), ("id", t.BigIntType()))
    info = TableInfo(schema, options(tmp_path, (".k", "_n")))
    folder = Partitioning.of(info).folder(("a", "b"))
    os.makedirs(tmp_path / folder)
    (tmp_path / folder / "x.json").write_text("{}\n")
    (tmp_path / folder / "_x=1.json").write_text("{}\n")
    assert partitions_of(info) == [("%2Ek=a/_n=b", True)]


@pytest.mark.parametrize(
    ("schema", "more", "message"),
    [
        (
            Schema.of(("k", t.ArrayType(t.IntType())), ("id", t.IntType())),
            {},
            "column 'k' cannot be a partition",
        ),
        (SCHEMA, {"path": "/x/*"}, "a partitioned table's path is a glob"),
        (SCHEMA, {"sink.max-open-files": "0"}, "not a positive number"),
    ],
)
def test_tables_that_cannot_be_partitioned(harness, schema, more, message):
    with pytest.raises(ConnectorError, match=message):
        harness.connector(schema, {**options("/x"), **more}, role="sink")


async def test_new_partitions_are_found_later(harness, tmp_path):
    """What the filter leaves out stays left out."""
    condition = Call("<>", (InputRef(0, SCHEMA.types[0]), Literal("c", t.VarCharType())), t.BooleanType())
    opts = options(tmp_path, **{"source.monitor-interval": "1 s"})
    opts["partition.filter"] = msgspec.json.encode([[condition]]).decode()
    connector = harness.connector(SCHEMA, opts)
    enumerator = connector.enumerator(TableInfo(SCHEMA, opts))
    ctx, known = harness.ctx(SCHEMA, opts), set()
    assert await enumerator.discover(ctx, known) == []
    seen = []
    for key in "abc":
        (tmp_path / f"k={key}").mkdir()
        (tmp_path / f"k={key}" / "x.json").write_text('{"id": 1}\n')
        found = await enumerator.discover(ctx, known)
        seen.append([split.payload["partition"] for split in found])
        known |= {split.id for split in found}
    assert seen == [[["a"]], [["b"]], []]
