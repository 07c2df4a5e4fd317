"""Writes an Iceberg table: Penstock writes the data files, pyiceberg writes manifests and commits."""

from __future__ import annotations

import os
import shutil
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.iceberg.catalog import open_catalog, place, reached, table_name
from penstock.connectors.iceberg.compaction import Compaction, compact
from penstock.connectors.iceberg.creating import create
from penstock.connectors.iceberg.rewriting import live_files, replacement, rows_of, stored_file
from penstock.connectors.lakehouse.table import DataFile, LakeTable, LostRaceError, Partition, StoredFile
from penstock.errors import ConnectorError, ExternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from pyiceberg.table import Table

#: The prefix of the table property that holds the last checkpoint of a sink. A property is used because
#: snapshots expire.
MARK = "penstock.committed."
#: The folder of notes below the table's location.
NOTES_FOLDER = "penstock"
#: So many bytes of a file are stored at a time.
_UPLOAD_BYTES = 8 << 20
#: The types of partition values that a split and a note can hold.
_PLAIN = (int, str, float, bool, type(None))


def arrow_schema(table: Table) -> pa.Schema:
    """The table's columns as Arrow's, with the ids that Parquet files hold."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_small(field) for field in schema_to_pyarrow(table.schema(), include_field_ids=True)])


def _small(field: pa.Field) -> pa.Field:
    """The field with 32-bit offsets for texts and lists, as batches have them. The file is the same, and
    writing needs no copy."""
    return field.with_type(_small_type(field.type))


def _small_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_large_list(type_) or pa.types.is_list(type_):
        return pa.list_(_small(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_small(type_.key_field), _small(type_.item_field))
    if pa.types.is_struct(type_):
        return pa.struct([_small(inner) for inner in type_])
    return type_


def check_partitions(table: Table, where: str) -> None:
    """Raises UnsupportedError for a table whose partition values cannot be computed here."""
    schema = table.schema()
    for field in table.spec().fields:
        type_ = schema.find_type(field.source_id)
        try:
            made = field.transform.pyarrow_transform(type_)
            made(pa.nulls(1, _source_type(table, field.source_id)))
        except Exception as err:  # pyiceberg raises several kinds of errors for this
            raise UnsupportedError(
                f"a table partitioned by {field.transform} of '{schema.find_column_name(field.source_id)}'",
                expected="identity, or year, month, day, hour, bucket, truncate with the library pyiceberg-core",
                got=f"{type(err).__name__}: {err}",
                where=where,
                remedy="pip install 'penstock[iceberg]' brings the library; other partitions are written by others",
            ) from None


def _source_type(table: Table, source_id: int) -> pa.DataType:
    name = table.schema().find_column_name(source_id)
    return arrow_schema(table).field(name).type


def _local(path: str) -> str | None:
    """The path in a local file system; None: the file lies elsewhere."""
    scheme, separator, rest = path.partition("://")
    return rest if scheme == "file" else None if separator else path


class IcebergLake(LakeTable):
    """The table of ``options``, made with the columns ``declared`` if it is not there."""

    def __init__(
        self,
        options: Mapping[str, str],
        declared: pa.Schema,
        partitions: Sequence[str],
        codec: str,
        *,
        keys: Sequence[str] = (),
        compaction: Compaction | None = None,
    ) -> None:
        self.where = place(options)
        self._compaction = compaction
        if compaction is not None:
            self.maintenance_every = compaction.every_commits
        self.base = options.get("snapshot-id", "")
        self._name = table_name(options)
        self._catalog = open_catalog(options.get("catalog-name", "default"), options)
        create(self._catalog, options, declared, partitions, keys)
        self._table = self._load()
        self._schema = self._table.schema()
        self._spec = self._table.spec()
        self.row_schema = self.file_schema = arrow_schema(self._table)
        self.parquet = {"compression": codec, "store_decimal_as_integer": True}
        self._plan()

    def _load(self) -> Table:
        return reached(lambda: self._catalog.load_table(self._name), self.where)

    def _plan(self) -> None:
        from pyiceberg.io.pyarrow import compute_statistics_plan, parquet_path_to_id_mapping
        from pyiceberg.table.locations import load_location_provider

        self._statistics = compute_statistics_plan(self._schema, self._table.properties)
        self._columns = parquet_path_to_id_mapping(self._schema)
        self._locations = load_location_provider(self._table.location(), self._table.properties)
        self._keys: dict[str, Any] = {}

    # -- rows ---------------------------------------------------------------------------

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        fields = self._spec.fields
        if not fields:
            yield Partition("", ()), rows
            return
        keys = []
        for field in fields:
            column = rows.column(self._schema.find_column_name(field.source_id))
            keys.append(field.transform.pyarrow_transform(self._schema.find_type(field.source_id))(column))
        names = [str(i) for i in range(len(keys))]
        for values in pa.table(keys, names=names).group_by(names).aggregate([]).to_pylist():
            mask = None
            for name, key in zip(names, keys, strict=True):
                same = (
                    pc.is_null(key)
                    if values[name] is None
                    else pc.equal(key, pa.scalar(values[name], key.type))
                )
                mask = same if mask is None else pc.and_kleene(mask, same)
            yield self._partition(list(values.values())), rows.filter(pc.fill_null(mask, False))

    def _partition(self, values: list[Any]) -> Partition:
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        text = repr(values)
        if text not in self._keys:
            pairs = zip(self._spec.fields, values, strict=True)
            self._keys[text] = PartitionKey(
                [PartitionFieldValue(field, value) for field, value in pairs], self._spec, self._schema
            )
        record = self._keys[text].partition
        inner = tuple(record[i] for i in range(len(values)))
        if not all(isinstance(value, _PLAIN) for value in inner):
            raise UnsupportedError(
                "a partition by a column of this type",
                expected="whole numbers, texts, times or BOOLEAN",
                got=repr(values),
                where=self.where,
            )
        return Partition(text, inner)

    def new_file(self, partition: Partition, name: str) -> tuple[str, Any | None]:
        path = self._locations.new_data_location(name, self._keys.get(partition.key))
        return path, None if _local(path) is None else self._table.io.new_output(path).create(overwrite=True)

    def upload(self, path: str, file: IO[bytes]) -> None:
        def put() -> None:
            with self._table.io.new_output(path).create(overwrite=True) as out:
                shutil.copyfileobj(file, out, _UPLOAD_BYTES)

        reached(put, self.where)

    def sync(self, path: str) -> None:
        local = _local(path)
        for target in () if local is None else (local, os.path.dirname(local)):
            handle = os.open(target, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def entry(self, path: str, size: int, partition: Partition, footer: pq.FileMetaData) -> dict[str, Any]:
        from pyiceberg.io.pyarrow import data_file_statistics_from_parquet_metadata

        found = data_file_statistics_from_parquet_metadata(footer, self._statistics, self._columns)
        return {
            "size": size,
            "spec": self._spec.spec_id,
            "partition": list(partition.values),
            "statistics": found.to_serialized_dict(),
        }

    def delete(self, path: str) -> None:
        def delete() -> None:
            try:
                self._table.io.delete(path)
            except FileNotFoundError:
                pass  # an absent file is no error

        reached(delete, self.where)

    # -- notes --------------------------------------------------------------------------

    def _note(self, key: str) -> str:
        return f"{self._table.location().rstrip('/')}/{NOTES_FOLDER}/{key}"

    def put_note(self, key: str, data: bytes) -> None:
        path = self._note(key)

        def put() -> None:
            with self._table.io.new_output(path).create(overwrite=True) as out:
                out.write(data)

        reached(put, self.where)
        self.sync(path)

    def get_note(self, key: str) -> bytes | None:
        def get() -> bytes | None:
            try:
                with self._table.io.new_input(self._note(key)).open() as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        found: bytes | None = reached(get, self.where)
        return found

    def delete_note(self, key: str) -> None:
        self.delete(self._note(key))

    # -- log ----------------------------------------------------------------------------

    def committed(self, writer: str) -> int | None:
        self._table = self._load()
        if self._table.spec().spec_id != self._spec.spec_id:
            raise ConnectorError(
                "the table's partitions changed while a job writes into it",
                expected=str(self._spec),
                got=str(self._table.spec()),
                where=self.where,
                remedy="restart the job from its last checkpoint or a savepoint",
            )
        mark = self._table.properties.get(MARK + writer)
        return None if mark is None else int(mark)

    def live(self) -> list[StoredFile]:
        found: list[StoredFile] = reached(lambda: live_files(self._table, self.where), self.where)
        return found

    def staged(self, file: DataFile) -> StoredFile:
        from pyiceberg.table import FileScanTask

        made = self._data_file(file)
        made.spec_id = file.entry["spec"]
        return stored_file(self._table, FileScanTask(made))

    def rows(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows_of(self._table, file, columns)

    def commit(
        self,
        writer: str,
        checkpoint_id: int,
        properties: dict[str, str],
        files: Sequence[DataFile],
        removed: Sequence[StoredFile] = (),
    ) -> None:
        marks = {MARK + writer: str(checkpoint_id)}
        try:
            self._write(marks, properties, files, removed)
        except ExternalError as err:
            # The same error if the outcome is unknown: the next attempt reads the mark first, and a commit
            # that is still on its way can only succeed on the snapshot that was current.
            raise LostRaceError(str(err)) from err

    def replace(
        self, writer: str, checkpoint_id: int, properties: dict[str, str], files: Sequence[DataFile]
    ) -> None:
        found = self._table.current_snapshot()
        now = "" if found is None else str(found.snapshot_id)
        if now != self.base:
            raise LostRaceError(f"snapshot {now or '(none)'}, not {self.base or '(none)'}")
        self._write({MARK + writer: str(checkpoint_id)}, properties, files, self.live())

    def rewrite(
        self, properties: dict[str, str], files: Sequence[DataFile], removed: Sequence[StoredFile]
    ) -> None:
        """Make one commit that puts ``files`` in the place of the files ``removed``, which hold the same rows. LostRaceError
        if there was another commit since the table was read; ExternalError if the outcome is unknown."""
        self._write({}, properties, files, removed, moves=True)

    def read_again(self) -> None:
        """Read the table's newest metadata."""
        self._table = self._load()

    def _write(
        self,
        marks: dict[str, str],
        properties: dict[str, str],
        files: Sequence[DataFile],
        removed: Sequence[StoredFile],
        *,
        moves: bool = False,
    ) -> None:
        """Makes one commit with ``files`` and without the files ``removed``. ExternalError if its outcome is unknown."""
        from pyiceberg.exceptions import CommitFailedException

        table = self._table
        # pyiceberg would retry by itself after another commit, without reading that commit's mark.
        alone = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": alone})
        transaction = table.transaction()
        try:
            if marks:
                transaction.set_properties(marks)
            update = transaction.update_snapshot(snapshot_properties=properties)
            how = update.overwrite if removed else update.fast_append
            with replacement(transaction, properties) if moves else how() as change:
                for gone in removed:
                    change.delete_data_file(gone.handle.file)
                for file in files:
                    change.append_data_file(self._data_file(file))
            reached(transaction.commit_transaction, self.where)
        except CommitFailedException as err:
            raise LostRaceError(str(err)) from err

    def _data_file(self, file: DataFile) -> Any:
        from pyiceberg.manifest import DataFile as Entry
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        entry = file.entry
        made = Entry.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*entry["partition"]),
            file_size_in_bytes=entry["size"],
            sort_order_id=None,
            spec_id=entry["spec"],
            equality_ids=None,
            key_metadata=None,
            **entry["statistics"],
        )
        return made

    def close(self) -> None:
        self._catalog.close()

    def after_commit(self, name: Callable[[], str]) -> None:
        """Compacts where the options ask for it; the catalog maintains snapshots."""
        if self._compaction is not None:
            compact(self, self._compaction, name)
