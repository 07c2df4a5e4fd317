"""The files of an Iceberg table's snapshot, their rows, and commits that take files out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.lakehouse.table import MissingFileError, StoredFile
from penstock.errors import ExternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction


def live_files(table: Table, where: str) -> list[StoredFile]:
    """The files of the current snapshot. UnsupportedError for a table with equality deletes or files of another format."""
    if table.current_snapshot() is None:
        return []
    try:
        tasks = list(table.scan().plan_files())
    except (ValueError, NotImplementedError) as err:
        raise UnsupportedError(
            "changing this Iceberg table", expected="position deletes or none", got=str(err), where=where
        ) from None
    return [stored_file(table, task) for task in tasks]


def stored_file(table: Table, task: FileScanTask) -> StoredFile:
    """The file of a task. Its version names the deletes that apply to it."""
    file = task.file
    values = [file.partition[i] for i in range(len(file.partition))]
    version = ",".join(sorted(deletes.file_path for deletes in task.delete_files))
    return StoredFile(
        file.file_path,
        file.file_size_in_bytes,
        repr((file.spec_id, values)),
        _bounds(table, file),
        task,
        version,
    )


def _bounds(table: Table, file: DataFile) -> dict[str, tuple[Any, Any]]:
    """Bounds of whole numbers and texts, of columns that still have the type with which they were written."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import IntegerType, LongType, StringType

    found: dict[str, tuple[Any, Any]] = {}
    low, high = file.lower_bounds or {}, file.upper_bounds or {}
    for field in table.schema().fields:
        if field.field_id not in low or field.field_id not in high:
            continue
        least, greatest = low[field.field_id], high[field.field_id]
        if isinstance(field.field_type, StringType):
            found[field.name] = from_bytes(field.field_type, least), from_bytes(field.field_type, greatest)
        elif isinstance(field.field_type, IntegerType | LongType) and len(least) == len(greatest):
            # A column of INT that became BIGINT has bounds of four bytes in its old files.
            written = IntegerType() if len(least) == 4 else LongType()
            found[field.name] = from_bytes(written, least), from_bytes(written, greatest)
    return found


def rows_of(table: Table, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, with the table's current columns. MissingFileError if the file is gone."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
    try:
        deletes = _read_all_delete_files(table.io, [file.handle])
        yield from scan._record_batches_from_scan_tasks_and_deletes([file.handle], deletes)
    except FileNotFoundError:
        raise MissingFileError(file.path) from None
    except OSError as err:
        raise ExternalError("a data file cannot be read", got=str(err), where=file.path) from err


def replacement(transaction: Transaction, properties: dict[str, str]) -> Any:
    """A change of files that leaves the table's rows as they are: its snapshot has the operation ``replace``, which
    streaming readers leave out."""
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class ReplaceFiles(_OverwriteFiles):
        def _summary(self, snapshot_properties: dict[str, str] = properties) -> Summary:
            made = super()._summary(snapshot_properties)
            return Summary(Operation.REPLACE, **made.additional_properties)

    return ReplaceFiles(
        Operation.OVERWRITE, transaction, transaction._table.io, snapshot_properties=properties
    )
