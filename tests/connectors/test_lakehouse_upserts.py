"""Upserts and deletions by primary key into Delta and Iceberg tables, as other readers see them; compaction beside them."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.connectors.base import TableInfo
from penstock.connectors.delta import DeltaConnector
from penstock.connectors.iceberg import IcebergConnector
from penstock.connectors.iceberg.catalog import load
from penstock.connectors.iceberg.compaction import Compaction, bins
from penstock.connectors.lakehouse.keys import KIND, KeyRanges, last_changes, rows_with
from penstock.connectors.lakehouse.table import StoredFile
from penstock.errors import ConnectorError, PenstockError
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(
    ("id", t.BigIntType(nullable=False)), ("part", t.VarCharType(nullable=False)), ("v", t.BigIntType())
)
#: What the libraries say when another commit came first.
LOST = ("branch main has changed", "concurrent", "updated by")
INSERT, BEFORE, AFTER, DELETE = range(4)


class Delta:
    """A Delta table; rows are read by delta-rs."""

    connector = DeltaConnector()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def options(self, **more: str) -> dict[str, str]:
        return {"connector": "delta", "table-path": str(self._folder / "t"), **more}

    def rows(self) -> list[tuple[Any, ...]]:
        found = DeltaTable(str(self._folder / "t")).to_pyarrow_table(columns=["id", "part", "v"])
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def by_duckdb(self) -> list[tuple[Any, ...]]:
        import duckdb

        files = DeltaTable(str(self._folder / "t")).file_uris()
        sql = f"SELECT id, v FROM read_parquet({files!r}) ORDER BY id"
        return [tuple(row) for row in duckdb.sql(sql).fetchall()]

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self._folder / "t"), arrow(rows), mode="append")

    def compact(self) -> None:
        self.connector.procedures[0].run(self.options(), {})

    def files(self) -> int:
        return len(DeltaTable(str(self._folder / "t")).file_uris())

    def data(self) -> list[Path]:
        return sorted((self._folder / "t").rglob("*.parquet"))

    def notes(self) -> list[Path]:
        return [p for p in (self._folder / "t" / "_penstock").rglob("*") if p.is_file()]


class Iceberg:
    """An Iceberg table of a SQL catalog; rows are read by pyiceberg."""

    connector = IcebergConnector()

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def options(self, **more: str) -> dict[str, str]:
        return {
            "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{self._folder}/catalog.db",
            "warehouse": f"file://{self._folder}", "catalog-database": "db", "catalog-table": "t", **more,
        }  # fmt: skip

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in load(self.options()).scan().to_arrow().to_pylist())

    def by_duckdb(self) -> list[tuple[Any, ...]]:
        import duckdb

        files = [task.file.file_path for task in load(self.options()).scan().plan_files()]
        sql = f"SELECT id, v FROM read_parquet({files!r}) ORDER BY id"
        return [tuple(row) for row in duckdb.sql(sql).fetchall()]

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        table = load(self.options())
        table.append(arrow(rows).cast(table.schema().as_arrow()))

    def compact(self) -> None:
        names = {p.name: p for p in self.connector.procedures}
        names["rewrite_data_files"].run(self.options(), {"min_input_files": 2})

    def files(self) -> int:
        return len(list(load(self.options()).scan().plan_files()))

    def data(self) -> list[Path]:
        return sorted(self._folder.rglob("*.parquet"))

    def notes(self) -> list[Path]:
        return [p for p in self._folder.rglob("penstock/**/*") if p.is_file()]


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: Any, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    ids, parts, values = zip(*rows, strict=True)
    types = [("id", pa.int64(), False), ("part", pa.string(), False), ("v", pa.int64(), True)]
    schema = pa.schema([pa.field(n, t, nullable=null) for n, t, null in types])
    return pa.table([pa.array(ids), pa.array(parts), pa.array(values, pa.int64())], schema=schema)


async def writer_of(harness: Any, lake: Any, restored: Any = (), keys: Any = (0,), **more: Any) -> Any:
    options = {**lake.options(), **more.pop("options", {})}
    names = [SCHEMA.names[k] for k in keys]
    lake.connector.validate(TableInfo(SCHEMA, options, primary_key=names), role="sink")
    writer = lake.connector.writer(TableInfo(SCHEMA, options))
    await writer.open(harness.ctx(SCHEMA, options, pushed={"keys": list(keys)}, **more), list(restored))
    return writer


def changes(*rows: tuple[int, int, str, Any]) -> Batch:
    return Batch.of(SCHEMA, [row[1:] for row in rows], kinds=[row[0] for row in rows])


async def checkpoint(writer: Any, number: int) -> Any:
    state = await writer.begin_checkpoint(number)
    await writer.commit(number)
    return state


async def written(writer: Any) -> None:
    for _ in range(60_000):
        if not writer._queue:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"the writer has not taken {writer._queue}: {writer._failure}")


async def ended(writer: Any) -> None:
    await writer.finish()
    await writer.close()


async def test_readers_see_the_last_row_of_each_key(harness: Any, lake: Any) -> None:
    writer = await writer_of(harness, lake)
    writer.write(changes((INSERT, 1, "a", 10), (INSERT, 2, "b", 20), (INSERT, 3, "a", 30)))
    await checkpoint(writer, 1)
    # An update, one with its old row, a deletion, a deletion of a row that is not there, a key that comes and goes.
    writer.write(changes((AFTER, 1, "a", 11), (BEFORE, 2, "b", 20), (AFTER, 2, "c", 21)))
    writer.write(changes((DELETE, 3, "a", 30), (DELETE, 9, "a", 0), (INSERT, 4, "a", 1), (DELETE, 4, "a", 1)))
    await checkpoint(writer, 2)
    assert lake.rows() == [(1, "a", 11), (2, "c", 21)]
    writer.write(changes((DELETE, 1, "a", 11), (INSERT, 1, "z", None), (INSERT, 3, "a", 31)))
    await checkpoint(writer, 3)
    await ended(writer)
    assert lake.rows() == [(1, "z", None), (2, "c", 21), (3, "a", 31)]
    assert lake.by_duckdb() == [(1, None), (2, 21), (3, 31)]
    assert lake.notes() == []


async def test_a_table_can_become_empty_and_full_again(harness: Any, lake: Any) -> None:
    writer = await writer_of(harness, lake)
    for number, rows in enumerate(([(INSERT, 1, "a", 1)], [(DELETE, 1, "a", 1)], [(INSERT, 1, "a", 2)]), 1):
        writer.write(changes(*rows))
        await checkpoint(writer, number)
        assert lake.rows() == [row[1:] for row in rows if row[0] == INSERT]
    await ended(writer)


async def test_partitions_and_keys_of_two_columns(harness: Any, lake: Any) -> None:
    """A key of two columns is another if one of them is; an update may move a row to another partition."""
    options = {"partition.keys": '["part"]'}
    writer = await writer_of(harness, lake, keys=(0, 1), options=options)
    writer.write(changes((INSERT, 1, "a", 1), (INSERT, 1, "b", 2), (INSERT, 2, "a", 3)))
    await checkpoint(writer, 1)
    writer.write(changes((AFTER, 1, "b", 4), (DELETE, 2, "a", 3)))
    await checkpoint(writer, 2)
    await ended(writer)
    assert lake.rows() == [(1, "a", 1), (1, "b", 4)]
    mover = await writer_of(harness, lake, options=options, attempt=2)
    mover.write(changes((AFTER, 1, "c", 5)))
    await checkpoint(mover, 3)
    await ended(mover)
    assert lake.rows() == [(1, "c", 5)]


async def test_several_epochs_in_one_commit_apply_in_their_order(harness: Any, lake: Any) -> None:
    """Checkpoint 1 is never committed by itself: its rows are changed by those of checkpoint 2 in one commit."""
    writer = await writer_of(harness, lake)
    writer.write(changes((INSERT, 1, "a", 1), (INSERT, 2, "a", 1)))
    await writer.begin_checkpoint(1)
    writer.write(changes((AFTER, 1, "a", 2), (INSERT, 3, "a", 2)))
    await checkpoint(writer, 2)
    await writer.commit(1)
    await ended(writer)
    assert lake.rows() == [(1, "a", 2), (2, "a", 1), (3, "a", 2)]


async def test_parts_of_one_epoch_apply_in_their_order(harness: Any, lake: Any) -> None:
    """More changes than memory should hold are written in parts."""
    writer = await writer_of(harness, lake)
    writer._files._most_bytes = 1
    for value in range(5):
        writer.write(changes((AFTER, 1, "a", value), (INSERT, 10 + value, "a", value)))
        await written(writer)
    writer.write(changes((DELETE, 12, "a", 2)))
    await checkpoint(writer, 1)
    await ended(writer)
    assert lake.rows() == [(1, "a", 4), *((10 + n, "a", n) for n in (0, 1, 3, 4))]


async def test_a_repeated_or_late_commit_changes_nothing(harness: Any, lake: Any) -> None:
    """A zombie, a twin restored from the same checkpoint, and a crash between the files and the commit."""
    first = await writer_of(harness, lake)
    first.write(changes((INSERT, 1, "a", 1), (INSERT, 2, "a", 1)))
    state = await first.begin_checkpoint(1)  # killed here
    heir = await writer_of(harness, lake, state, attempt=2)
    assert lake.rows() == [(1, "a", 1), (2, "a", 1)]
    heir.write(changes((AFTER, 1, "a", 2), (DELETE, 2, "a", 1)))
    later = await checkpoint(heir, 2)
    await first.commit(1)
    assert lake.rows() == [(1, "a", 2)]
    heir.write(changes((AFTER, 1, "a", 3)))
    await checkpoint(heir, 3)
    twin = await writer_of(harness, lake, later, attempt=3)
    assert lake.rows() == [(1, "a", 3)]
    for writer in (first, heir, twin):
        await writer.close()


async def test_three_writers_make_one_commit(harness: Any, lake: Any) -> None:
    """Keys are spread over the writers; the table is compared with a dict after each checkpoint."""
    chance = random.Random(5)
    writers = [await writer_of(harness, lake, parallelism=3, subtask_index=i) for i in range(3)]
    want: dict[int, tuple[int, str, int]] = {}
    for number in range(1, 7):
        for key in chance.choices(range(30), k=25):
            if key in want and chance.random() < 0.4:
                writers[key % 3].write(changes((DELETE, *want.pop(key))))
            else:
                kind = AFTER if key in want else INSERT
                want[key] = key, chance.choice("abc"), number
                writers[key % 3].write(changes((kind, *want[key])))
        for writer in writers:
            await writer.begin_checkpoint(number)
        await asyncio.gather(*(writer.commit(number) for writer in writers))
        assert lake.rows() == sorted(want.values())
    for writer in writers:
        await ended(writer)


async def test_upserts_beside_other_writers_and_compactions(harness: Any, lake: Any) -> None:
    """Another writer appends and a compaction moves rows all the while. No row of either is lost, and a compaction brings none
    back."""
    writer = await writer_of(harness, lake)
    writer.write(changes(*((INSERT, n, "a", 0) for n in range(20))))
    await checkpoint(writer, 1)
    failures: list[Exception] = []
    appended: list[tuple[Any, ...]] = []

    def others() -> None:
        for number in range(1000, 1008):
            try:
                lake.append([(number, "other", number)])
                appended.append((number, "other", number))
            except Exception as err:  # a lost race of the other writer is its own affair
                if not any(word in str(err).lower() for word in LOST):
                    failures.append(err)
                    return
            try:
                lake.compact()
            except PenstockError:
                pass  # another commit came between: it says so, and the table is as it was

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for number in range(2, 8):
            writer.write(
                changes((AFTER, 1, "a", number), (DELETE, number, "a", 0), (INSERT, 100 + number, "b", 1))
            )
            await checkpoint(writer, number)
    finally:
        await asyncio.to_thread(thread.join)
    await ended(writer)
    assert failures == []
    own = [
        (1, "a", 7),
        *((n, "a", 0) for n in range(20) if n not in range(1, 8)),
        *((100 + n, "b", 1) for n in range(2, 8)),
    ]
    assert lake.rows() == sorted([*own, *appended])


async def test_compaction_leaves_the_rows_and_fewer_files(harness: Any, lake: Any) -> None:
    writer = await writer_of(harness, lake, options={"partition.keys": '["part"]'})
    for number in range(1, 7):
        writer.write(changes((INSERT, number, "a", number), (INSERT, 10 + number, "b", number)))
        await checkpoint(writer, number)
    await ended(writer)
    before = lake.rows()
    assert lake.files() == 12
    lake.compact()
    assert (lake.files(), lake.rows()) == (2, before)


async def test_a_sink_compacts_by_option(harness: Any, tmp_path: Path) -> None:
    """The snapshot says ``replace``, so that streaming readers leave it out."""
    lake = Iceberg(tmp_path)
    options = {
        "flink-maintenance.rewrite.enabled": "true", "flink-maintenance.rewrite.schedule.commit-count": "5",
    }  # fmt: skip
    writer = await writer_of(harness, lake, options=options)
    for number in range(1, 6):
        writer.write(changes((INSERT, number, "a", number)))
        await checkpoint(writer, number)
    await ended(writer)
    snapshots = load(lake.options()).snapshots()
    assert [s.summary.operation.value for s in snapshots] == [*["append"] * 5, "replace"]
    assert lake.files() == 1
    assert lake.rows() == [(n, "a", n) for n in range(1, 6)]
    assert load(lake.options()).schema().identifier_field_names() == {"id"}


async def test_orphans_of_a_crashed_writer_are_removed(harness: Any, tmp_path: Path) -> None:
    lake = Iceberg(tmp_path)
    writer = await writer_of(harness, lake)
    writer.write(changes((INSERT, 1, "a", 1)))
    await checkpoint(writer, 1)
    writer.write(changes((AFTER, 1, "a", 2), (INSERT, 2, "a", 2)))
    await writer.begin_checkpoint(2)  # killed here, and started anew without its state
    assert len(lake.data()) == 2
    procedure = {p.name: p for p in lake.connector.procedures}["remove_orphan_files"]
    assert procedure.run(lake.options(), {}) == (0,), "files younger than three days stay"
    later = 2**42  # all others: a data file, and for each of two checkpoints its note and that of its keys
    assert procedure.run(lake.options(), {"older_than": later, "dry_run": True}) == (5,)
    assert procedure.run(lake.options(), {"older_than": later}) == (5,)
    assert len(lake.data()) == 1
    assert (lake.rows(), lake.notes()) == ([(1, "a", 1)], [])
    await writer.close()


@pytest.mark.parametrize("lake", [Delta, Iceberg], indirect=True)
def test_keys_of_floats_are_refused(lake: Any) -> None:
    schema = Schema.of(("x", t.DoubleType(nullable=False)), ("v", t.IntType()))
    with pytest.raises(ConnectorError, match="cannot be in the primary key"):
        lake.connector.validate(TableInfo(schema, lake.options(), primary_key=("x",)), role="sink")


def test_iceberg_appends_where_it_is_told_to(tmp_path: Path) -> None:
    lake = Iceberg(tmp_path)
    for options, modes in (({}, ("append", "upsert")), ({"upsert-enabled": "false"}, ("append",))):
        info = TableInfo(SCHEMA, lake.options(**options), primary_key=("id",))
        assert lake.connector.sink_modes(info) == modes
        assert lake.connector.sink_shuffle(info) == (("id",) if len(modes) == 2 else None)
    with pytest.raises(ConnectorError, match="without a primary key"):
        lake.connector.validate(TableInfo(SCHEMA, lake.options(**{"upsert-enabled": "true"})), role="sink")


# -- pure parts ----------------------------------------------------------------------------


def test_the_last_change_of_each_key() -> None:
    rows = pa.table(
        {"k": [1, 2, 1, 3, 2], "v": ["a", "b", "c", "d", "e"], KIND: pa.array([0, 0, 2, 0, 3], pa.uint8())}
    )
    last, keys = last_changes(rows, ["k"])
    assert last.to_pylist() == [{"k": 1, "v": "c"}, {"k": 3, "v": "d"}]
    assert sorted(keys.column("k").to_pylist()) == [1, 2, 3]


def test_rows_with_changed_keys() -> None:
    found = pa.table({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"]})
    gone = pa.table({"a": [1, 2], "b": ["x", "y"]})
    assert rows_with(found, gone, ["a", "b"]).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("bounds", "may"),
    [
        ({}, True),
        ({"k": (1, 4)}, False),
        ({"k": (1, 5)}, True),
        ({"k": (6, 8)}, False),
        ({"k": (9, 30)}, True),
        ({"k": (10, 30)}, False),
        ({"k": (5, 5), "s": ("c", "d")}, False),
        ({"k": (5, 5), "s": ("a", "b")}, True),
    ],
)
def test_bounds_leave_files_out(bounds: Any, may: bool) -> None:
    gone = pa.table({"k": [9, 5], "s": ["b", "b"]})
    assert KeyRanges(gone, ["k", "s"]).may_have(bounds) is may


def test_bins_are_of_one_partition_and_not_too_large() -> None:
    def file(name: str, size: int, part: str, version: str = "") -> StoredFile:
        return StoredFile(name, size, part, {}, None, version)

    files = [file(f"a{n}", 30, "a") for n in range(7)] + [file("big", 90, "a"), file("b", 1, "b")]
    files += [file(f"d{n}", 90, "d", "deletes") for n in range(2)]
    found = bins(files, Compaction(100, least_files=2))
    assert [[f.path for f in group] for group in found] == [["a0", "a1", "a2"], ["a3", "a4", "a5"]]
