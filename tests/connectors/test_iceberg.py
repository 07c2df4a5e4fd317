"""The connector ``iceberg``: the kits with a SQL catalog, partitions, time travel, streaming, what is refused."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)

from penstock.connectors.base import TableInfo
from penstock.connectors.iceberg import IcebergConnector
from penstock.connectors.iceberg.catalog import load, open_catalog, table_name
from penstock.errors import ConnectorError, PenstockError, UnsupportedError
from penstock.testing import SinkConformance, SourceConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def rows(first: int, last: int) -> list[tuple[int, str]]:
    return [(i, f"name {i}") for i in range(first, last)]


def arrow(found: list[tuple[int, str]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([i for i, _ in found], pa.int64()),
            "name": pa.array([n for _, n in found], pa.string()),
        }
    )


def at(folder: Path, **more: str) -> dict[str, str]:
    return {
        "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}", "catalog-database": "db", "catalog-table": "t", **more,
    }  # fmt: skip


def make(options: dict[str, str], found: Any = None, data: list[list[tuple[int, str]]] = ()) -> Any:
    catalog = open_catalog("default", options)
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(table_name(options), found or arrow([]).schema)
    for part in data:
        table.append(arrow(part))
    return table


def stored(options: dict[str, str]) -> list[tuple[Any, ...]]:
    if not open_catalog("default", options).table_exists(table_name(options)):
        return []
    return sorted(tuple(row.values()) for row in load(options).scan().to_arrow().to_pylist())


class InThisProcess(IcebergConnector):
    """A helper process runs the same code, and takes a while to start: the kit starts a hundred writers."""

    runs = "native"


class TestIcebergSource(SourceConformance):
    schema = SCHEMA

    def connector(self) -> IcebergConnector:
        return InThisProcess()

    def options(self) -> dict[str, str]:
        options = at(self.folder)
        if not open_catalog("default", options).table_exists(table_name(options)):
            make(options, data=[rows(n * 10, n * 10 + 10) for n in range(3)])
        return options

    def expected(self) -> list[tuple[int, str]]:
        return rows(0, 30)

    def live_options(self) -> dict[str, str]:
        options = at(self.folder, streaming="true", **{"monitor-interval": "20 ms"})
        make(options)
        return options

    async def publish(self, options: Any, found: Any) -> None:
        load(options).append(arrow(list(found)))


class TestIcebergSink(SinkConformance):
    schema = SCHEMA

    def connector(self) -> IcebergConnector:
        return InThisProcess()

    def options(self) -> dict[str, str]:
        return at(self.folder, **{"catalog-table": f"t{uuid.uuid4().hex}"})

    def epochs(self) -> list[list[tuple[int, str]]]:
        return [rows(n * 10, n * 10 + 5) for n in range(3)]

    async def visible(self, options: Any) -> list[tuple[Any, ...]]:
        return stored(options)


class Here:
    """Parts of the connector in this process, as a helper process has them."""

    def __init__(self, harness: Any) -> None:
        self._harness = harness
        self._connector = IcebergConnector()

    async def writer(self, schema: Schema, options: Any, restored: Any = (), **more: Any) -> Any:
        writer = self._connector.writer(TableInfo(schema, options))
        await writer.open(self._harness.ctx(schema, options, **more), list(restored))
        return writer

    async def splits(self, schema: Schema, options: Any, known: Any = ()) -> list[Any]:
        enumerator = self._connector.enumerator(TableInfo(schema, options))
        return list(await enumerator.discover(self._harness.ctx(schema, options), set(known)))

    async def read(
        self, schema: Schema, options: Any, splits: Any = None, **more: Any
    ) -> list[tuple[Any, ...]]:
        splits = await self.splits(schema, options) if splits is None else splits
        reader = self._connector.reader(TableInfo(schema, options))
        await reader.open(self._harness.ctx(schema, options, **more))
        reader.add_splits(splits)
        out: list[tuple[Any, ...]] = []
        while len(reader.finished_splits()) < len(splits):
            found = reader.poll()
            if found is None:
                if len(reader.finished_splits()) < len(splits):
                    await reader.wait()
                continue
            out += found.batch.to_pylist()
        await reader.close()
        return out

    async def written(self, schema: Schema, options: Any, batches: Any) -> None:
        self._connector.validate(TableInfo(schema, options), role="sink")
        writer = await self.writer(schema, options)
        for n, batch in enumerate(batches, 1):
            writer.write(Batch.of(schema, batch))
            await writer.begin_checkpoint(n)
            await writer.commit(n)
        await writer.finish()
        await writer.close()


@pytest.fixture
def here(harness: Any) -> Here:
    return Here(harness)


EVERY = Schema.of(
    ("b", t.BooleanType()), ("i8", t.TinyIntType()), ("i16", t.SmallIntType()), ("i32", t.IntType()),
    ("i64", t.BigIntType()), ("f", t.FloatType()), ("d", t.DoubleType()), ("dec", t.DecimalType(12, 3)),
    ("s", t.VarCharType()), ("bin", t.VarBinaryType()), ("day", t.DateType()), ("time", t.TimeType(0)),
    ("ts", t.TimestampType(6)), ("ltz", t.TimestampLtzType(3)), ("a", t.ArrayType(t.IntType())),
    ("m", t.MapType(t.VarCharType(), t.BigIntType())),
    ("r", t.RowType((t.Field("x", t.IntType()), t.Field("y", t.VarCharType())))),
)  # fmt: skip
NOON = datetime.datetime(2026, 2, 3, 12, 30, 15, 123456)
FULL = (
    True, 1, 2, 3, 4, 0.5, 0.25, Decimal("12.345"), "text", b"\x00\xff", datetime.date(2026, 2, 3),
    datetime.time(1, 2, 3), NOON, NOON.replace(microsecond=123000, tzinfo=datetime.UTC), [1, None, 3], {"k": 1},
    (7, "y"),
)  # fmt: skip


async def test_every_type_comes_back(here: Here, tmp_path: Path) -> None:
    empty = tuple(None for _ in FULL)
    await here.written(EVERY, at(tmp_path), [[FULL, empty]])
    want = Batch.of(EVERY, [FULL, empty]).to_pylist()
    assert sorted(await here.read(EVERY, at(tmp_path)), key=repr) == sorted(want, key=repr)
    assert len(load(at(tmp_path)).scan().to_arrow()) == 2


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (t.VarCharType(), ["a b", "ä/=%", None, "x'y", ""]),
        (t.IntType(), [1, -7, None]),
        (t.BooleanType(), [True, False, None]),
        (t.DateType(), [datetime.date(2026, 1, 2), None]),
        (t.TimestampType(6), [NOON, NOON.replace(microsecond=0), None]),
    ],
    ids=str,
)
async def test_partitions_keep_their_values(here: Here, tmp_path: Path, type_: Any, values: Any) -> None:
    schema = Schema.of(("id", t.BigIntType()), ("p", type_))
    options = at(tmp_path, **{"partition.keys": '["p"]'})
    want = [(i, values[i % len(values)]) for i in range(20)]
    await here.written(schema, options, [want[:10], want[10:]])
    table = load(options)
    assert [str(f.transform) for f in table.spec().fields] == ["identity"]
    assert len(table.inspect.files()) == 2 * len(values)
    assert sorted(await here.read(schema, options), key=repr) == sorted(want, key=repr)
    by_iceberg = [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(by_iceberg, key=repr) == sorted(want, key=repr)


@pytest.mark.parametrize(
    ("column", "transform", "condition"),
    [
        ("ts", YearTransform(), "ts >= '2027-01-01T00:00:00'"),
        ("ts", MonthTransform(), "ts >= '2026-04-01T00:00:00'"),
        ("ts", DayTransform(), "ts < '2026-02-04T00:00:00'"),
        ("ts", HourTransform(), "ts = '2026-02-03T12:30:15.123456'"),
        ("id", BucketTransform(4), "id = 7"),
        ("name", BucketTransform(3), "name = 'name 5'"),
        ("id", TruncateTransform(5), "id >= 15"),
        ("name", TruncateTransform(6), "name = 'name 12'"),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
async def test_tables_are_written_by_their_own_partitions(
    here: Here, tmp_path: Path, column: str, transform: Any, condition: str
) -> None:
    """The values are pyiceberg's own; a wrong one would hide rows from whoever reads with a condition."""
    schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("ts", t.TimestampType(6)))
    columns = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us"))])
    want = [(i, f"name {i}", NOON + datetime.timedelta(days=i * 20, hours=i * 7)) for i in range(20)]
    want.append((20, None, None) if column != "id" else (None, "no id", NOON))
    parts = []
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        folder.mkdir()
        options = at(folder)
        with make(options, columns).update_spec() as spec:
            spec.add_field(column, transform, "part")
        if folder.name == "ours":
            await here.written(schema, options, [want])
        else:
            load(options).append(
                pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in want], columns)
            )
        table = load(options)
        files = table.inspect.files().select(["partition", "record_count"]).to_pylist()
        found = table.scan(row_filter=condition).to_arrow().to_pylist()
        assert found
        parts.append((sorted(map(str, files)), sorted(map(str, found))))
    assert parts[0] == parts[1]
    assert sorted(await here.read(schema, at(tmp_path / "ours")), key=repr) == sorted(want, key=repr)


async def test_a_commit_says_which_checkpoint_it_is(here: Here, tmp_path: Path) -> None:
    await here.written(SCHEMA, at(tmp_path), [rows(0, 5), rows(5, 9)])
    table = load(at(tmp_path))
    summary = table.current_snapshot().summary.additional_properties
    assert summary["penstock.job-id"] == "job-1"
    assert summary["penstock.operator-id"] == "op-1"
    assert summary["penstock.checkpoint-id"] == "2"
    assert [v for k, v in table.properties.items() if k.startswith("penstock.committed.")] == ["2"]
    assert len(table.snapshots()) == 2
    assert stored(at(tmp_path)) == rows(0, 9)


async def test_one_commit_a_checkpoint_of_several_writers(here: Here, tmp_path: Path) -> None:
    options = at(tmp_path)
    writers = [await here.writer(SCHEMA, options, parallelism=3, subtask_index=i) for i in range(3)]
    want: list[tuple[int, str]] = []
    for n in range(1, 6):
        for i, writer in enumerate(writers):
            if (n + i) % 3:
                part = rows(n * 100 + i * 10, n * 100 + i * 10 + 3)
                writer.write(Batch.of(SCHEMA, part))
                want += part
        for writer in writers:
            await writer.begin_checkpoint(n)
        await asyncio.gather(*(writer.commit(n) for writer in writers))
        assert stored(options) == sorted(want)
    assert not any(w.needs_commit() for w in writers)
    for writer in writers:
        await writer.close()
    assert len(load(options).snapshots()) == 5


async def test_two_commits_at_one_moment_are_one(here: Here, tmp_path: Path) -> None:
    """pyiceberg's own retry would put the second behind the first."""
    options = at(tmp_path)
    writer = await here.writer(SCHEMA, options)
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    state = await writer.begin_checkpoint(1)
    twins = await asyncio.gather(*(here.writer(SCHEMA, options, state, attempt=n) for n in range(2, 7)))
    await writer.commit(1)
    assert stored(options) == rows(0, 3)
    for one in (writer, *twins):
        await one.close()


async def test_a_zombie_commits_nothing_also_when_its_snapshot_expired(here: Here, tmp_path: Path) -> None:
    options = at(tmp_path)
    zombie = await here.writer(SCHEMA, options)
    zombie.write(Batch.of(SCHEMA, rows(0, 3)))
    state = await zombie.begin_checkpoint(1)
    heir = await here.writer(SCHEMA, options, state, attempt=2)
    heir.write(Batch.of(SCHEMA, rows(3, 6)))
    await heir.begin_checkpoint(2)
    await heir.commit(2)
    table = load(options)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    await zombie.commit(1)
    assert stored(options) == rows(0, 6)
    for one in (zombie, heir):
        await one.close()


async def test_two_subtasks_may_make_the_namespace(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds no namespace, and then that the first has made it."""
    make(at(tmp_path, **{"catalog-table": "other"}))
    there = SqlCatalog.namespace_exists
    answers = iter([False])
    monkeypatch.setattr(SqlCatalog, "namespace_exists", lambda *a: next(answers, None) is None and there(*a))
    await here.written(SCHEMA, at(tmp_path), [rows(0, 3)])
    assert next(answers, None) is None
    assert stored(at(tmp_path)) == rows(0, 3)


async def test_others_may_write_into_the_table(here: Here, tmp_path: Path) -> None:
    options = at(tmp_path)
    writer = await here.writer(SCHEMA, options)
    for n in range(1, 5):
        writer.write(Batch.of(SCHEMA, rows(n * 10, n * 10 + 2)))
        await writer.begin_checkpoint(n)
        await asyncio.gather(
            writer.commit(n),
            asyncio.to_thread(lambda n=n: load(options).append(arrow([(1000 + n, "other")]))),
        )
    await writer.close()
    assert stored(options) == [r for n in range(1, 5) for r in rows(n * 10, n * 10 + 2)] + [
        (1000 + n, "other") for n in range(1, 5)
    ]


# -- reading -------------------------------------------------------------------------------


async def test_time_travel(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(n, n + 1) for n in range(3)])
    second = table.snapshots()[1]
    for key, value in (("snapshot-id", second.snapshot_id), ("as-of-timestamp", second.timestamp_ms)):
        assert sorted(await here.read(SCHEMA, at(tmp_path, **{key: str(value)}))) == rows(0, 2)
    with pytest.raises(ConnectorError, match="no such snapshot"):
        IcebergConnector().validate(TableInfo(SCHEMA, at(tmp_path, **{"snapshot-id": "1"})), role="source")


async def test_a_bounded_read_keeps_its_snapshot(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(0, 5)])
    known = {s.id for s in await here.splits(SCHEMA, at(tmp_path))}
    table.append(arrow(rows(5, 9)))
    assert await here.splits(SCHEMA, at(tmp_path), known) == []


async def test_an_empty_table_has_no_rows(here: Here, tmp_path: Path) -> None:
    make(at(tmp_path))
    assert await here.read(SCHEMA, at(tmp_path)) == []


async def test_deleted_rows_stay_away(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(0, 10)])
    table.delete("id = 3")
    assert sorted(await here.read(SCHEMA, at(tmp_path))) == rows(0, 3) + rows(4, 10)


async def test_columns_are_found_by_their_ids(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(0, 2)])
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", __import__("pyiceberg.types", fromlist=["IntegerType"]).IntegerType())
    schema = Schema.of(("title", t.VarCharType()), ("more", t.IntType()))
    assert sorted(await here.read(schema, at(tmp_path)), key=repr) == [("name 0", None), ("name 1", None)]


@pytest.mark.parametrize(
    ("start", "want"), [(None, rows(0, 4)), ("id", rows(2, 4)), ("timestamp", rows(2, 4))]
)
async def test_streaming_starts_where_it_is_told(here: Here, tmp_path: Path, start: Any, want: Any) -> None:
    table = make(at(tmp_path), data=[rows(n, n + 1) for n in range(3)])
    options = at(tmp_path, streaming="true")
    if start == "id":
        options["start-snapshot-id"] = str(table.snapshots()[1].snapshot_id)
    elif start == "timestamp":
        options["start-snapshot-timestamp"] = str(table.snapshots()[2].timestamp_ms)
    found = await here.splits(SCHEMA, options)
    table.append(arrow(rows(3, 4)))
    for _ in range(2):
        found += await here.splits(SCHEMA, options, {s.id for s in found})
    assert sorted(await here.read(SCHEMA, options, found)) == want


async def test_streaming_refuses_what_takes_rows_away(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(0, 5)])
    options = at(tmp_path, streaming="true")
    known = {s.id for s in await here.splits(SCHEMA, options)}
    table.overwrite(arrow(rows(7, 9)))
    with pytest.raises(UnsupportedError, match="in a streaming read"):
        await here.splits(SCHEMA, options, known)


async def test_expired_snapshots_are_an_error(here: Here, tmp_path: Path) -> None:
    table = make(at(tmp_path), data=[rows(0, 5)])
    options = at(tmp_path, streaming="true")
    known = {s.id for s in await here.splits(SCHEMA, options)}
    for n in range(3):
        table.append(arrow(rows(n, n + 1)))
    for snapshot in table.snapshots()[:-1]:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    with pytest.raises(ConnectorError, match="have expired"):
        await here.splits(SCHEMA, options, known)


async def test_equalities_leave_out_rows(here: Here, tmp_path: Path) -> None:
    make(at(tmp_path), data=[rows(n * 10, n * 10 + 10) for n in range(3)])
    pushed = IcebergConnector().push_down(TableInfo(SCHEMA, at(tmp_path)), columns=(0, 1), equals={0: 15})
    assert await here.read(SCHEMA, at(tmp_path), pushed=pushed) == rows(15, 16)


# -- what is refused -----------------------------------------------------------------------


def refused(schema: Schema, options: dict[str, str], role: Any, key: tuple[str, ...] = ()) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        IcebergConnector().validate(TableInfo(schema, options, primary_key=key), role=role)
    return caught.value


def test_another_schema_is_shown_beside_the_declared_one(tmp_path: Path) -> None:
    make(at(tmp_path), pa.schema([("id", pa.int32()), ("other", pa.string())]))
    for role in ("source", "sink"):
        error = refused(SCHEMA, at(tmp_path), role)
        assert "there is no column 'name'" in error.message
        assert "id BIGINT" in str(error.expected)
        assert error.got == "stored: id int32, other string"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"snapshot-id": "1", "as-of-timestamp": "1"}, "do not go together"),
        ({"snapshot-id": "1", "streaming": "true"}, "do not go together"),
        ({"start-snapshot-id": "1"}, "do not go together"),
        ({"catalog-type": "hive"}, "an Iceberg catalog of the type 'hive'"),
        ({"unknown": "1"}, "unknown option 'unknown'"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, more: dict[str, str], words: str) -> None:
    make(at(tmp_path))
    assert words in refused(SCHEMA, at(tmp_path, **more), "source").message


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "no such Iceberg table" in refused(SCHEMA, at(tmp_path), "source").message
    away = at(tmp_path, uri=f"sqlite:///{tmp_path}/nowhere/catalog.db")
    assert "cannot be reached" in refused(SCHEMA, away, "sink").message


def test_other_partitions_are_refused(tmp_path: Path) -> None:
    make(at(tmp_path))
    assert (
        "partitioned otherwise"
        in refused(SCHEMA, at(tmp_path, **{"partition.keys": '["id"]'}), "sink").message
    )
