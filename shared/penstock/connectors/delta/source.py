"""The source of a Delta table: reads the files of a version, then the files that each later version adds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.base import SourceEnumerator, Split
from penstock.connectors.delta.settings import OPTIONS
from penstock.connectors.delta.stored import arrow_schema, check_readable, partition_texts_of, unsupported
from penstock.connectors.delta.table import open_delta
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.paths import join
from penstock.connectors.lakehouse.schema import fitted
from penstock.connectors.lakehouse.source import LakeReader, last_version, splits_of
from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.base import SourceContext, TableInfo

#: The most versions that one discovery reads.
_MOST_VERSIONS = 100


class DeltaEnumerator(SourceEnumerator):
    """Finds files by versions."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._streams = self._options["mode"] == "streaming"
        if self._streams:
            self.discovery_interval_ms = self._options["updateCheckIntervalMillis"]

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        found: list[Split] = await ctx.run(lambda: self._look(known))
        return found

    def _look(self, known: set[str]) -> list[Split]:
        last = last_version(known)
        if not self._streams:
            version = last if last is not None else self._as_of()
            return self._snapshot(version, known)
        if last is None:
            return self._first(known)
        current = open_delta(self._table.options)
        check_readable(current, self._where)
        out: list[Split] = []
        for version in range(last + 1, min(current.version(), last + _MOST_VERSIONS) + 1):
            out += splits_of(version, self._added(version), known | {s.id for s in out})
        return out

    @property
    def _where(self) -> str:
        return f"connector 'delta', '{self._options['table-path']}'"

    def _as_of(self) -> int | str | None:
        if self._options["versionAsOf"] is not None:
            return int(self._options["versionAsOf"])
        return as_of_time(self._options["timestampAsOf"])

    def _first(self, known: set[str]) -> list[Split]:
        start = self._options["startingVersion"]
        if start is None:
            return self._snapshot(None, known)
        if start == "latest":
            return splits_of(open_delta(self._table.options).version(), [], known)
        if start == 0:
            return splits_of(0, self._added(0), known)
        return splits_of(start - 1, [], known)

    def _snapshot(self, version: int | str | None, known: set[str]) -> list[Split]:
        table = open_delta(self._table.options, version)
        check_readable(table, self._where)
        actions = pa.table(table.get_add_actions(flatten=False))
        files = [
            _payload(row["path"], row["size_bytes"], row.get("partition") or {}, self._where)
            for row in actions.to_pylist()
        ]
        keys = table.metadata().partition_columns
        if keys:
            # The log holds partition values as texts; the splits hold typed values.
            texts = partition_texts_of(table)
            files = [{**f, "partition": texts[f["path"]]} for f in files]
        return splits_of(table.version(), sorted(files, key=lambda f: str(f["path"])), known)

    def _added(self, version: int) -> list[dict[str, Any]]:
        """The files that a version adds. A version that removes rows is refused."""
        files, folder = open_files(self._options["table-path"], self._table.options)
        path = join(folder, "_delta_log", f"{version:020d}.json")
        try:
            file = files.open_input(path)
        except (OSError, ConnectorError) as err:
            raise ConnectorError(
                f"version {version} is no longer in the table's log",
                expected=path,
                got=str(err),
                where=self._where,
                remedy="start without the state of this source, or keep the log longer (delta.logRetentionDuration)",
            ) from None
        try:
            actions = [json.loads(line) for line in file.read().splitlines() if line.strip()]
        finally:
            file.close()
        removed = [
            a["remove"] for a in actions if a.get("remove", {}).get("dataChange", True) and "remove" in a
        ]
        added = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
        if any(a.get("deletionVector") for a in added):
            raise unsupported(f"deletion vectors in version {version}", self._where)
        if removed and not (self._options["ignoreChanges"] or (not added and self._options["ignoreDeletes"])):
            raise UnsupportedError(
                f"version {version} of the table takes rows away",
                expected="versions that only add rows",
                got=f"{len(removed)} files removed, {len(added)} added",
                where=self._where,
                remedy="'ignoreDeletes' = 'true' leaves out versions that only delete; 'ignoreChanges' = 'true' gives "
                "all rows of the files that a change wrote anew, once more",
            )
        return [_payload(a["path"], a["size"], a.get("partitionValues") or {}, self._where) for a in added]


def as_of_time(text: str | None) -> str | None:
    """The option ``timestampAsOf`` as delta-rs takes it."""
    if text is None:
        return None
    iso = text.strip().replace(" ", "T")
    return iso if iso.endswith("Z") or "+" in iso else iso + "Z"


def _payload(path: str, size: int, partition: dict[str, Any], where: str) -> dict[str, Any]:
    """A split's payload; ``path`` is as the log has it: percent-encoded, below the table's folder."""
    path = unquote(path)
    if "://" in path or path.startswith("/"):
        raise unsupported("files outside its folder (a shallow clone)", where)
    return {"path": path, "size": size, "partition": partition}


class DeltaReader(LakeReader):
    """Reads Parquet files. The values of partition columns come from the log."""

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._table = table

    def _open_table(self) -> None:
        self._files, self._folder = open_files(self._table.options["table-path"], self._table.options)
        stored = arrow_schema(open_delta(self._table.options))
        self._wanted = pa.schema([stored.field(name) for name in self._schema.names])

    def _batches(self, payload: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        partition = payload["partition"]
        if any(name in partition and partition[name] != str(v) for name, v in self._equals.items()):
            return
        path = join(self._folder, payload["path"])
        try:
            handle = self._files.open_input(path)
        except (OSError, ConnectorError) as err:
            raise ConnectorError(
                "a data file of the version that is read is gone",
                expected=path,
                got=str(err),
                where="connector 'delta'",
                remedy="VACUUM removes files of old versions; read a newer one, or keep them longer",
            ) from None
        try:
            file = pq.ParquetFile(handle)
            columns = [f.name for f in file.schema_arrow if f.name in self._wanted.names]
            groups = [g for g in range(file.num_row_groups) if self._may_have(file.metadata.row_group(g))]
            for rows in file.iter_batches(
                self.ctx.batch_rows, row_groups=groups, columns=columns, use_threads=False
            ):
                for name, text in partition.items():
                    if name in self._wanted.names:
                        value = pa.scalar(text, pa.string()).cast(self._wanted.field(name).type)
                        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
                yield fitted(rows, self._wanted) if len(self._wanted) else rows
        finally:
            handle.close()

    def _may_have(self, group: pq.RowGroupMetaData) -> bool:
        """Whether a row group may hold a row with the wanted values."""
        for index in range(group.num_columns if self._equals else 0):
            column = group.column(index)
            wanted = self._equals.get(column.path_in_schema)
            bounds = column.statistics
            if (
                wanted is None
                or bounds is None
                or not bounds.has_min_max
                or type(bounds.min) is not type(wanted)
            ):
                continue
            if not bounds.min <= wanted <= bounds.max:
                return False
        return True
