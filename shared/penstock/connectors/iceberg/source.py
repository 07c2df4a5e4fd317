"""The source of an Iceberg table: reads the files of a snapshot, then the files that each later snapshot
appends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceEnumerator, Split
from penstock.connectors.iceberg.catalog import load, place, reached
from penstock.connectors.iceberg.settings import OPTIONS
from penstock.connectors.lakehouse.source import LakeReader, last_version, splits_of
from penstock.errors import ConnectorError, ExternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from penstock.connectors.base import SourceContext, TableInfo

#: The most snapshots that one discovery reads.
_MOST_SNAPSHOTS = 100
#: The types of partition values that a split can hold.
_PLAIN = (int, str, float, bool, type(None))


def version_of(snapshot: Snapshot) -> int:
    """A number that grows with the snapshots of a table: the sequence number, or the time in format 1."""
    return int(snapshot.sequence_number or snapshot.timestamp_ms)


def chosen_snapshot(table: Table, options: Mapping[str, Any], where: str) -> Snapshot | None:
    """The snapshot that the options name, else the current one; None for a table that never had one."""
    if options["snapshot-id"] is not None:
        found = table.snapshot_by_id(options["snapshot-id"])
        wanted = f"snapshot {options['snapshot-id']}"
    elif options["as-of-timestamp"] is not None:
        found = table.snapshot_as_of_timestamp(options["as-of-timestamp"])
        wanted = f"a snapshot of {options['as-of-timestamp']} ms or earlier"
    else:
        return table.current_snapshot()
    if found is None:
        known = ", ".join(str(s.snapshot_id) for s in table.snapshots()[-5:])
        raise ConnectorError(
            "the table has no such snapshot",
            expected=wanted,
            got=f"the latest are {known or '(none)'}",
            where=where,
            remedy="it may have expired: read another one",
        )
    return found


def schema_of(table: Table, options: Mapping[str, str], snapshot_id: int) -> Schema:
    """The columns to read: those of the snapshot if the options name a snapshot or a time, else the current
    ones."""
    if "snapshot-id" in options or "as-of-timestamp" in options:
        return table.scan(snapshot_id=snapshot_id).projection()
    return table.schema()


def lineage(table: Table) -> list[Snapshot]:
    """The current snapshot and its ancestors that have not expired, oldest first."""
    found: list[Snapshot] = []
    current = table.current_snapshot()
    while current is not None:
        found.append(current)
        current = table.snapshot_by_id(current.parent_snapshot_id) if current.parent_snapshot_id else None
    return found[::-1]


def _follows(line: Sequence[Snapshot], snapshot: Snapshot, last: int) -> bool:
    """Whether ``snapshot`` directly follows the version ``last``. When snapshots expire, a snapshot's parent
    may no longer be known."""
    if any(version_of(s) == last for s in line):
        return True
    number = snapshot.sequence_number
    return number == last + 1 if number else last == 0 and snapshot.parent_snapshot_id is None


class IcebergEnumerator(SourceEnumerator):
    """Finds files by snapshots."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read({k: v for k, v in table.options.items() if k in OPTIONS.options})
        self._where = place(table.options)
        if self._options["streaming"]:
            self.discovery_interval_ms = self._options["monitor-interval"]

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        found: list[Split] = await ctx.run(lambda: self._look(known))
        return found

    def _look(self, known: set[str]) -> list[Split]:
        table = load(self._table.options)
        last = last_version(known)
        if not self._options["streaming"]:
            if last is None:
                snapshot = chosen_snapshot(table, self._options, self._where)
            else:
                snapshot = next((s for s in table.snapshots() if version_of(s) == last), None)
                if snapshot is None and last:
                    raise self._expired(last)
            return self._whole(table, snapshot, known)
        if last is None:
            return self._first(table, known)
        return self._appended(table, last, known)

    def _first(self, table: Table, known: set[str]) -> list[Split]:
        start, since = self._options["start-snapshot-id"], self._options["start-snapshot-timestamp"]
        if start is None and since is None:
            return self._whole(table, table.current_snapshot(), known)
        line = lineage(table)
        if start is not None:
            found = next((s for s in line if s.snapshot_id == start), None)
            if found is None:
                raise ConnectorError(
                    "the table's history has no such snapshot",
                    expected=f"snapshot {start}",
                    got=", ".join(str(s.snapshot_id) for s in line[-5:]) or "(none)",
                    where=f"{self._where}, option 'start-snapshot-id'",
                )
            return splits_of(version_of(found), [], known)
        before = [s for s in line if s.timestamp_ms < since]
        if line and not before and not _follows(line, line[0], 0):
            raise self._expired(version_of(line[0]) - 1)
        return splits_of(version_of(before[-1]) if before else 0, [], known)

    def _whole(self, table: Table, snapshot: Snapshot | None, known: set[str]) -> list[Split]:
        if snapshot is None:
            return splits_of(0, [], known)
        scan = table.scan(snapshot_id=snapshot.snapshot_id)
        try:
            tasks = list(scan.plan_files())
        except (ValueError, NotImplementedError) as err:
            raise UnsupportedError(
                "this Iceberg table", expected="position deletes or none", got=str(err), where=self._where
            ) from None
        files = [self._payload(t.file, snapshot, list(t.delete_files)) for t in tasks]
        return splits_of(version_of(snapshot), sorted(files, key=lambda f: str(f["path"])), known)

    def _appended(self, table: Table, last: int, known: set[str]) -> list[Split]:
        line = lineage(table)
        after = [s for s in line if version_of(s) > last]
        if after and not _follows(line, after[0], last):
            raise self._expired(last)
        out: list[Split] = []
        for snapshot in after[:_MOST_SNAPSHOTS]:
            files = [self._payload(f, snapshot, []) for f in self._added(table, snapshot)]
            out += splits_of(version_of(snapshot), files, known | {s.id for s in out})
        return out

    def _added(self, table: Table, snapshot: Snapshot) -> list[DataFile]:
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
        from pyiceberg.table.snapshots import Operation

        operation = snapshot.summary.operation if snapshot.summary is not None else Operation.APPEND
        skip = {
            Operation.REPLACE: True,  # a replacement moves the same rows to other files
            Operation.OVERWRITE: self._options["streaming-skip-overwrite-snapshots"],
            Operation.DELETE: self._options["streaming-skip-delete-snapshots"],
        }
        if operation in skip:
            if skip[operation]:
                return []
            word = operation.value
            raise UnsupportedError(
                f"a snapshot that {'deletes' if word == 'delete' else 'replaces'} rows, in a streaming read",
                expected="snapshots that append",
                got=f"snapshot {snapshot.snapshot_id}, operation '{word}'",
                where=self._where,
                remedy=f"'streaming-skip-{word}-snapshots' = 'true' leaves such snapshots out",
            )
        found = []
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id or manifest.content != ManifestContent.DATA:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in (
                    None,
                    snapshot.snapshot_id,
                ):
                    found.append(entry.data_file)
        return found

    def _payload(self, file: DataFile, snapshot: Snapshot, deletes: Sequence[DataFile]) -> dict[str, Any]:
        partition = [file.partition[i] for i in range(len(file.partition))]
        if not all(isinstance(value, _PLAIN) for value in partition):
            raise UnsupportedError(
                "a partition by a column of this type",
                expected="whole numbers, texts, times or BOOLEAN",
                got=repr(partition),
                where=self._where,
            )
        return {
            "path": file.file_path,
            "format": file.file_format.value,
            "size": file.file_size_in_bytes,
            "records": file.record_count,
            "spec": file.spec_id,
            "partition": partition,
            "snapshot": snapshot.snapshot_id,
            "deletes": [
                [d.file_path, d.file_format.value, d.file_size_in_bytes, d.record_count] for d in deletes
            ],
        }

    def _expired(self, last: int) -> ConnectorError:
        return ConnectorError(
            "snapshots behind the last one that was read have expired",
            expected=f"the snapshots behind sequence number {last}",
            got="they are no longer in the table's metadata",
            where=self._where,
            remedy="start without the state of this source, or let snapshots live longer",
        )


class IcebergReader(LakeReader):
    """Reads data files with pyiceberg, which finds columns by their ids and skips deleted rows."""

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._options = table.options
        self._where = place(table.options)

    def _open_table(self) -> None:
        self._table = load(self._options)

    def _batches(self, payload: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        condition: BooleanExpression = AlwaysTrue()
        for name, value in self._equals.items():
            condition = And(condition, EqualTo(name, value))  # type: ignore[call-arg,arg-type]  # pydantic hides it
        stored = schema_of(self._table, self._options, payload["snapshot"])
        # At least one column must be read, because otherwise pyiceberg does not tell the number of rows.
        schema = stored.select(*(self._schema.names or stored.column_names[:1]))
        scan = ArrowScan(self._table.metadata, self._table.io, schema, condition)
        task = _task(payload)
        deletes = reached(lambda: _read_all_delete_files(self._table.io, [task]), self._where)
        rows = scan._record_batches_from_scan_tasks_and_deletes([task], deletes)
        try:
            yield from rows
        except FileNotFoundError as err:
            raise ConnectorError(
                "a data file of the snapshot that is read is gone",
                expected=payload["path"],
                got=str(err),
                where=self._where,
                remedy="its snapshot has expired: read a newer one, or let snapshots live longer",
            ) from None
        except OSError as err:
            raise ExternalError("a data file cannot be read", got=str(err), where=payload["path"]) from err


def _task(payload: dict[str, Any]) -> Any:
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table import FileScanTask

    file = _file(
        DataFileContent.DATA, payload["path"], payload["format"], payload["size"], payload["records"],
        payload["partition"],
    )  # fmt: skip
    file.spec_id = payload["spec"]
    deletes = {
        _file(DataFileContent.POSITION_DELETES, path, kind, size, records, ())
        for path, kind, size, records in payload["deletes"]
    }
    return FileScanTask(file, delete_files=deletes)


def _file(
    content: Any, path: str, format_: str, size: int, records: int, partition: Sequence[Any]
) -> DataFile:
    from pyiceberg.manifest import DataFile, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=content, file_path=path, file_format=FileFormat(format_), partition=Record(*partition),
        record_count=records, file_size_in_bytes=size,
    )  # fmt: skip
