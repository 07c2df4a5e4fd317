"""Reads tables of local files with Spark's own readers, for the formats that declare one (Parquet, ORC).

Our connector reads CSV and JSON: Spark's readers give other values (docs/spark.md) and are slower.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as st

from penstock.formats import get_format
from penstock.spark.frames import Frame, col
from penstock.spark.graph import ARRIVAL
from penstock.spark.tables import ARRIVAL_BITS, TableRead
from penstock.spark.typemap import column_names, spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from penstock.connectors.filesystem.partitions import FoundFile, Partitioning
    from penstock.formats.api import FileFormat, SparkFiles

#: If a table has more files, the order of its files is Spark's.
_MAX_ORDERED_FILES = 256
#: The footers of at most this many files are read one after the other; those of more files, in parallel.
_FEW_FILES = 8


def scan(session: SparkSession, table: TableRead) -> Frame | None:
    """A table of local files by Spark's own reader; None if Spark would give other values than our
    connector."""
    from penstock.connectors.base import TableInfo
    from penstock.connectors.filesystem.opening import open_files
    from penstock.connectors.filesystem.partitions import Partitioning, found_files
    from penstock.connectors.filesystem.paths import LocalFiles

    spec = table.spec
    stored = get_format(spec.options.get("format"), where="connector 'filesystem'").files
    kind = None if stored is None else stored.spark
    if stored is None or kind is None or spec.metadata or spec.pushed or table.time:
        return None
    if table.arrival and not kind.row_index:
        return None
    files, pattern = open_files(spec.options["path"], spec.options)
    if not isinstance(files, LocalFiles):
        return None
    info = TableInfo(spec.schema, spec.options)
    found = [f for f in found_files(info, files, pattern) if f.kept]
    paths = [f.info.path for f in found]
    if not paths:
        return None  # Our connector raises the error, or gives no rows.
    schema = table.schema
    partitioning = Partitioning.of(info)
    inside = schema if partitioning is None else _data(partitioning, found, schema)
    if inside is None:
        return None
    found_columns = _wanted(stored, kind, paths, inside)
    if found_columns is None:
        return None
    columns_of_files = iter(found_columns)
    wanted = [
        next(columns_of_files) if f.name in inside.names else st.StructField(f.name, st.StringType())
        for f in schema.fields
    ]
    # With a schema Spark plans without reading a file, and reads only those fields of a struct that the
    # schema has.
    reader = session.read.format(kind.name).schema(st.StructType(wanted))
    if partitioning is not None:
        reader = reader.option("basePath", pattern)
    df = reader.load(paths)
    names = column_names(schema)
    types = [spark_type(f.type) for f in schema.fields]
    same = names == [f.name for f in wanted] and types == [f.dataType for f in wanted]
    if same and not table.arrival and partitioning is None:
        return Frame(df, schema)
    columns = [
        (
            _fit(col(f.name), f.dataType, field.type)
            if partitioning is None or f.name not in partitioning.keys
            else F.when(col(f.name) != partitioning.default_name, col(f.name)).cast(spark_type(field.type))
        ).alias(n)
        for f, field, n in zip(wanted, schema.fields, names, strict=True)
    ]
    if table.arrival:
        columns.append(_file_arrival(paths).alias(ARRIVAL))
    return Frame(df.select(*columns), schema, False, table.arrival)


#: Types of partition columns whose values Spark reads from a folder's name as we do.
_PARTITION_TYPES = (
    t.CharType, t.VarCharType, t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType, t.BooleanType, t.DateType,
    t.DecimalType,
)  # fmt: skip
#: The value in a folder's name that Spark takes for NULL, even if the table names another default partition.
_SPARKS_DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def _data(partitioning: Partitioning, found: Sequence[FoundFile], schema: t.Schema) -> t.Schema | None:
    """The columns of ``schema`` that are stored in the files; None if Spark would read another partition
    value than ours."""
    keys = [f for f in schema.fields if f.name in partitioning.keys]
    if not all(isinstance(f.type, _PARTITION_TYPES) for f in keys):
        return None
    if len(keys) == len(schema) or any(_SPARKS_DEFAULT in file.texts for file in found):
        return None
    return t.Schema(tuple(f for f in schema.fields if f.name not in partitioning.keys))


def _wanted(
    files: FileFormat, kind: SparkFiles, paths: list[str], schema: t.Schema
) -> list[st.StructField] | None:
    """The columns that Spark is asked to read from every file. None if a file has other columns, for which
    Spark would silently give NULLs or guesses, or is not a file of this format (our connector then raises the
    error)."""
    wanted: list[st.StructField] | None = None
    for found in _schemas(files, paths) or ():
        actual = _spark_schema(found, nanoseconds=kind.nanoseconds)
        fields = []
        for field in schema.fields:
            if field.name not in actual.names:
                return None
            clipped = _clipped(actual[field.name].dataType, field.type, kind)
            if clipped is None:
                return None
            fields.append(st.StructField(field.name, clipped))
        if wanted is not None and wanted != fields:
            return None
        wanted = fields
    return wanted


def _schemas(files: FileFormat, paths: list[str]) -> list[pa.Schema] | None:
    """The distinct schemas of all files; None if one of them is not a file of this format."""
    if len(paths) <= _FEW_FILES:
        found = [files.stored_schema(p) for p in paths]
    else:
        with ThreadPoolExecutor(_FEW_FILES) as pool:
            found = list(pool.map(files.stored_schema, paths))
    different: list[pa.Schema] = []
    for schema in found:
        if schema is None:
            return None
        if not any(schema.equals(other) for other in different):
            different.append(schema)
    return different


def _spark_schema(found: pa.Schema, *, nanoseconds: bool) -> st.StructType:
    """A file's columns as Spark reads them. ``nanoseconds``: the format has no nanoseconds, although Arrow
    shows them."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    fields = []
    for field in found:
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns" and not nanoseconds:
            continue  # Spark reads no nanoseconds
        # A column of a type that Spark does not have is left out. A query that needs it reads by our
        # connector.
        with contextlib.suppress(PySparkTypeError):
            fields.append(st.StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True)))
    return st.StructType(fields)


def _clipped(have: st.DataType, want: t.LogicalType, kind: SparkFiles) -> st.DataType | None:
    """The type that Spark is asked to read: the type in the file, with only the declared fields of structs.
    None if the values would differ from our connector's."""
    wanted = spark_type(want)
    if isinstance(want, t.RowType) and isinstance(have, st.StructType):
        fields = []
        for field in want.fields:
            part = _clipped(have[field.name].dataType, field.type, kind) if field.name in have.names else None
            if part is None:
                return None
            fields.append(st.StructField(field.name, part))
        return st.StructType(fields)
    if isinstance(want, (t.TimeType, *t.INTERVALS)):  # to Spark these are integers
        return None
    if not kind.timestamps and _has_timestamp(have):
        return None
    if have == wanted or (isinstance(have, _TIMESTAMPS) and isinstance(wanted, _TIMESTAMPS)):
        return have
    if isinstance(have, _INTEGERS) and isinstance(wanted, _INTEGERS):
        return have if _INTEGERS.index(type(wanted)) > _INTEGERS.index(type(have)) else None
    return None


def _has_timestamp(type_: st.DataType) -> bool:
    match type_:
        case st.ArrayType():
            return _has_timestamp(type_.elementType)
        case st.MapType():
            return _has_timestamp(type_.keyType) or _has_timestamp(type_.valueType)
        case st.StructType():
            return any(_has_timestamp(f.dataType) for f in type_.fields)
    return isinstance(type_, _TIMESTAMPS)


_TIMESTAMPS = (st.TimestampType, st.TimestampNTZType)
_INTEGERS = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)


def _file_arrival(paths: list[str]) -> Column:
    row = F.col("_metadata.row_index").cast("bigint")
    if len(paths) == 1:
        return row
    if len(paths) > _MAX_ORDERED_FILES:
        return F.monotonically_increasing_id()
    order: list[Column] = []
    for number, path in enumerate(paths):
        order += [F.lit(_uri_path(path)), F.lit(number << ARRIVAL_BITS).cast("bigint")]
    # Spark writes file:/ or file:///, depending on the origin of the name.
    name = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "/")
    # Without the error, rows of a file that is not in the map would silently lose their order.
    unknown = F.raise_error(F.concat(F.lit("a file that was not listed: "), name)).cast("bigint")
    return F.coalesce(F.create_map(*order)[name], unknown) + row


def _uri_path(path: str) -> str:
    """The path as Java's URI writes it: letters beyond ASCII stay, and more signs stay than ``quote``
    leaves."""
    return "".join(
        c if ord(c) > 0x7F and c.isprintable() else quote(c, safe="/-_.!~*'():@&=+$,;") for c in path
    )


def _fit(value: Column, have: st.DataType, want: t.LogicalType) -> Column:
    """A column that was read in the type of ``_clipped``, cast to the declared type."""
    wanted = spark_type(want)
    if have == wanted:
        return value
    if isinstance(want, t.RowType) and isinstance(have, st.StructType):
        parts = [
            _fit(value.getField(f.name), have[f.name].dataType, f.type).alias(f.name) for f in want.fields
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    return value.cast(wanted)
