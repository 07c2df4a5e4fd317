import json
import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from penstock.connectors.filesystem.object_files import _glob_regex
from penstock.errors import ConnectorError, RecordError
from penstock.types import Field, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
ROWS = [(i, f"name-{i}") for i in range(5_000)]


def write_json(path, rows):
    path.write_text("".join(json.dumps({"name": n, "id": i}) + "\n" for i, n in rows))


def write_csv(path, rows):
    path.write_text("name,id\n" + "".join(f'"{n}",{i}\n' for i, n in rows))


def write_parquet(path, rows):
    table = pa.table({"x": [0] * len(rows), "name": [n for _, n in rows], "id": [i for i, _ in rows]})
    pq.write_table(table, path, row_group_size=700)


def write_arrow(path, rows):
    table = pa.table({"name": [n for _, n in rows], "id": [i for i, _ in rows]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


def write_orc(path, rows):
    table = pa.table({"x": [0] * len(rows), "name": [n for _, n in rows], "id": [i for i, _ in rows]})
    # A new stripe is begun when a batch (of 1,024 rows) has filled one.
    orc.write_table(table, path, stripe_size=1024, compression="uncompressed")


WRITERS = {
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
    "orc": write_orc,
    "arrow": write_arrow,
}


def options(path, format_, **more):
    out = {"connector": "filesystem", "path": str(path), "format": format_, **more}
    return {**out, "csv.header": "true"} if format_ == "csv" else out


@pytest.mark.parametrize("format_", WRITERS)
async def test_every_format_by_name_in_order(harness, tmp_path, format_):
    WRITERS[format_](tmp_path / f"a.{format_}", ROWS)
    opts = options(tmp_path, format_)
    harness.connector(SCHEMA, opts)
    assert await harness.read_all(SCHEMA, opts) == ROWS
    narrow = await harness.read_all(SCHEMA, opts, projection=(1,), metadata=("row",))
    assert narrow == [(n, i) for i, n in ROWS]
    assert len(await harness.read_all(SCHEMA, opts, projection=())) == len(ROWS)


@pytest.mark.parametrize("format_", ["json", "parquet", "orc"])
async def test_big_files_are_cut_into_splits(harness, tmp_path, format_):
    WRITERS[format_](tmp_path / f"a.{format_}", ROWS)
    opts = options(tmp_path, format_, **{"source.split-size": "9 kb"})
    splits = await harness.splits(SCHEMA, opts)
    assert len(splits) > 4
    rows = []
    for split in splits:
        reader = await harness.reader(SCHEMA, opts, [split])
        rows += [r for f in await harness.read(reader) for r in f.batch.to_pylist()]
    assert rows == ROWS


@pytest.mark.parametrize("format_", WRITERS)
async def test_resumes_at_any_position(harness, tmp_path, format_):
    WRITERS[format_](tmp_path / f"a.{format_}", ROWS)
    opts = options(tmp_path, format_)
    splits, rows = None, []
    for _ in range(60):
        reader = await harness.reader(SCHEMA, opts, splits, batch_rows=97)
        got = await harness.read(reader, rows=97)
        rows += [r for f in got for r in f.batch.to_pylist()]
        splits = reader.snapshot()
        await reader.close()
        if len(rows) >= len(ROWS):
            break
    assert rows == ROWS
    reader = await harness.reader(SCHEMA, opts, splits)
    assert await harness.read(reader) == []
    assert reader.finished_splits() == {s.id for s in reader.snapshot()}


@pytest.mark.parametrize("format_", WRITERS)
async def test_a_file_that_was_replaced_is_not_read_on(harness, tmp_path, format_):
    path = tmp_path / f"a.{format_}"
    WRITERS[format_](path, ROWS)
    opts = options(tmp_path, format_)
    reader = await harness.reader(SCHEMA, opts, batch_rows=97)
    await harness.read(reader, rows=97)
    splits = reader.snapshot()
    await reader.close()
    WRITERS[format_](path, ROWS[: len(ROWS) // 2])
    reader = await harness.reader(SCHEMA, opts, splits)
    with pytest.raises(ConnectorError, match="was changed while it was read"):
        await harness.read(reader)
    await reader.close()


async def test_a_file_of_lines_may_grow_while_it_is_read(harness, tmp_path):
    WRITERS["json"](tmp_path / "a.json", ROWS)
    opts = options(tmp_path, "json")
    reader = await harness.reader(SCHEMA, opts, batch_rows=97)
    rows = [r for f in await harness.read(reader, rows=97) for r in f.batch.to_pylist()]
    splits = reader.snapshot()
    await reader.close()
    with (tmp_path / "a.json").open("a") as file:
        file.write("what another process is about to write")
    reader = await harness.reader(SCHEMA, opts, splits)
    rows += [r for f in await harness.read(reader) for r in f.batch.to_pylist()]
    assert rows == ROWS
    await reader.close()


@pytest.mark.parametrize("format_", ["json", "parquet", "orc", "arrow"])
async def test_only_some_fields_of_a_row(harness, tmp_path, format_):
    inner = [{"x": i, "y": "z" * i, "deep": {"a": i, "b": i * 2}} if i % 3 else None for i in range(10)]
    table = pa.table({"r": inner, "n": list(range(10))})
    path = tmp_path / "a"
    if format_ == "json":
        path.write_text("".join(json.dumps(r) + "\n" for r in table.to_pylist()))
    elif format_ == "parquet":
        pq.write_table(table, path)
    elif format_ == "orc":
        orc.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    deep = t.RowType((Field("b", t.BigIntType()),))
    schema = Schema.of(("r", t.RowType((Field("deep", deep), Field("x", t.IntType())))))
    rows = await harness.read_all(schema, options(tmp_path, format_))
    assert rows == [({"deep": {"b": i * 2}, "x": i} if i % 3 else None,) for i in range(10)]


async def test_folders_globs_and_hidden_names(harness, tmp_path):
    for name in ("b.json", "a.json", "sub/c.json", ".hidden.json", "_temporary/d.json", "e.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        write_json(path, [(1, name)])
    paths = lambda path: harness.read_all(SCHEMA, options(path, "json"), projection=(1,))  # noqa: E731
    assert await paths(tmp_path) == [("a.json",), ("b.json",), ("e.txt",), ("sub/c.json",)]
    assert await paths(f"file://{tmp_path}/*.json") == [("a.json",), ("b.json",)]
    assert await paths(f"{tmp_path}/**/*.json") == [("a.json",), ("b.json",), ("sub/c.json",)]


async def test_a_monitored_folder_shows_new_files(harness, tmp_path):
    write_json(tmp_path / "a.json", ROWS[:3])
    opts = options(tmp_path, "json", **{"source.monitor-interval": "1 s"})
    assert not harness.connector(SCHEMA, opts).is_bounded(type("T", (), {"options": opts}))
    first = await harness.splits(SCHEMA, opts)
    write_json(tmp_path / "b.json", ROWS[3:5])
    second = await harness.splits(SCHEMA, opts, known=[s.id for s in first])
    assert [s.payload["path"].rsplit("/", 1)[1] for s in second] == ["b.json"]


async def test_a_bad_line_is_named(harness, tmp_path):
    (tmp_path / "a.json").write_text('{"id":1}\n{"id":"x"}\n{"id":3}\n')
    opts = options(tmp_path / "a.json", "json")
    with pytest.raises(RecordError, match=r"a\.json, line 2, column 'id'"):
        await harness.read_all(SCHEMA, opts)
    harness.on_error = "skip"
    assert [r[0] for r in await harness.read_all(SCHEMA, opts)] == [1, 3]
    assert harness.bad[0][1] == b'{"id":"x"}'


@pytest.mark.parametrize(
    ("format_", "says"),
    [("parquet", "no Parquet file"), ("orc", "no ORC file"), ("arrow", "no Arrow IPC file")],
)
async def test_another_format_is_noticed(harness, tmp_path, format_, says):
    (tmp_path / "a").write_text("hello\n")
    with pytest.raises(ConnectorError, match=says):
        await harness.read_all(SCHEMA, options(tmp_path / "a", format_))


async def test_a_missing_or_mistyped_parquet_column_is_named(harness, tmp_path):
    write_parquet(tmp_path / "a", ROWS)
    with pytest.raises(ConnectorError, match="no column 'nam'") as caught:
        await harness.read_all(Schema.of(("nam", t.VarCharType())), options(tmp_path / "a", "parquet"))
    assert "'name'" in caught.value.remedy
    with pytest.raises(ConnectorError, match="column 'name' is of another type"):
        await harness.read_all(
            Schema.of(("name", t.ArrayType(t.IntType()))), options(tmp_path / "a", "parquet")
        )


async def test_csv_blocks_end_between_records(harness, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.formats.lines.BLOCK_BYTES", 40)
    rows = [(i, 'a\n"b"\n\n' * (i % 4)) for i in range(50)]
    text = "".join(f'{i},"{n.replace(chr(34), chr(34) * 2)}"\n' for i, n in rows)
    (tmp_path / "a.csv").write_text(text)
    opts = {"connector": "filesystem", "path": str(tmp_path), "format": "csv"}
    assert await harness.read_all(SCHEMA, opts) == rows


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a/*.js?n", "a/b.json", True),
        ("a/*.json", "a/b/c.json", False),
        ("a/**/c.json", "a/b/x/c.json", True),
        ("a/[!b].json", "a/b.json", False),
    ],
)
def test_globs_over_object_keys(pattern, path, matches):
    assert bool(re.fullmatch(_glob_regex(pattern), path)) == matches


@pytest.mark.parametrize("format_", ["json", "csv"])
async def test_an_empty_file_has_no_rows(harness, tmp_path, format_):
    (tmp_path / f"a.{format_}").touch()
    assert await harness.read_all(SCHEMA, options(tmp_path, format_)) == []


@pytest.mark.parametrize(
    ("format_", "left", "says"),
    [
        ("json", "", "ends before that"),
        ("json", '{"id": 0, "name": "name-0"}\n', "ends before that"),
        ("csv", "", "it is empty"),
        ("csv", 'name,id\n"name-0",0\n', "ends before that"),
        ("json", None, "No such file"),
        ("parquet", None, "No such file"),
        ("parquet", 700, "1 row groups"),
    ],
)
async def test_a_position_that_the_file_no_longer_has_fails_at_once(harness, tmp_path, format_, left, says):
    """It would look like the end, and the rows behind it would be lost in silence. (Where a snapshot has no size of the
    file; with one it is compared first.)"""
    path = tmp_path / f"a.{format_}"
    WRITERS[format_](path, ROWS)
    opts = options(tmp_path, format_)
    (split,) = await harness.splits(SCHEMA, opts)
    del split.payload["size"]
    at = 3 if format_ == "parquet" else 70_000
    split = msgspec.structs.replace(split, position={"at": at, "skip": 0, "row": 9, "done": False})
    if left is None:
        path.unlink()
    elif isinstance(left, int):
        WRITERS[format_](path, ROWS[:left])
    else:
        path.write_text(left)
    reader = await harness.reader(SCHEMA, opts, [split])
    with pytest.raises(ConnectorError, match=r"no longer has the position|cannot be read") as failed:
        await harness.read(reader)
    await reader.close()
    assert says in str(failed.value)
    assert not failed.value.retryable
