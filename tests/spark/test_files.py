"""Tables of files on Spark: the rows of the streaming engine, by Spark's reader where it may."""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from penstock.errors import ConnectorError, PenstockError
from penstock.formats import get_format
from penstock.spark import files
from penstock.spark.engine import SparkJob
from penstock.spark.errors import translated
from penstock.sql.parsing import parse_type
from penstock.sql.scripts import plan_script
from tests.connectors.test_file_types import DECLARED, READS
from tests.spark.support import comparable, on_spark, on_streaming

WHEN = [
    datetime.datetime(2024, 1, 1, 1, 2, 3, 456789),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    None,
]
ROWS = pa.table(
    {
        "small": pa.array([1, -128, None], pa.int8()),
        "num": pa.array([2**62, None, -5], pa.int64()),
        "narrow": pa.array([7, None, -5], pa.int32()),
        "flag": pa.array([True, None, False]),
        "x": pa.array([1.5, float("inf"), None]),
        "k": pa.array(["zoë", "", None]),
        "raw": pa.array([b"\x00", None, b""]),
        "price": pa.array([Decimal("1.25"), None, Decimal("-99999.99")], pa.decimal128(10, 2)),
        "huge": pa.array([Decimal("123456789012345678901.5"), None, Decimal("0.0")], pa.decimal128(30, 1)),
        "d": pa.array([datetime.date(2024, 2, 29), datetime.date(1900, 1, 1), None]),
        "ts": pa.array(WHEN, pa.timestamp("us")),
        "items": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "counts": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "r": pa.array([{"a": 1, "b": {"c": "x", "e": 2}}, {"a": None, "b": None}, None],
                      pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("e", pa.int64())]))])),
    }
)  # fmt: skip
#: Also wider than in the file, and of ROWs some fields.
PLAIN = """small TINYINT, num BIGINT, narrow BIGINT, flag BOOLEAN, x DOUBLE, k STRING, raw BYTES, price DECIMAL(10, 2),
  huge DECIMAL(30, 1), d DATE, items ARRAY<BIGINT>, counts MAP<STRING, BIGINT>, r ROW<b ROW<e BIGINT>, a BIGINT>"""


def write(folder: Path, format_: str) -> None:
    folder.mkdir(exist_ok=True)
    if format_ == "parquet":
        pq.write_table(ROWS, folder / "0.parquet")
    else:
        orc.write_table(ROWS, folder / "0.orc")


def select(folder: Path, format_: str, columns: str, query: str = "SELECT * FROM t", **options: str) -> Any:
    more = "".join(f", '{k}' = '{v}'" for k, v in options.items())
    script = (
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder}', "
        f"'format' = '{format_}'{more}); {query}"
    )
    return plan_script(script, {"execution.engine": "streaming"}).job_graph


@pytest.mark.parametrize(
    ("format_", "columns", "native"),
    [
        ("parquet", PLAIN, True),
        ("parquet", "ts TIMESTAMP(6), d DATE", True),
        ("parquet", "ts TIMESTAMP(3)", True),
        ("parquet", "narrow SMALLINT", False),
        ("orc", PLAIN, True),
        ("orc", "num BIGINT, ts TIMESTAMP(6)", False),
    ],
)
def test_the_same_rows(spark: Any, tmp_path: Path, format_: str, columns: str, native: bool) -> None:
    write(tmp_path, format_)
    graph = select(tmp_path, format_, columns)
    assert comparable(on_spark(graph, spark)) == comparable(on_streaming(graph))
    assert (f"FileScan {format_}" in SparkJob(graph, spark).explain()) is native


def test_what_spark_wrote(spark: Any, tmp_path: Path) -> None:
    """ORC of the other writer, by both of our engines."""
    frame = spark.createDataFrame(ROWS.drop_columns(["ts"]))
    frame.coalesce(1).write.orc(str(tmp_path / "t"))
    graph = select(tmp_path / "t", "orc", PLAIN)
    assert comparable(on_spark(graph, spark)) == comparable(on_streaming(graph))


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_order_of_arrival(spark: Any, tmp_path: Path, format_: str) -> None:
    """Spark does not number the rows of ORC files: ours reads them where their order counts."""
    tmp_path /= "zoë day=1;(a+b) %41 #~\u00a0"  # as a URI otherwise than Python would write it
    write(tmp_path, format_)
    # Two files: the rows' order is theirs.
    (tmp_path / f"1.{format_}").write_bytes((tmp_path / f"0.{format_}").read_bytes())
    graph = select(
        tmp_path, format_, PLAIN, "SELECT FIRST_VALUE(num), LAST_VALUE(num) FROM t WHERE num IS NOT NULL"
    )
    assert on_spark(graph, spark) == on_streaming(graph) == [(2**62, -5)]
    assert (f"FileScan {format_}" in SparkJob(graph, spark).explain()) is (format_ == "parquet")


LINES = {
    "csv": "1,a,2.005,2024-01-01 00:00:00.123,true\n2,,,,\n,x y,-0.5,1969-12-31 23:59:59.9,FALSE\n",
    "json": '{"id":1,"k":"a","price":2.005,"ts":"2024-01-01 00:00:00.123","flag":true}\n{"id":2}\n'
    '{"k":"x y","price":"-0.5","ts":"1969-12-31T23:59:59.9","flag":"FALSE","id":null}\n',
}
LINE_COLUMNS = "id BIGINT, k STRING, price DECIMAL(10, 2), ts TIMESTAMP(3), flag BOOLEAN"


@pytest.mark.parametrize("format_", LINES)
def test_lines_are_read_by_our_rules(spark: Any, tmp_path: Path, format_: str) -> None:
    (tmp_path / "t").write_text(LINES[format_])
    graph = select(tmp_path, format_, LINE_COLUMNS)
    rows = on_spark(graph, spark)
    assert comparable(rows) == comparable(on_streaming(graph))
    assert len(rows) == 3


@pytest.mark.parametrize(("format_", "bad"), [("csv", "3,b,none,,\n"), ("json", '{"id": "three"}\n')])
def test_a_bad_line(spark: Any, tmp_path: Path, format_: str, bad: str) -> None:
    (tmp_path / "t").write_text(LINES[format_] + bad)
    with pytest.raises(PenstockError, match="line 4"):
        on_spark(select(tmp_path, format_, LINE_COLUMNS), spark)
    for options in ({"on-error": "skip"}, {f"{format_}.ignore-parse-errors": "true"}):
        graph = select(tmp_path, format_, LINE_COLUMNS, **options)
        assert comparable(on_spark(graph, spark)) == comparable(on_streaming(graph))


def test_compressed_files_a_pattern_and_what_is_known_of_a_file(spark: Any, tmp_path: Path) -> None:
    """The whole of what a table may ask of a file's name, on both engines."""
    for name, write_ in (
        ("a.csv.gz", gzip.compress),
        ("b.csv.bz2", bz2.compress),
        ("c.csv.xz", lzma.compress),
    ):
        (tmp_path / name).write_bytes(write_(LINES["csv"].encode()))
    (tmp_path / "d.csv").write_text(LINES["csv"])
    (tmp_path / "no.txt").write_text("this is no row of the table, and no file that the pattern matches")
    columns = (
        f"{LINE_COLUMNS}, `file.path` STRING NOT NULL METADATA, name STRING NOT NULL METADATA FROM 'file.name', "
        "size BIGINT NOT NULL METADATA FROM 'file.size', "
        "changed TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'file.modification-time'"
    )
    graph = select(tmp_path, "csv", columns, **{"source.path.regex-pattern": r".*/[a-d]\.csv.*"})
    rows = on_spark(graph, spark)
    assert comparable(rows) == comparable(on_streaming(graph))
    assert len(rows) == 12
    assert {(row[5], row[6], row[7]) for row in rows} == {
        (str(path), path.name, path.stat().st_size) for path in tmp_path.glob("?.csv*")
    }


# -- files that are not what the table says ----------------------------------------------------------


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_spark_reads_itself_only_what_ours_would_read(name: str, format_: str) -> None:
    array, reads = READS[name]
    kind = get_format(format_).files.spark
    found = files._spark_schema(pa.schema([("v", array.type)]), nanoseconds=kind.nanoseconds)
    for declared in DECLARED:
        if "v" in found.names and files._clipped(found["v"].dataType, parse_type(declared), kind) is not None:
            assert declared in reads


TEXT = pa.table({"v": [f"{i * i}" for i in range(5000)]})


def _overwritten(data: bytes) -> bytes:
    third = len(data) // 3
    return data[:100] + b"\xff" * third + data[100 + third :]


@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("second", "change", "words"),
    [
        (TEXT, lambda data: data[: len(data) // 3], "is no "),
        (TEXT, lambda data: b"", "is no "),
        (TEXT, _overwritten, "is damaged"),
        (pa.table({"v": [1]}), bytes, "column 'v' is of another type"),
        (pa.table({"w": ["x"]}), bytes, "there is no column 'v'"),
    ],
)
def test_another_file_beside_a_good_one(
    spark: Any, tmp_path: Path, format_: str, second: pa.Table, change: Any, words: str
) -> None:
    """Spark itself would show a Java stack, or give NULLs, or leave an empty file out."""
    write = pq.write_table if format_ == "parquet" else orc.write_table
    write(TEXT, tmp_path / "0", compression="zstd")
    write(second, tmp_path / "1", compression="zstd")
    (tmp_path / "1").write_bytes(change((tmp_path / "1").read_bytes()))
    with pytest.raises(ConnectorError, match=words) as refused:
        on_spark(select(tmp_path, format_, "v STRING"), spark)
    assert str(tmp_path / "1") in str(refused.value)
    assert refused.value.expected
    assert refused.value.remedy
    assert "org.apache" not in str(refused.value)


def test_a_file_that_goes_while_it_is_read() -> None:
    text = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///data/a%20b.parquet. File does not exist."
    assert str(translated(RuntimeError(text))).startswith("[PS-CONNECTOR] cannot read '/data/a b.parquet'")


def partitioned(folder: Path, format_: str, query: str) -> Any:
    script = (
        "CREATE TABLE t (num BIGINT, d DATE, k STRING, n INT, price DECIMAL(10, 2)) PARTITIONED BY (d, k, n) WITH ("
        f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = '{format_}'); {query}"
    )
    return plan_script(script, {"execution.engine": "streaming"}).job_graph


PARTITIONS = """INSERT INTO t VALUES (1, DATE '2024-01-01', 'a:b/c=d %41', 1, 2.50), (2, CAST(NULL AS DATE), '', -7, 1),
  (3, DATE '2024-01-01', '01', 1, CAST(NULL AS DECIMAL(10, 2))), (4, DATE '1900-02-03', 'zoë', CAST(NULL AS INT), 0)"""


@pytest.mark.parametrize("format_", ["parquet", "orc", "json"])
def test_partitions(spark: Any, tmp_path: Path, format_: str) -> None:
    """Written by either engine, read by both: values that Spark would infer or unescape otherwise."""
    folders = []
    for engine in (on_streaming, lambda graph: on_spark(graph, spark)):
        folder = tmp_path / str(len(folders))
        engine(partitioned(folder, format_, PARTITIONS))
        folders.append(sorted(str(p.parent.relative_to(folder)) for p in folder.rglob("part-*")))
        for query in (
            "SELECT * FROM t",
            "SELECT k, num FROM t WHERE d < DATE '2000-01-01' OR n = 1",
            "SELECT n FROM t",
        ):
            graph = partitioned(folder, format_, query)
            assert comparable(on_spark(graph, spark)) == comparable(on_streaming(graph)), query
        plan = SparkJob(partitioned(folder, format_, "SELECT * FROM t"), spark).explain()
        assert (f"FileScan {format_}" in plan) is (format_ != "json")
    assert folders[0] == folders[1]
    assert len(folders[0]) == 4
    first = partitioned(
        tmp_path / "0", format_, "SELECT FIRST_VALUE(k), LAST_VALUE(num) FROM t WHERE k IS NOT NULL"
    )
    assert on_spark(first, spark) == on_streaming(first)


def test_avro_is_written_and_read_on_both_engines(spark: Any, tmp_path: Path) -> None:
    """Each engine writes a table from the same rows, and both read each table."""
    pytest.importorskip("fastavro", reason="needs penstock[avro]")
    write(tmp_path / "rows", "parquet")
    columns = PLAIN + ", ts TIMESTAMP(6)"
    expected = comparable(on_streaming(select(tmp_path / "rows", "parquet", columns)))
    for engine in (lambda graph: on_spark(graph, spark), on_streaming):
        folder = tmp_path / f"avro-{len(list(tmp_path.iterdir()))}"
        script = (
            f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'rows'}', "
            f"'format' = 'parquet'); CREATE TABLE out ({columns}) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder}', 'format' = 'avro', 'avro.codec' = 'snappy'); INSERT INTO out SELECT * FROM t"
        )
        engine(plan_script(script, {"execution.engine": "streaming"}).job_graph)
        graph = select(folder, "avro", columns)
        assert comparable(on_streaming(graph)) == expected
        assert comparable(on_spark(graph, spark)) == expected


def test_partitions_are_committed_compacted_and_compressed_on_both_engines(
    spark: Any, tmp_path: Path
) -> None:
    """A bounded job: each partition has one compressed file with all of its rows, and its success file."""
    rows = ", ".join(f"({n}, '2024-01-0{1 + n % 3}')" for n in range(60))
    for engine in (lambda graph: on_spark(graph, spark), on_streaming):
        folder = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        script = (
            f"CREATE TABLE out (n BIGINT, dt STRING) PARTITIONED BY (dt) WITH ('connector' = 'filesystem', 'path' = '{folder}', "
            "'format' = 'json', 'sink.compression' = 'gzip', 'auto-compaction' = 'true', "
            "'sink.rolling-policy.rollover-interval' = '1 h', 'sink.partition-commit.trigger' = 'partition-time', "
            f"'sink.partition-commit.policy.kind' = 'success-file'); INSERT INTO out VALUES {rows}"
        )
        engine(plan_script(script, {"execution.engine": "streaming", "parallelism.default": "2"}).job_graph)
        for day in range(3):
            (file,) = (folder / f"dt=2024-01-0{1 + day}").glob("part-*.json.gz")
            lines = gzip.decompress(file.read_bytes()).decode().splitlines()
            assert sorted(int(line.split(":")[1].strip(" }")) for line in lines) == list(range(day, 60, 3))
            assert (file.parent / "_SUCCESS").read_bytes() == b""
