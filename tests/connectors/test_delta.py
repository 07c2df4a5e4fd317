"""The connector ``delta``: the kits, partitions, time travel, streaming by versions, and what is refused."""

from __future__ import annotations

import asyncio
import datetime
import json
import threading
import uuid
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.connectors.base import TableInfo
from penstock.connectors.delta import DeltaConnector
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


def stored(path: Any) -> list[tuple[Any, ...]]:
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return sorted(tuple(row.values()) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())


class TestDeltaSource(SourceConformance):
    schema = SCHEMA

    def connector(self) -> DeltaConnector:
        return DeltaConnector()

    def options(self) -> dict[str, str]:
        for n in range(3):
            write_deltalake(str(self.folder), arrow(rows(n * 10, n * 10 + 10)), mode="append")
        return {"connector": "delta", "table-path": str(self.folder)}

    def expected(self) -> list[tuple[int, str]]:
        return rows(0, 30)

    def live_options(self) -> dict[str, str]:
        write_deltalake(str(self.folder), arrow(rows(0, 0)))
        return {
            "connector": "delta", "table-path": str(self.folder), "mode": "streaming",
            "updateCheckIntervalMillis": "20",
        }  # fmt: skip

    async def publish(self, options: Any, found: Any) -> None:
        write_deltalake(options["table-path"], arrow(list(found)), mode="append")


class TestDeltaSink(SinkConformance):
    schema = SCHEMA

    def connector(self) -> DeltaConnector:
        return DeltaConnector()

    def options(self) -> dict[str, str]:
        return {"connector": "delta", "table-path": str(self.folder / uuid.uuid4().hex)}

    def epochs(self) -> list[list[tuple[int, str]]]:
        return [rows(n * 10, n * 10 + 5) for n in range(3)]

    async def visible(self, options: Any) -> list[tuple[Any, ...]]:
        return stored(options["table-path"])


EVERY = Schema.of(
    ("b", t.BooleanType()), ("i8", t.TinyIntType()), ("i16", t.SmallIntType()), ("i32", t.IntType()),
    ("i64", t.BigIntType()), ("f", t.FloatType()), ("d", t.DoubleType()), ("dec", t.DecimalType(12, 3)),
    ("s", t.VarCharType()), ("bin", t.VarBinaryType()), ("day", t.DateType()), ("ts", t.TimestampType(6)),
    ("ltz", t.TimestampLtzType(3)), ("a", t.ArrayType(t.IntType())),
    ("m", t.MapType(t.VarCharType(), t.BigIntType())),
    ("r", t.RowType((t.Field("x", t.IntType()), t.Field("y", t.VarCharType())))),
)  # fmt: skip
NOON = datetime.datetime(2026, 2, 3, 12, 30, 15, 123456)
FULL = (
    True, 1, 2, 3, 4, 0.5, 0.25, Decimal("12.345"), "text", b"\x00\xff", datetime.date(2026, 2, 3), NOON,
    NOON.replace(microsecond=123000, tzinfo=datetime.UTC), [1, None, 3], {"k": 1}, (7, "y"),
)  # fmt: skip


async def written(harness: Any, schema: Schema, options: dict[str, str], batches: list[Any]) -> None:
    DeltaConnector().validate(TableInfo(schema, options), role="sink")
    writer = await harness.writer(schema, options)
    for n, batch in enumerate(batches, 1):
        writer.write(Batch.of(schema, batch))
        await writer.begin_checkpoint(n)
        await writer.commit(n)
    await writer.finish()
    await writer.close()


async def test_every_type_comes_back(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path / "t")}
    empty = tuple(None for _ in FULL)
    await written(harness, EVERY, options, [[FULL, empty]])
    want = Batch.of(EVERY, [FULL, empty]).to_pylist()
    assert sorted(await harness.read_all(EVERY, options), key=repr) == sorted(want, key=repr)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (t.VarCharType(), ["a b", "ä/=%", None, "x'y"]),
        (t.IntType(), [1, -7, None]),
        (t.BooleanType(), [True, False, None]),
        (t.DateType(), [datetime.date(2026, 1, 2), None]),
        (t.DecimalType(8, 2), [Decimal("1.50"), Decimal("-3.00"), None]),
        (t.TimestampType(6), [NOON, NOON.replace(microsecond=0), None]),
        (t.TimestampLtzType(6), [NOON.replace(tzinfo=datetime.UTC), None]),
    ],
    ids=str,
)
async def test_partitions_keep_their_values(harness: Any, tmp_path: Any, type_: Any, values: Any) -> None:
    schema = Schema.of(("id", t.BigIntType()), ("p", type_))
    options = {"connector": "delta", "table-path": str(tmp_path), "partition.keys": '["p"]'}
    want = [(i, values[i % len(values)]) for i in range(20)]
    await written(harness, schema, options, [want[:10], want[10:]])
    log = DeltaTable(str(tmp_path))
    assert log.metadata().partition_columns == ["p"]
    assert len(log.file_uris()) == 2 * len(values)
    assert sorted(await harness.read_all(schema, options), key=repr) == sorted(want, key=repr)
    by_delta = [(row["id"], row["p"]) for row in log.to_pyarrow_table().to_pylist()]
    assert sorted(by_delta, key=repr) == sorted(want, key=repr)


async def test_an_empty_text_as_partition_is_refused(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path), "partition.keys": '["name"]'}
    with pytest.raises(ConnectorError, match="empty text"):
        await written(harness, SCHEMA, options, [[(1, "")]])
    assert stored(tmp_path) == []


async def test_a_commit_says_which_checkpoint_it_is(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    await written(harness, SCHEMA, options, [rows(0, 5), rows(5, 9)])
    last = DeltaTable(str(tmp_path)).history(1)[0]
    assert (last["penstock.job-id"], last["penstock.operator-id"], last["penstock.checkpoint-id"]) == (
        "job-1",
        "op-1",
        "2",
    )
    stats = [json.loads(json.dumps(row)) for row in pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True)).to_pylist()
             for row in [{k: v for k, v in row.items() if k.startswith(("num", "min", "max", "null"))}]]  # fmt: skip
    assert {"num_records": 5, "null_count.id": 0, "min.id": 0, "max.id": 4, "null_count.name": 0,
            "min.name": "name 0", "max.name": "name 4"} in stats  # fmt: skip


async def test_one_commit_a_checkpoint_of_several_writers(harness: Any, tmp_path: Any) -> None:
    """Also when the committer of one checkpoint has nothing in the next, and the first two never complete."""
    options = {"connector": "delta", "table-path": str(tmp_path)}
    writers = [await harness.writer(SCHEMA, options, parallelism=3, subtask_index=i) for i in range(3)]
    want: list[tuple[int, str]] = []
    for n in range(1, 8):
        for i, writer in enumerate(writers):
            if (n + i) % 3:
                part = rows(n * 100 + i * 10, n * 100 + i * 10 + 3)
                writer.write(Batch.of(SCHEMA, part))
                want += part
        for writer in writers:
            await writer.begin_checkpoint(n)
        if n > 2:
            await asyncio.gather(*(writer.commit(n) for writer in writers))
            assert stored(tmp_path) == sorted(want)
    assert not any(w.needs_commit() for w in writers)
    for writer in writers:
        await writer.finish()
        await writer.close()
    # Version 0 made the table; five checkpoints completed.
    assert DeltaTable(str(tmp_path)).version() == 5


async def test_a_later_checkpoint_is_committed_before_an_earlier_one(harness: Any, tmp_path: Any) -> None:
    """The committer of the first is slow, and another writer commits the second."""
    options = {"connector": "delta", "table-path": str(tmp_path)}
    first, second = [await harness.writer(SCHEMA, options, parallelism=2, subtask_index=i) for i in range(2)]
    first.write(Batch.of(SCHEMA, rows(0, 3)))
    second.write(Batch.of(SCHEMA, rows(3, 6)))
    for writer in (first, second):
        await writer.begin_checkpoint(1)
    second.write(Batch.of(SCHEMA, rows(6, 9)))
    for writer in (first, second):
        await writer.begin_checkpoint(2)
    await first.commit(2)
    await second.commit(2)
    await first.commit(1)
    await second.commit(1)
    assert stored(tmp_path) == rows(0, 9)
    for writer in (first, second):
        await writer.close()


async def test_a_zombie_commits_nothing(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    zombie = await harness.writer(SCHEMA, options)
    zombie.write(Batch.of(SCHEMA, rows(0, 3)))
    state = await zombie.begin_checkpoint(1)
    zombie.write(Batch.of(SCHEMA, rows(3, 6)))
    await zombie.begin_checkpoint(2)  # it never completes
    heir = await harness.writer(SCHEMA, options, state, attempt=2)
    heir.write(Batch.of(SCHEMA, rows(3, 6)))
    await heir.begin_checkpoint(3)
    await heir.commit(3)
    await zombie.commit(1)
    await zombie.commit(2)
    assert stored(tmp_path) == rows(0, 6)
    await zombie.close()
    await heir.close()


async def test_a_checkpoint_without_new_files_is_restored_twice(harness: Any, tmp_path: Any) -> None:
    """Its note repeats files that the checkpoint before has committed, and is deleted by the first restore."""
    options = {"connector": "delta", "table-path": str(tmp_path)}
    writer = await harness.writer(SCHEMA, options)
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    await writer.begin_checkpoint(1)
    state = await writer.begin_checkpoint(2)  # the first is complete, and not yet committed
    await writer.commit(1)
    await writer.close()
    for attempt in (2, 3):
        heir = await harness.writer(SCHEMA, options, state, attempt=attempt)
        await heir.close()
    assert stored(tmp_path) == rows(0, 3)


async def test_all_committables_may_come_to_one_writer(harness: Any, tmp_path: Any) -> None:
    """As on Spark, where each task has a number of its own for its attempt."""
    options = {"connector": "delta", "table-path": str(tmp_path)}
    state: list[bytes] = []
    for index, attempt in enumerate((7, 9, 12)):
        more = {"subtask_index": index, "attempt": attempt, "parallelism": index + 1, "gathered": True}
        writer = await harness.writer(SCHEMA, options, **more)
        writer.write(Batch.of(SCHEMA, rows(index * 10, index * 10 + 3)))
        found = await writer.begin_checkpoint(1)
        await writer.close()
        state += found if index != 1 else []  # the second task lost against another
    for _ in range(2):
        committer = await harness.writer(SCHEMA, options, state, attempt=99, gathered=True)
        await committer.close()
    assert stored(tmp_path) == rows(0, 3) + rows(20, 23)


async def test_two_commits_at_one_moment_are_one(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    writer = await harness.writer(SCHEMA, options)
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    state = await writer.begin_checkpoint(1)
    twins = await asyncio.gather(*(harness.writer(SCHEMA, options, state, attempt=n) for n in range(2, 8)))
    await writer.commit(1)
    assert stored(tmp_path) == rows(0, 3)
    for one in (writer, *twins):
        await one.close()


async def test_a_twin_that_commits_between_mark_and_note_is_no_loss(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    writer = await harness.writer(SCHEMA, options)
    writer.write(Batch.of(SCHEMA, rows(0, 3)))
    [item] = await writer.begin_checkpoint(1)
    table = writer._epochs._table
    read, marks = table.committed, []

    def committed_then_overtaken(writer_id: str) -> int | None:
        marks.append(read(writer_id))
        if len(marks) == 1:
            asyncio.run(twin())
        return marks[-1]

    async def twin() -> None:
        other = await harness.writer(SCHEMA, options, [item], attempt=2)  # commits, and deletes the note
        await other.close()

    table.committed = committed_then_overtaken
    await writer.commit(1)
    assert marks[0] is None
    assert marks[-1] == 1
    assert stored(tmp_path) == rows(0, 3)
    await writer.close()


async def test_others_may_write_into_the_table(harness: Any, tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    writer = await harness.writer(SCHEMA, options)
    stop = threading.Event()
    count = 0

    def other() -> None:
        nonlocal count
        while not stop.is_set():
            write_deltalake(str(tmp_path), arrow([(10_000 + count, "other")]), mode="append")
            count += 1

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for n in range(1, 9):
            writer.write(Batch.of(SCHEMA, rows(n * 10, n * 10 + 2)))
            await writer.begin_checkpoint(n)
            await writer.commit(n)
    finally:
        stop.set()
        thread.join()
    await writer.close()
    ours = [row for row in stored(tmp_path) if row[1] != "other"]
    assert ours == [row for n in range(1, 9) for row in rows(n * 10, n * 10 + 2)]
    assert len(stored(tmp_path)) == len(ours) + count


@pytest.mark.parametrize("partitioned", [False, True])
async def test_auto_compaction_changes_no_row_and_no_mark(
    harness: Any, tmp_path: Any, partitioned: bool
) -> None:
    """Every tenth commit of a writer merges files; what was committed before it is known after it."""
    options = {"connector": "delta", "table-path": str(tmp_path), "auto-compaction": "true"}
    schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("at", t.TimestampLtzType(3)))
    if partitioned:
        options["partition.keys"] = '["at"]'
    times = [NOON.replace(microsecond=123000, hour=h, tzinfo=datetime.UTC) for h in (0, 23)] + [None]
    want = [(i, f"name {i}" if i % 7 else None, times[i % 3]) for i in range(132)]
    writer = await harness.writer(schema, options)
    states = {}
    for n in range(1, 23):
        writer.write(Batch.of(schema, want[n * 6 - 6 : n * 6]))
        states[n] = await writer.begin_checkpoint(n)
        await writer.commit(n)
    # Checkpoints before and behind a compaction are handed in again, as after a crash.
    for attempt, n in enumerate((9, 10, 20, 22), 2):
        heir = await harness.writer(schema, options, states[n], attempt=attempt)
        await heir.close()
    await writer.finish()
    await writer.close()
    log = DeltaTable(str(tmp_path))
    made = [entry["operation"] for entry in log.history()]
    assert made.count("OPTIMIZE") == 2
    assert made.count("WRITE") == 22
    # The merged file and those of the two commits behind it, in each partition.
    assert len(log.file_uris()) == 3 * (3 if partitioned else 1)
    by_delta = [tuple(row[name] for name in schema.names) for row in log.to_pyarrow_table().to_pylist()]
    assert sorted(by_delta, key=repr) == sorted(Batch.of(schema, want).to_pylist(), key=repr)
    assert sorted(await harness.read_all(schema, options), key=repr) == sorted(by_delta, key=repr)


# -- reading -------------------------------------------------------------------------------


async def test_time_travel(harness: Any, tmp_path: Any) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), arrow(rows(n, n + 1)), mode="append")
    options = {"connector": "delta", "table-path": str(tmp_path)}
    assert sorted(await harness.read_all(SCHEMA, {**options, "versionAsOf": "1"})) == rows(0, 2)
    then = DeltaTable(str(tmp_path), version=0).history(1)[0]["timestamp"]
    text = datetime.datetime.fromtimestamp(then / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    assert rows(0, 1)[0] in await harness.read_all(SCHEMA, {**options, "timestampAsOf": text})
    with pytest.raises(ConnectorError, match="as of 9"):
        DeltaConnector().validate(TableInfo(SCHEMA, {**options, "versionAsOf": "9"}), role="source")


@pytest.mark.parametrize("mode", ["batch", "streaming"])
async def test_folders_of_others_have_signs_that_the_log_encodes(
    harness: Any, tmp_path: Any, mode: str
) -> None:
    values = ["a b/ä%=", "x%20y", "plain+:", "2026-02-03 12:30:15.123", "'\"{}"]
    found = [(i, value) for i, value in enumerate(values)]
    write_deltalake(str(tmp_path), arrow(found), partition_by=["name"])
    # Spark encodes fewer signs in a folder's name.
    [log] = (tmp_path / "_delta_log").glob("*.json")
    folder = f"name={quote(values[1], safe='')}"
    log.write_text(log.read_text().replace(quote(folder, safe="="), "name=x%20y"))
    (tmp_path / folder).rename(tmp_path / "name=x y")
    options = {"connector": "delta", "table-path": str(tmp_path), "mode": mode}
    if mode == "batch":
        assert sorted(await harness.read_all(SCHEMA, options)) == found
        return
    options["startingVersion"] = "0"
    reader = await harness.reader(SCHEMA, options, await harness.splits(SCHEMA, options))
    batches = await harness.read(reader, rows=len(found))
    assert sorted(row for one in batches for row in one.batch.to_pylist()) == found
    await reader.close()


async def test_a_bounded_read_keeps_its_version(harness: Any, tmp_path: Any) -> None:
    write_deltalake(str(tmp_path), arrow(rows(0, 5)))
    options = {"connector": "delta", "table-path": str(tmp_path)}
    known = {s.id for s in await harness.splits(SCHEMA, options)}
    write_deltalake(str(tmp_path), arrow(rows(5, 9)), mode="append")
    assert await harness.splits(SCHEMA, options, known=known) == []


STREAM = {"mode": "streaming", "updateCheckIntervalMillis": "10"}


@pytest.mark.parametrize(
    ("start", "want"), [(None, rows(0, 4)), ("0", rows(0, 4)), ("2", rows(2, 4)), ("latest", rows(3, 4))]
)
async def test_streaming_starts_where_it_is_told(harness: Any, tmp_path: Any, start: Any, want: Any) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), arrow(rows(n, n + 1)), mode="append")
    options = {"connector": "delta", "table-path": str(tmp_path), **STREAM}
    if start is not None:
        options["startingVersion"] = start
    found = list(await harness.splits(SCHEMA, options))
    write_deltalake(str(tmp_path), arrow(rows(3, 4)), mode="append")
    for _ in range(2):
        found += await harness.splits(SCHEMA, options, known={s.id for s in found})
    reader = await harness.reader(SCHEMA, options, found)
    assert (
        sorted(row for batch in await harness.read(reader, rows=len(want)) for row in batch.batch.to_pylist())
        == want
    )
    await reader.close()


async def test_streaming_refuses_what_takes_rows_away(harness: Any, tmp_path: Any) -> None:
    write_deltalake(str(tmp_path), arrow(rows(0, 5)))
    options = {"connector": "delta", "table-path": str(tmp_path), **STREAM}
    known = {s.id for s in await harness.splits(SCHEMA, options)}
    DeltaTable(str(tmp_path)).delete("id = 3")
    with pytest.raises(UnsupportedError, match="version 1 of the table takes rows away"):
        await harness.splits(SCHEMA, options, known=known)
    with pytest.raises(UnsupportedError):
        await harness.splits(SCHEMA, {**options, "ignoreDeletes": "true"}, known=known)
    again = await harness.splits(SCHEMA, {**options, "ignoreChanges": "true"}, known=known)
    assert len(again) == 2


async def test_streaming_leaves_out_compaction(harness: Any, tmp_path: Any) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), arrow(rows(n, n + 1)), mode="append")
    options = {"connector": "delta", "table-path": str(tmp_path), **STREAM}
    known = {s.id for s in await harness.splits(SCHEMA, options)}
    assert DeltaTable(str(tmp_path)).optimize.compact()["numFilesRemoved"] == 3
    [own] = await harness.splits(SCHEMA, options, known=known)
    assert "path" not in own.payload


async def test_a_version_that_was_cleaned_up_is_an_error(harness: Any, tmp_path: Any) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), arrow(rows(n, n + 1)), mode="append")
    options = {"connector": "delta", "table-path": str(tmp_path), **STREAM, "startingVersion": "1"}
    known = {s.id for s in await harness.splits(SCHEMA, options)}
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(ConnectorError, match="version 1 is no longer in the table's log"):
        await harness.splits(SCHEMA, options, known=known)


async def test_equalities_leave_out_row_groups(harness: Any, tmp_path: Any) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path), arrow(rows(n * 10, n * 10 + 10)), mode="append")
    options = {"connector": "delta", "table-path": str(tmp_path)}
    table = TableInfo(SCHEMA, options)
    pushed = DeltaConnector().push_down(table, columns=(0, 1), equals={0: 15})
    reader = await harness.reader(SCHEMA, options, pushed=pushed)
    found = [row for batch in await harness.read(reader) for row in batch.batch.to_pylist()]
    assert sorted(found) == rows(10, 20)
    await reader.close()


# -- what is refused -----------------------------------------------------------------------


def refused(schema: Schema, options: dict[str, str], role: Any, key: tuple[str, ...] = ()) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        DeltaConnector().validate(TableInfo(schema, options, primary_key=key), role=role)
    return caught.value


def test_another_schema_is_shown_beside_the_declared_one(tmp_path: Any) -> None:
    write_deltalake(str(tmp_path), pa.table({"id": pa.array([1], pa.int32()), "other": ["x"]}))
    options = {"connector": "delta", "table-path": str(tmp_path)}
    for role in ("source", "sink"):
        error = refused(SCHEMA, options, role)
        assert "there is no column 'name'" in error.message
        assert error.expected == "declared: id BIGINT, name VARCHAR(2147483647)" or "id BIGINT" in str(
            error.expected
        )
        assert error.got == "stored: id int32, other string"
    assert "does not hold every BIGINT" in refused(SCHEMA, options, "sink").message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2026-01-01"}, "said twice"),
        ({"versionAsOf": "1", "mode": "streaming"}, "said twice"),
        ({"startingVersion": "1"}, "for streaming"),
        ({"versionAsOf": "-1"}, "not a version"),
        ({"unknown": "1"}, "unknown option 'unknown'"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Any, more: dict[str, str], words: str) -> None:
    write_deltalake(str(tmp_path), arrow(rows(0, 1)))
    options = {"connector": "delta", "table-path": str(tmp_path), **more}
    assert words in refused(SCHEMA, options, "source").message


def test_a_table_that_is_not_there_is_an_error_of_a_source(tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    assert "no Delta table" in refused(SCHEMA, options, "source").message


def test_a_key_needs_a_table_from_which_rows_may_go(tmp_path: Any) -> None:
    write_deltalake(str(tmp_path), arrow(rows(0, 1)), configuration={"delta.appendOnly": "true"})
    options = {"connector": "delta", "table-path": str(tmp_path)}
    assert "takes no upserts" in refused(SCHEMA, options, "sink", ("id",)).message


def test_intervals_are_refused(tmp_path: Any) -> None:
    options = {"connector": "delta", "table-path": str(tmp_path)}
    schema = Schema.of(("days", t.DayTimeIntervalType()))
    assert "cannot be stored" in refused(schema, options, "sink").message


def test_other_partitions_are_refused(tmp_path: Any) -> None:
    write_deltalake(str(tmp_path), arrow(rows(0, 1)), partition_by=["name"])
    options = {"connector": "delta", "table-path": str(tmp_path), "partition.keys": '["id"]'}
    assert "partitioned otherwise" in refused(SCHEMA, options, "sink").message
