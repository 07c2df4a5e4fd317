"""How Parquet files are written."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.formats.parquet import ParquetFileWriter, repeating_columns
from penstock.types import Batch, Field, Schema
from penstock.types import logical as t

LONG, TEXT = t.BigIntType(), t.VarCharType()
SCHEMA = Schema.of(
    ("number", LONG),
    ("kind", TEXT),
    ("r", t.RowType((Field("id", LONG), Field("kind", TEXT)))),
    ("items", t.ArrayType(LONG)),
    ("counts", t.MapType(TEXT, LONG)),
    ("none", LONG),
)


def written(batches: list[Batch]) -> pq.ParquetFile:
    file = io.BytesIO()
    writer = ParquetFileWriter(file, SCHEMA, {"parquet.row-group-rows": "1000"})
    for batch in batches:
        writer.write(batch)
    writer.close()
    return pq.ParquetFile(file)


def test_only_columns_that_repeat_have_a_dictionary() -> None:
    rows = [
        (i, "ab"[i % 2], {"id": i, "kind": "c"}, [1, 2], [("k", i), ("l", -i)], None) for i in range(2_500)
    ]
    file = written([Batch.of(SCHEMA, rows[at : at + 500]) for at in range(0, 2_500, 500)])
    group = file.metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {c.path_in_schema: c.has_dictionary_page for c in columns} == {
        "number": False, "kind": True, "r.id": False, "r.kind": True, "items.list.element": True,
        "counts.key_value.key": True, "counts.key_value.value": False, "none": True,
    }  # fmt: skip
    assert file.metadata.num_row_groups == 3
    assert [tuple(row.values()) for row in file.read().to_pylist()] == rows


def test_a_file_without_rows_has_its_columns() -> None:
    assert written([]).read().schema.names == list(SCHEMA.names)


@pytest.mark.parametrize(
    ("values", "repeats"),
    [([1, 1, 2], False), ([1, 1], True), ([None, None, 1], False), ([], True), ([1.5] * 4, True)],
)
def test_what_repeats(values: list[object], repeats: bool) -> None:
    assert (repeating_columns(pa.table({"v": pa.array(values, pa.float64())})) == ["v"]) is repeats
