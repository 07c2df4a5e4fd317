"""What a table of files may be asked to read: compressed files, files by a pattern, what is known of a file."""

import datetime
import json
import os

import pytest

from penstock.errors import ConnectorError, RecordError, SpecError
from penstock.types import Schema
from penstock.types import logical as t
from tests.formats.test_compressed import WRITERS

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
ROWS = [(i, f"name-{i}" * 30) for i in range(6_000)]


def as_json(rows):
    return "".join(json.dumps({"name": n, "id": i}) + "\n" for i, n in rows).encode()


def as_csv(rows):
    return ("name,id\n" + "".join(f'"{n}\n",{i}\n' for i, n in rows)).encode()


def options(path, format_="json", **more):
    out = {"connector": "filesystem", "path": str(path), "format": format_, **more}
    return {**out, "csv.header": "true"} if format_ == "csv" else out


@pytest.mark.parametrize("name", WRITERS)
async def test_a_compressed_file_is_read_and_resumed(harness, tmp_path, name):
    """Also where a cell holds a line end, behind a header, with a restart behind each 997 rows."""
    extension, write, _ = WRITERS[name]
    for format_, text in (("json", as_json), ("csv", as_csv)):
        path = tmp_path / f"a.{format_}.{extension}"
        path.write_bytes(write(text(ROWS)))
        opts = options(path, format_, **{"source.split-size": "9 kb"})
        splits = await harness.splits(SCHEMA, opts)
        assert len(splits) == 1
        rows = []
        while len(rows) < len(ROWS):
            reader = await harness.reader(SCHEMA, opts, splits, batch_rows=997)
            rows += [r for f in await harness.read(reader, rows=997) for r in f.batch.to_pylist()]
            splits = reader.snapshot()
            await reader.close()
        assert rows == [(i, n + "\n" if format_ == "csv" else n) for i, n in ROWS]
        reader = await harness.reader(SCHEMA, opts, splits)
        assert await harness.read(reader) == []
        await reader.close()


async def test_a_bad_line_of_a_compressed_file_is_named(harness, tmp_path):
    _, write, _ = WRITERS["gzip"]
    (tmp_path / "a.json.gz").write_bytes(write(b'{"id":1}\n{"id":"x"}\n{"id":3}'))
    with pytest.raises(RecordError, match=r"a\.json\.gz, line 2, column 'id'"):
        await harness.read_all(SCHEMA, options(tmp_path))
    harness.on_error = "skip"
    assert [r[0] for r in await harness.read_all(SCHEMA, options(tmp_path))] == [1, 3]


async def test_a_compressed_file_that_changed_is_not_read_on(harness, tmp_path):
    """A longer file, too: unlike a file of lines it does not grow. And one of equal size that now holds less."""
    path = tmp_path / "a.json.gz"
    path.write_bytes(WRITERS["gzip"][1](as_json(ROWS)))
    size = path.stat().st_size
    reader = await harness.reader(SCHEMA, options(path), batch_rows=97)
    await harness.read(reader, rows=5_000)
    splits = reader.snapshot()
    await reader.close()
    short = WRITERS["gzip"][1](as_json(ROWS[:5]))
    # An empty member behind it, with a comment of as many bytes as are missing.
    empty = WRITERS["gzip"][1](b"")
    same = (
        short
        + empty[:3]
        + b"\x10"
        + empty[4:10]
        + b"c" * (size - len(short) - len(empty) - 1)
        + b"\0"
        + empty[10:]
    )
    assert len(same) == size
    for data, says in ((path.read_bytes() + empty, "was changed"), (same, "no longer has the position")):
        path.write_bytes(data)
        reader = await harness.reader(SCHEMA, options(path), splits)
        with pytest.raises(ConnectorError, match=says):
            await harness.read(reader)
        await reader.close()


async def test_a_monitored_folder_reads_a_compressed_file_once(harness, tmp_path):
    write = WRITERS["zstd"][1]
    (tmp_path / "a.json.zst").write_bytes(write(as_json(ROWS[:3])))
    opts = options(tmp_path, **{"source.monitor-interval": "1 s"})
    first = await harness.splits(SCHEMA, opts)
    (tmp_path / "b.json.zst").write_bytes(write(as_json(ROWS[3:5])))
    second = await harness.splits(SCHEMA, opts, known=[s.id for s in first])
    reader = await harness.reader(SCHEMA, opts, [*first, *second])
    assert [r for f in await harness.read(reader) for r in f.batch.to_pylist()] == ROWS[:5]
    await reader.close()
    assert await harness.splits(SCHEMA, opts, known=[s.id for s in (*first, *second)]) == []


async def test_a_pattern_over_the_whole_path_chooses_files(harness, tmp_path):
    for name in ("2024/a.json", "2024/b.json", "2023/a.json", "2024/a.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(as_json([(1, name)]))

    async def names(pattern):
        opts = options(tmp_path, **{"source.path.regex-pattern": pattern})
        harness.connector(SCHEMA, opts)
        return [r[0] for r in await harness.read_all(SCHEMA, opts, projection=(1,))]

    assert await names(r".*/2024/.*\.json") == ["2024/a.json", "2024/b.json"]
    assert await names(rf"{tmp_path}/\d+/a\..*") == ["2023/a.json", "2024/a.json", "2024/a.txt"]
    with pytest.raises(ConnectorError, match="no file at") as caught:  # a part of the path is no match
        await names("a.json")
    assert "matches 'a.json'" in caught.value.got
    with pytest.raises((ConnectorError, SpecError), match="regular expression"):
        await names("*.json")


async def test_what_is_known_of_a_file(harness, tmp_path):
    path = tmp_path / "day one.json"
    path.write_bytes(as_json(ROWS[:2]))
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    keys = ("file.path", "file.name", "file.size", "file.modification-time", "row")
    got = await harness.read_all(SCHEMA, options(tmp_path), projection=(0,), metadata=keys)
    when = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    about = (str(path), "day one.json", path.stat().st_size)
    assert [row[:4] + row[5:] for row in got] == [(0, *about, 0), (1, *about, 1)]
    assert {row[4].replace(tzinfo=datetime.UTC) for row in got} == {when}


async def test_the_time_of_a_file_that_an_older_state_knows_is_refused(harness, tmp_path):
    (tmp_path / "a.json").write_bytes(as_json(ROWS[:2]))
    splits = await harness.splits(SCHEMA, options(tmp_path))
    del splits[0].payload["modified"]
    reader = await harness.reader(SCHEMA, options(tmp_path), splits, metadata=("file.modification-time",))
    with pytest.raises(ConnectorError, match=r"no 'file.modification-time' of"):
        await harness.read(reader)
    await reader.close()
