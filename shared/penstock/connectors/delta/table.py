"""Writes a Delta table: Penstock writes the data files, delta-rs writes the log."""

from __future__ import annotations

import shutil
import time
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from penstock.connectors.delta.rewriting import live_files, rows_of
from penstock.connectors.delta.statistics import statistics
from penstock.connectors.delta.stored import arrow_schema, partition_texts
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.paths import join, local_path
from penstock.connectors.lakehouse.table import DataFile, LakeTable, LostRaceError, Partition, StoredFile
from penstock.connectors.unanswered import failed, impatient
from penstock.errors import ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from deltalake import DeltaTable

_log = EventLog("penstock.connectors.delta")

#: So many bytes of a file are stored at a time.
_UPLOAD_BYTES = 8 << 20
#: The folder of notes below the table's folder. Readers of Delta tables ignore folders whose names begin with
#: ``_``.
NOTES_FOLDER = "_penstock"


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the object store, as delta-rs takes them."""
    return impatient(
        {key.removeprefix("fs."): value for key, value in options.items() if key.startswith("fs.")}
    )


def table_uri(options: Mapping[str, str]) -> str:
    """The table's location in the form that delta-rs takes."""
    path = options["table-path"]
    return local_path(path) or path


def open_delta(options: Mapping[str, str], version: int | str | None = None) -> DeltaTable:
    """The table, at a version or time. ConnectorError if there is none; ExternalError if it cannot be reached."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    where = f"connector 'delta', option 'table-path' = '{options['table-path']}'"
    try:
        found = DeltaTable(
            table_uri(options),
            version=version if isinstance(version, int) else None,
            storage_options=storage_options(options),
        )
        if isinstance(version, str):
            found.load_as_version(version)
        return found
    except TableNotFoundError:
        raise ConnectorError(
            "there is no Delta table",
            expected="a folder with a table's _delta_log",
            got="none",
            where=where,
            remedy="check the path; a sink makes its table, a source does not",
        ) from None
    except (DeltaError, OSError, ValueError) as err:
        if version is not None:
            raise ConnectorError(
                f"the table cannot be read as of {version!r}",
                expected="a version that is still in the table's log, or a time since its first",
                got=str(err),
                where=where,
            ) from None
        raise failed("a Delta table cannot be opened", err, where) from err


class DeltaLake(LakeTable):
    """The table of ``options``, made with the columns ``declared`` if it is not there."""

    def __init__(
        self,
        options: Mapping[str, str],
        declared: pa.Schema,
        partitions: Sequence[str],
        codec: str,
        *,
        alone: bool = False,
        target_bytes: int | None = None,
    ) -> None:
        self._options = options
        #: Whether a commit must not come behind one that it has not seen.
        self.alone = alone
        self.target_bytes = target_bytes
        self._where = f"connector 'delta', '{options['table-path']}'"
        self.base = options.get("versionAsOf", "")
        self._files, self._folder = open_files(options["table-path"], options, impatient=True)
        self.log = self._opened(declared, partitions)
        self.row_schema = arrow_schema(self.log)
        self._keys = tuple(self.log.metadata().partition_columns)
        self.file_schema = pa.schema([f for f in self.row_schema if f.name not in self._keys])
        self.parquet = {"compression": codec}

    def _opened(self, declared: pa.Schema, partitions: Sequence[str]) -> DeltaTable:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError, DeltaError

        uri, storage = table_uri(self._options), storage_options(self._options)
        try:
            there = DeltaTable.is_deltatable(uri, storage)
        except (DeltaError, OSError) as err:
            raise failed("a Delta table cannot be opened", err, self._where) from err
        if not there:
            try:
                DeltaTable.create(
                    uri, Schema.from_arrow(declared), mode="ignore", partition_by=list(partitions),
                    storage_options=storage,
                )  # fmt: skip
            except (CommitFailedError, DeltaError) as err:
                _log.debug("delta_table_made_by_another", path=self._options["table-path"], error=err)
        return open_delta(self._options)

    # -- rows ---------------------------------------------------------------------------

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        if not self._keys:
            yield Partition("", ()), rows
            return
        keys = [partition_texts(rows.column(name), name) for name in self._keys]
        names = [str(i) for i in range(len(keys))]
        known = pa.table(keys, names=names)
        for values in known.group_by(names).aggregate([]).to_pylist():
            chosen = tuple(values[name] for name in names)
            mask = None
            for key, value in zip(keys, chosen, strict=True):
                same = pc.is_null(key) if value is None else pc.equal(key, value)
                mask = same if mask is None else pc.and_kleene(mask, same)
            part = rows.filter(pc.fill_null(mask, False)).select(self.file_schema.names)
            yield Partition(repr(chosen), chosen), part

    def new_file(self, partition: Partition, name: str) -> tuple[str, Any | None]:
        path = join(self._folder, name)
        return path, None if local_path(path) is None else self._files.open_output(path)

    def upload(self, path: str, file: IO[bytes]) -> None:
        stored = self._files.open_output(path)
        shutil.copyfileobj(file, stored, _UPLOAD_BYTES)
        stored.close()

    def sync(self, path: str) -> None:
        self._files.sync(path)

    def entry(self, path: str, size: int, partition: Partition, footer: pq.FileMetaData) -> dict[str, Any]:
        return {
            "path": path.rpartition("/")[2],
            "size": size,
            "partition_values": dict(zip(self._keys, partition.values, strict=True)),
            "modification_time": time.time_ns() // 1_000_000,
            "stats": statistics(footer, self.file_schema),
        }

    def delete(self, path: str) -> None:
        self._files.delete(path)

    # -- notes --------------------------------------------------------------------------

    def put_note(self, key: str, data: bytes) -> None:
        path = join(self._folder, NOTES_FOLDER, key)
        file = self._files.open_output(path)
        file.write(data)
        file.close()
        self._files.sync(path)

    def get_note(self, key: str) -> bytes | None:
        path = join(self._folder, NOTES_FOLDER, key)
        if not self._files.exists(path):
            return None
        file = self._files.open_input(path)
        try:
            return file.read()
        finally:
            file.close()

    def delete_note(self, key: str) -> None:
        self._files.delete(join(self._folder, NOTES_FOLDER, key))

    # -- log ----------------------------------------------------------------------------

    def committed(self, writer: str) -> int | None:
        self.log = open_delta(self._options)
        if arrow_schema(self.log) != self.row_schema:
            raise ConnectorError(
                "the table's columns changed while a job writes into it",
                expected=str(self.row_schema),
                got=str(arrow_schema(self.log)),
                where=self._where,
                remedy="restart the job from a savepoint, with the new columns declared",
            )
        return self.log.transaction_version(writer)

    def live(self) -> list[StoredFile]:
        return live_files(self.log, self._where)

    def staged(self, file: DataFile) -> StoredFile:
        handle = {"path": file.entry["path"], "partition": file.entry["partition_values"]}
        return StoredFile(file.entry["path"], file.entry["size"], "", {}, handle)

    def rows(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows_of(self._files, self._folder, file, self.row_schema, columns)

    def commit(
        self,
        writer: str,
        checkpoint_id: int,
        properties: dict[str, str],
        files: Sequence[DataFile],
        removed: Sequence[StoredFile] = (),
    ) -> None:
        self._write("append", writer, checkpoint_id, properties, files, removed)

    def replace(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        if str(self.log.version()) != self.base:
            raise LostRaceError(f"version {self.log.version()}, not {self.base}")
        self._write("overwrite", writer, checkpoint_id, properties, files)

    def _write(
        self,
        mode: str,
        writer: str,
        checkpoint_id: int,
        properties: dict[str, str],
        files: Sequence[DataFile],
        removed: Sequence[StoredFile] = (),
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(data_change=True, **file.entry) for file in files
        ]
        actions += [
            RemoveAction(
                file.handle["path"], True, now_ms, size=file.size, partition_values=file.handle["partition"]
            )
            for file in removed
        ]
        mark = Transaction(writer, checkpoint_id, now_ms)
        # Rows that another commit has added meanwhile must not be replaced, or stay beside new ones of their key, unseen.
        tries = 0 if mode == "overwrite" or self.alone else None
        try:
            self.log.create_write_transaction(
                actions, mode, self.log.schema(), list(self._keys),
                commit_properties=CommitProperties(
                    custom_metadata=dict(properties), max_commit_retries=tries, app_transactions=[mark]
                ),
            )  # fmt: skip
        except CommitFailedError as err:
            raise LostRaceError(str(err)) from None
        except (DeltaError, OSError) as err:
            raise failed("a commit to a Delta table failed", err, self._where) from err

    def close(self) -> None:
        """Does nothing: delta-rs keeps no connection open."""

    def after_commit(self, name: Callable[[], str]) -> None:
        if self._options.get("auto-compaction", "").lower() != "true":
            return
        from deltalake.exceptions import DeltaError

        try:
            # self.log is the version before the commit, whose files would stay small.
            done = open_delta(self._options).optimize.compact(target_size=self.target_bytes)
            _log.info(
                "delta_compacted", path=self._options["table-path"], files=done.get("numFilesRemoved", 0)
            )
        except DeltaError as err:
            # Another commit came first. The next round compacts these files, too.
            _log.warning("delta_compaction_failed", path=self._options["table-path"], error=err)


def checked_partitions(schema: pa.Schema, names: Sequence[str], where: str) -> None:
    """Raises ConnectorError for a column of a type by which Delta tables cannot be partitioned."""
    for name in names:
        type_ = schema.field(name).type
        if at.is_nested(type_) or at.is_binary(type_) or at.is_floating(type_):
            raise ConnectorError(
                f"a Delta table cannot be partitioned by column '{name}' here",
                expected="a column of text, whole numbers, DECIMAL, DATE, TIMESTAMP or BOOLEAN",
                got=str(type_),
                where=where,
            )
