"""Files of the filesystem sink that grow over checkpoints, are compressed, and partitions that are committed."""

import datetime
import os
import re
from collections import namedtuple
from pathlib import Path

import pytest

from penstock.connectors.filesystem.committables import GrowingFile, OpenPartition, PendingFile, encode
from penstock.connectors.filesystem.partition_commit import END_OF_TIME, PartitionCommits
from penstock.connectors.filesystem.partition_time import PartitionTimes
from penstock.connectors.filesystem.partitions import Partitioning
from penstock.connectors.filesystem.rolling import RollingPolicy
from penstock.connectors.filesystem.settings import OPTIONS
from penstock.connectors.filesystem.sink import FileSink
from penstock.connectors.registry import table_info, validate_table
from penstock.errors import ConnectorError, UnsupportedError
from penstock.jobgraph import Hash
from penstock.runtime.partitioners import make_partitioner
from penstock.spark.coverage import check_streaming
from penstock.sql.scripts import plan_script
from penstock.types import Batch, Schema
from penstock.types import logical as t

Place = namedtuple("Place", "subtask_index parallelism max_parallelism")
PLAIN = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
DATED = Schema.of(("id", t.BigIntType()), ("day", t.VarCharType()), ("hr", t.IntType()))
ROLLING = "sink.rolling-policy."
COMMIT = "sink.partition-commit."
EXTRACTOR = "partition.time-extractor."


def rows(first, last):
    return [(i, f"name-{i}") for i in range(first, last)]


def options(folder, **more):
    return {"connector": "filesystem", "path": str(folder), "format": "json", **more}


def shown(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("part-*"))


class Clock:
    now = 1_000

    def __call__(self):
        return self.now


async def written(writer):
    """The rows are in their file, so that the clock may move on."""
    while writer._queue:
        await writer.ctx.run(lambda: None)


async def checkpoint(writer, number):
    state = await writer.begin_checkpoint(number)
    await writer.commit(number)
    return state


@pytest.mark.parametrize("format_", ["json", "csv", "raw"])
async def test_a_file_of_lines_grows_over_checkpoints_until_its_time(harness, tmp_path, format_):
    clock = Clock()
    schema = Schema.of(("name", t.VarCharType())) if format_ == "raw" else PLAIN
    lines = [("a",), ("b",), ("c",), ("d",)] if format_ == "raw" else rows(0, 4)
    opts = options(tmp_path, **{"format": format_, f"{ROLLING}rollover-interval": "10 s"})
    writer = await harness.writer(schema, opts, now_ms=clock)
    for number, line in enumerate(lines, 1):
        assert shown(tmp_path) == []
        writer.write(Batch.of(schema, [line]))
        await written(writer)
        clock.now += 3_000
        await checkpoint(writer, number)
    assert len(shown(tmp_path)) == 1
    assert await harness.read_all(schema, opts) == lines
    assert os.listdir(tmp_path / "_growing") == os.listdir(tmp_path / "_pending") == []
    assert not writer.needs_commit()
    await writer.close()


@pytest.mark.parametrize(
    ("more", "files"),
    [
        ({f"{ROLLING}inactivity-interval": "3 s"}, [0, 0, 1]),
        ({f"{ROLLING}rollover-interval": "1 h", f"{ROLLING}file-size": "100 b"}, [0, 1, 1]),
        ({f"{ROLLING}rollover-interval": "1 h"}, [0, 0, 0]),
        ({f"{ROLLING}rollover-interval": "1 h", "format": "parquet"}, [1, 2, 3]),
    ],
)
async def test_the_bound_that_comes_first_ends_a_file(harness, tmp_path, more, files):
    clock, found = Clock(), []
    writer = await harness.writer(PLAIN, options(tmp_path, **more), now_ms=clock)
    for number, wait in enumerate((1_000, 4_000, 0), 1):
        writer.write(Batch.of(PLAIN, rows(number * 3, number * 3 + 3)))
        await checkpoint(writer, number)
        clock.now += wait
        found.append(len(shown(tmp_path)))
    assert found == files
    writer.watermark(END_OF_TIME)
    await checkpoint(writer, 4)
    assert sorted(await harness.read_all(PLAIN, options(tmp_path, **more))) == rows(3, 12)
    assert not writer.needs_commit()
    await writer.close()


async def test_rows_behind_the_end_of_a_files_time_are_in_the_next_file(harness, tmp_path):
    clock = Clock()
    opts = options(tmp_path, **{f"{ROLLING}rollover-interval": "5 s", f"{ROLLING}check-interval": "1 s"})
    writer = await harness.writer(PLAIN, opts, now_ms=clock)
    for n in range(3):
        writer.write(Batch.of(PLAIN, rows(n, n + 1)))
        await written(writer)
        clock.now += 5_000
    await checkpoint(writer, 1)
    sizes = [len((tmp_path / name).read_text().splitlines()) for name in shown(tmp_path)]
    assert sizes == [1, 1, 1]
    await writer.close()


async def test_a_growing_file_outlives_its_writer(harness, tmp_path):
    opts = options(tmp_path, **{f"{ROLLING}rollover-interval": "1 h"})
    writer = await harness.writer(PLAIN, opts)
    writer.write(Batch.of(PLAIN, rows(0, 3)))
    await checkpoint(writer, 1)
    writer.write(Batch.of(PLAIN, rows(3, 5)))
    state = await writer.begin_checkpoint(2)  # complete, and the writer did not hear of it
    writer.write(Batch.of(PLAIN, rows(5, 9)))
    await writer.close()
    for attempt in (2, 3):  # the second dies before it has written anything
        writer = await harness.writer(PLAIN, opts, state, attempt=attempt)
        assert shown(tmp_path) == []
    writer.write(Batch.of(PLAIN, rows(5, 6)))
    state = await checkpoint(writer, 3)
    assert await harness.read_all(PLAIN, opts) == rows(0, 5)
    assert len(shown(tmp_path)) == 1
    writer.watermark(END_OF_TIME)
    state = await checkpoint(writer, 4)
    again = await harness.writer(PLAIN, opts, state, attempt=4)
    assert sorted(await harness.read_all(PLAIN, opts)) == rows(0, 6)
    assert os.listdir(tmp_path / "_growing") == []
    await writer.close()
    await again.close()


async def test_a_file_that_grew_over_a_checkpoint_nobody_heard_of_is_shown(harness, tmp_path):
    clock = Clock()
    opts = options(tmp_path, **{f"{ROLLING}rollover-interval": "1 s"})
    writer = await harness.writer(PLAIN, opts, now_ms=clock)
    writer.write(Batch.of(PLAIN, rows(0, 2)))
    await writer.begin_checkpoint(1)  # its completion comes with that of the next one
    clock.now += 1_000
    await checkpoint(writer, 2)
    assert await harness.read_all(PLAIN, opts) == rows(0, 2)
    await writer.close()


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd", "lz4"])
async def test_compressed_files_are_read_again_also_when_they_grew(harness, tmp_path, compression):
    opts = options(tmp_path, **{"sink.compression": compression, f"{ROLLING}rollover-interval": "1 h"})
    writer = await harness.writer(PLAIN, opts)
    for number in (1, 2):
        writer.write(Batch.of(PLAIN, rows(number * 5_000, number * 5_000 + 5_000)))
        await checkpoint(writer, number)
    writer.watermark(END_OF_TIME)
    await checkpoint(writer, 3)
    (name,) = shown(tmp_path)
    assert (tmp_path / name).stat().st_size < 100_000, "380 kB of JSON"
    read = {k: v for k, v in opts.items() if not k.startswith("sink.")}
    assert await harness.read_all(PLAIN, read) == rows(5_000, 15_000)
    await writer.close()


def partitioned(folder, **more):
    return options(
        folder, **{"partition.keys": '["day", "hr"]', f"{COMMIT}policy.kind": "success-file", **more}
    )


BY_TIME = {
    f"{COMMIT}trigger": "partition-time",
    f"{COMMIT}delay": "1 h",
    f"{EXTRACTOR}timestamp-pattern": "$day $hr:00:00",
}


def us(hour, minute=0):
    return int(datetime.datetime(2024, 1, 1, hour, minute, tzinfo=datetime.UTC).timestamp() * 1_000_000)


def success(folder, name="_SUCCESS"):
    return sorted(path.parent.name for path in Path(folder).rglob(name))


async def test_a_partition_is_committed_when_the_watermark_has_passed_it(harness, tmp_path):
    opts = partitioned(tmp_path, **BY_TIME)
    validate_table(DATED, opts, role="sink", where="table 't'")
    writer = await harness.writer(DATED, opts)
    writer.write(Batch.of(DATED, [(1, "2024-01-01", 7), (2, "2024-01-01", 8)]))
    writer.watermark(us(8))
    await checkpoint(writer, 1)
    assert success(tmp_path) == [], "the watermark must be beyond, not at, the time and the delay"
    writer.watermark(us(8, 1))
    state = await writer.begin_checkpoint(2)
    writer.watermark(us(9, 1))  # behind the barrier
    await writer.commit(2)
    assert success(tmp_path) == ["hr=7"]
    (tmp_path / "day=2024-01-01/hr=7/_SUCCESS").unlink()
    writer.write(Batch.of(DATED, [(3, "2024-01-01", 7)]))
    await checkpoint(writer, 3)
    assert success(tmp_path) == ["hr=7", "hr=8"], "a late row commits its partition again"
    await writer.close()
    # What the second checkpoint had not told anybody yet is told by the next attempt.
    for path in tmp_path.rglob("_SUCCESS"):
        path.unlink()
    writer = await harness.writer(DATED, opts, state, attempt=2)
    writer.watermark(us(9, 1))
    await checkpoint(writer, 4)
    assert success(tmp_path) == ["hr=7", "hr=8"]
    assert not writer.needs_commit()
    await writer.close()


async def test_the_end_of_input_commits_all_partitions_and_ends_their_files(harness, tmp_path):
    opts = partitioned(
        tmp_path, **BY_TIME, **{f"{ROLLING}rollover-interval": "1 h", f"{COMMIT}success-file.name": "_done"}
    )
    writer = await harness.writer(DATED, opts)
    writer.write(Batch.of(DATED, [(1, "2024-01-01", 7), (2, "2024-01-01", 8)]))
    writer.watermark(us(8, 1))
    await checkpoint(writer, 1)
    assert [name.split("/")[1] for name in shown(tmp_path)] == ["hr=7"], (
        "a committed partition's files are shown"
    )
    assert success(tmp_path, "_done") == ["hr=7"]
    writer.watermark(END_OF_TIME)
    assert writer.needs_commit()
    await checkpoint(writer, 2)
    assert success(tmp_path, "_done") == ["hr=7", "hr=8"]
    assert len(shown(tmp_path)) == 2
    assert not writer.needs_commit()
    await writer.close()


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_a_restored_partition_goes_to_the_subtask_that_gets_its_rows(tmp_path, parallelism) -> None:
    given = partitioned(tmp_path, **BY_TIME)
    table = table_info(DATED, given)
    split = make_partitioner(Hash((1, 2)), subtask_index=0, channels=parallelism, max_parallelism=128)
    writer = FileSink(table)
    for hour in range(24):
        row = Batch.of(DATED, [(hour, "2024-01-01", hour)])
        (want,) = [channel for channel, _ in split.partition(row)]
        items = [
            OpenPartition(f"day=2024-01-01/hr={hour}", 0),
            GrowingFile(f"day=2024-01-01/hr={hour}", (), 0, 0, 0),
        ]
        for number, item in enumerate(items):
            takers = [
                i
                for i in range(parallelism)
                if writer.takes(Place(i, parallelism, 128), number, encode(item))
            ]
            assert takers == [want]
    shown_file = encode(PendingFile(1, "a", "b"))
    takers = [i for i in range(parallelism) if writer.takes(Place(i, parallelism, 128), 7, shown_file)]
    assert takers == [7 % parallelism]


def test_process_time_commits_by_the_first_row_and_the_delay() -> None:
    commits = PartitionCommits(None, 5_000)
    commits.wrote("k=1", 1_000)
    commits.wrote("k=1", 4_000)
    commits.wrote("k=2", 3_000)
    assert commits.cut(1, 0, 5_999, ended=False) == set()
    assert commits.cut(2, 0, 6_000, ended=False) == {"k=1"}
    assert commits.due(1) == []
    assert commits.due(2) == ["k=1"]
    commits.committed(2)
    assert [p.folder for p in commits.state()] == ["k=2"]
    assert commits.cut(3, 0, 0, ended=True) == {"k=2"}


TOLD = []


class Teller:
    def __init__(self, *words):
        self.words = words

    def commit(self, context):
        TOLD.append((self.words, context.partition_path, context.partition_spec))


class NextDay:
    def extract(self, keys, values):
        assert keys == ["day", "hr"]
        return datetime.datetime.fromisoformat(values[0]) + datetime.timedelta(days=1)


async def test_classes_of_the_user_commit_partitions_and_know_their_times(harness, tmp_path):
    here = "python:tests.connectors.test_filesystem_rolling"
    opts = partitioned(tmp_path, **{
        f"{COMMIT}policy.kind": "custom, success-file", f"{COMMIT}policy.class": f"{here}:Teller",
        f"{COMMIT}policy.class.parameters": "a;b", f"{COMMIT}trigger": "partition-time",
        f"{EXTRACTOR}kind": "custom", f"{EXTRACTOR}class": f"{here.removeprefix('python:')}:NextDay",
    })  # fmt: skip
    validate_table(DATED, opts, role="sink", where="table 't'")
    writer = await harness.writer(DATED, opts)
    writer.write(Batch.of(DATED, [(1, "2023-12-31", 7)]))
    writer.watermark(us(0) - 1)
    await checkpoint(writer, 1)
    assert TOLD == []
    writer.watermark(us(0, 1))
    await checkpoint(writer, 2)
    assert [(("a", "b"), f"{tmp_path}/day=2023-12-31/hr=7", {"day": "2023-12-31", "hr": "7"})] == TOLD
    assert success(tmp_path) == ["hr=7"]
    await writer.close()


@pytest.mark.parametrize(
    ("more", "folder", "want"),
    [
        ({}, "day=2024-01-01/hr=7", (2024, 1, 1, 0)),
        ({f"{EXTRACTOR}timestamp-pattern": "$day $hr:00:00"}, "day=2024-01-01/hr=7", (2024, 1, 1, 7)),
        ({f"{EXTRACTOR}timestamp-pattern": "$day$hr", f"{EXTRACTOR}timestamp-formatter": "yyyyMMddHH"}, "day=20240101/hr=07", (2024, 1, 1, 7)),
        ({f"{EXTRACTOR}timestamp-pattern": "$day $hr:00:00", f"{COMMIT}watermark-time-zone": "Asia/Shanghai"}, "day=2024-01-01/hr=7", (2023, 12, 31, 23)),
    ],
)  # fmt: skip
def test_the_time_of_a_partition(more, folder, want) -> None:
    given = partitioned("/x", **more)
    times = PartitionTimes.of(OPTIONS.read(given), Partitioning.of(table_info(DATED, given)))
    assert times.instant_ms(folder) == datetime.datetime(*want, tzinfo=datetime.UTC).timestamp() * 1000


async def test_a_partition_without_a_time_is_an_error(harness, tmp_path):
    writer = await harness.writer(DATED, partitioned(tmp_path, **BY_TIME))
    writer.write(Batch.of(DATED, [(1, None, 7)]))
    with pytest.raises(ConnectorError, match="'day=__DEFAULT_PARTITION__/hr=7' has no time"):
        await writer.begin_checkpoint(1)
    await writer.close()


@pytest.mark.parametrize(
    ("schema", "more", "word"),
    [
        (PLAIN, {f"{COMMIT}policy.kind": "success-file"}, "without partitions"),
        (DATED, {f"{COMMIT}policy.kind": "metastore"}, "metastore"),
        (DATED, {f"{COMMIT}policy.kind": "custom"}, "policy.class' is missing"),
        (
            DATED,
            {f"{COMMIT}policy.kind": "custom", f"{COMMIT}policy.class": "nowhere:At"},
            "cannot be imported",
        ),
        (
            DATED,
            {f"{COMMIT}policy.kind": "custom", f"{COMMIT}policy.class": "datetime:date"},
            "no partition commit policy",
        ),
        (DATED, {f"{COMMIT}success-file.name": "done"}, "hidden file"),
        (DATED, {f"{COMMIT}watermark-time-zone": "Mars"}, "not a time zone"),
        (DATED, {**BY_TIME, f"{EXTRACTOR}timestamp-pattern": "$dt"}, "names no partition column"),
        (DATED, {**BY_TIME, f"{EXTRACTOR}timestamp-formatter": "nn"}, "timestamp-formatter"),
        (DATED, {**BY_TIME, f"{EXTRACTOR}kind": "custom"}, "class' is missing"),
        (PLAIN, {"format": "parquet", "sink.compression": "gzip"}, "parquet.compression"),
        (PLAIN, {"format": "csv", "csv.header": "true", f"{ROLLING}rollover-interval": "1 s"}, "header"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(schema, more, word) -> None:
    given = partitioned("/x", **more) if schema is DATED else options("/x", **more)
    with pytest.raises(ConnectorError) as refused:
        validate_table(schema, given, role="sink", where="table 't'")
    assert word in str(refused.value)


@pytest.mark.parametrize(
    ("more", "lines", "policy"),
    [
        ({}, True, (128 << 20, None, False)),
        ({f"{ROLLING}rollover-interval": "1 s"}, True, (128 << 20, 1_000, True)),
        ({f"{ROLLING}rollover-interval": "1 s"}, False, (128 << 20, 1_000, False)),
        ({"compaction.file-size": "1 kb"}, True, (128 << 20, None, False)),
        ({"compaction.file-size": "1 kb", "auto-compaction": "true"}, True, (1024, None, False)),
        ({"auto-compaction": "true", f"{ROLLING}file-size": "2 kb"}, True, (2048, None, False)),
    ],
)
def test_the_policy_of_a_table(more, lines, policy) -> None:
    made = RollingPolicy.of(OPTIONS.read(options("/x", **more)), lines=lines)
    assert (made.size, made.rollover_ms, made.grows) == policy


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ("", (3, "Rebalance or none")),
        ("'sink.parallelism' = '2'", (2, "Rebalance or none")),
        ("'sink.shuffle-by-partition.enable' = 'true'", (3, "Hash")),
        ("'auto-compaction' = 'true', 'compaction.parallelism' = '2'", (2, "Hash")),
        ("'sink.partition-commit.policy.kind' = 'success-file'", (3, "Rebalance or none")),
        ("'sink.partition-commit.policy.kind' = 'success-file', 'sink.partition-commit.trigger' = 'partition-time'", (3, "Hash")),
    ],
)  # fmt: skip
def test_how_rows_are_spread_over_the_writers(tmp_path, more, want) -> None:
    graph = plan(tmp_path, more, "PARTITIONED BY (day)")
    assert spread(graph) == want


def test_a_compacted_table_without_partitions_has_one_writer_unless_more_are_asked_for(tmp_path) -> None:
    assert spread(plan(tmp_path, "'auto-compaction' = 'true'", ""))[0] == 1
    assert spread(plan(tmp_path, "'auto-compaction' = 'true', 'compaction.parallelism' = '2'", ""))[0] == 2


def plan(folder, more, partitions):
    more = f", {more}" if more else ""
    return plan_script(
        f"CREATE TABLE s (id BIGINT, day STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '9'); "
        f"CREATE TABLE t (id BIGINT, day STRING) {partitions} WITH ('connector' = 'filesystem', 'path' = '{folder}/out', "
        f"'format' = 'json'{more}); INSERT INTO t SELECT * FROM s",
        {"parallelism.default": "3", "execution.engine": "streaming"},
    ).job_graph


def spread(graph):
    (vertex,) = [v for v in graph.vertices if any("Sink" in op.name for op in v.operators)]
    kinds = [edge.partitioning for edge in graph.inputs_of(vertex.id)]
    hashed = kinds == [Hash((1,))]
    return vertex.parallelism, "Hash" if hashed else "Rebalance or none"


def test_a_stream_on_spark_refuses_what_outlives_a_micro_batch(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    for option, value in (
        (f"{ROLLING}rollover-interval", "1 h"),
        (f"{COMMIT}trigger", "partition-time"),
        (f"{COMMIT}delay", "1 h"),
    ):
        script = (
            f"CREATE TABLE s (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/in', 'format' = 'json', "
            f"'source.monitor-interval' = '1 s'); CREATE TABLE t (id BIGINT) WITH ('connector' = 'filesystem', "
            f"'path' = '{tmp_path}/out', 'format' = 'json', '{option}' = '{value}'); INSERT INTO t SELECT * FROM s"
        )
        graph = plan_script(script, {"execution.engine": "streaming", "parallelism.default": "1"}).job_graph
        with pytest.raises(UnsupportedError, match=re.escape(f"'{option}' in Structured Streaming")):
            check_streaming(graph)
