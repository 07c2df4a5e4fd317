"""The files of a Delta table's version, and their rows: for commits that write files anew."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.delta.stored import check_readable, partition_texts_of
from penstock.connectors.filesystem.paths import join
from penstock.connectors.lakehouse.table import MissingFileError, StoredFile
from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from penstock.connectors.filesystem.paths import Files

_BATCH_ROWS = 131_072


def check_changeable(table: DeltaTable, where: str) -> None:
    """Raises ConnectorError for a table from which rows must not be taken, UnsupportedError for one whose files cannot be
    read by themselves."""
    check_readable(table, where)
    if table.metadata().configuration.get("delta.appendOnly", "false").lower() == "true":
        raise ConnectorError(
            "the Delta table takes no upserts",
            expected="a table without the property delta.appendOnly",
            got="'delta.appendOnly' = 'true'",
            where=where,
            remedy="leave PRIMARY KEY out: rows are appended",
        )


def live_files(table: DeltaTable, where: str) -> list[StoredFile]:
    """The files of the table's version. UnsupportedError for a table whose files cannot be read by themselves."""
    check_readable(table, where)
    texts = partition_texts_of(table) if table.metadata().partition_columns else {}
    found = []
    for row in pa.table(table.get_add_actions(flatten=False)).to_pylist():
        path = unquote(row["path"])
        if "://" in path or path.startswith("/"):
            raise UnsupportedError(
                "changing a Delta table with files outside its folder (a shallow clone)",
                expected="files below the table's folder",
                got=path,
                where=where,
            )
        partition = texts.get(path, {})
        handle = {"path": row["path"], "size": row["size_bytes"], "partition": partition}
        found.append(
            StoredFile(path, row["size_bytes"], repr(partition), _bounds(row["min"], row["max"]), handle)
        )
    return found


def _bounds(low: Mapping[str, Any] | None, high: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    return {
        name: (least, (high or {})[name])
        for name, least in (low or {}).items()
        if least is not None and (high or {}).get(name) is not None
        if not isinstance(least, dict | datetime.date)
    }


def rows_of(
    files: Files, folder: str, file: StoredFile, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file; values of partition columns come from the log. MissingFileError if it is gone."""
    path = join(folder, file.path)
    if not files.exists(path):
        raise MissingFileError(path)
    handle = files.open_input(path)
    partition = file.handle["partition"]
    try:
        stored = pq.ParquetFile(handle)
        wanted = [f.name for f in stored.schema_arrow if f.name in columns]
        for rows in stored.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
            for name, text in partition.items():
                if name in columns:
                    value = pa.scalar(text, pa.string()).cast(schema.field(name).type)
                    rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
            yield rows
    finally:
        handle.close()
