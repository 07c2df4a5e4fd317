"""Reads and writes databases with Spark's own JDBC reader and writer, and the jar of the database's driver.

Our connector serves SQLite instead: no wheel has a Java driver for SQLite, and our connector defines what its
values mean (0 and 1 as BOOLEAN, texts as times).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types as st

from penstock.connectors.jdbc.connector import only_spark
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.errors import SpecError, UnsupportedError, nearest
from penstock.secrets import resolved
from penstock.spark.frames import Frame, col
from penstock.spark.session import is_connect
from penstock.spark.typemap import column_names, spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, SparkSession

    from penstock.spark.tables import TableRead, TableWrite

_JARS = "spark.jars"
_PARTITIONED = {
    "partitionColumn": "scan.partition.column",
    "numPartitions": "scan.partition.num",
    "lowerBound": "scan.partition.lower-bound",
    "upperBound": "scan.partition.upper-bound",
}
_NUMBERS = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.DecimalType,
    st.FloatType,
    st.DoubleType,
)


def scan(session: SparkSession, table: TableRead) -> Frame | None:
    """The table by Spark's JDBC reader; None if our connector reads it."""
    spec = table.spec
    if not only_spark(spec.options):
        return None
    options = _options(session, spec.options, table.job.config)
    for key, name in _PARTITIONED.items():
        if name in spec.options:
            options[key] = spec.options[name]
    df = session.read.format("jdbc").options(**options).load()
    # Databases change the case of names, so names are compared without case, as in SQL.
    there = {f.name.lower(): f for f in df.schema.fields}
    columns = []
    for field, name in zip(table.schema.fields, column_names(table.schema), strict=True):
        found = there.get(field.name.lower())
        if found is None:
            raise SpecError(
                f"table '{spec.options['table-name']}' of the database has no column '{field.name}'",
                expected="one of " + ", ".join(f.name for f in df.schema.fields),
                got=repr(field.name),
                where="connector 'jdbc'",
                remedy=nearest(field.name, list(there)),
            )
        columns.append(_declared(field, found).alias(name))
    return Frame(df.select(*columns), table.schema).with_hidden(time=table.time, arrival=table.arrival)


def write(frame: Frame, table: TableWrite) -> bool:
    """Writes the rows with Spark's JDBC writer, at least once: a task that Spark repeats inserts its rows
    again. Returns False, without writing, if our connector writes the table."""
    spec = table.spec
    if not only_spark(spec.options):
        return False
    if OPTIONS.read_one(spec.options, "sink.truncate"):
        raise UnsupportedError(
            "TRUNCATE TABLE through Spark's JDBC",
            expected="a url of PostgreSQL, MySQL, MariaDB or SQLite",
            got=spec.options["url"],
            where="connector 'jdbc'",
            remedy="delete the rows in the database",
        )
    if spec.keys:
        raise UnsupportedError(
            "writing by key through Spark's JDBC",
            expected="a table without PRIMARY KEY: Spark inserts, it does not update",
            got="PRIMARY KEY (" + ", ".join(spec.schema.names[k] for k in spec.keys) + ")",
            where="connector 'jdbc'",
            remedy="declare the table without it, or merge in the database",
        )
    options = _options(frame.df.sparkSession, spec.options, table.job.config)
    options["batchsize"] = spec.options.get("sink.buffer-flush.max-rows", "1000")
    rows = frame.df.select(
        *(c.alias(f.name) for c, f in zip(frame.columns(), spec.schema.fields, strict=True))
    )
    rows.write.format("jdbc").options(**options).mode("append").save()
    return True


def _options(session: SparkSession, options: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    if is_connect(session):
        # A classic session was started with the jars; a Connect session gets them now.
        for jar in filter(None, config.get(_JARS, "").split(",")):
            session.addArtifacts(jar.strip())
    typed = OPTIONS.read(resolved(options, where="connector 'jdbc'"))
    made = {
        "url": typed["url"],
        "dbtable": typed["table-name"],
        "driver": typed["driver"],
        "fetchsize": str(typed["scan.fetch-size"]),
        "preferTimestampNTZ": "true",
    }
    return made | {
        k: typed[name] for k, name in (("user", "username"), ("password", "password")) if typed[name]
    }


def _declared(field: t.Field, found: st.StructField) -> Column:
    """The database's column in the declared type. Raises SpecError if the conversion could lose values."""
    have: Any = found.dataType
    want: Any = spark_type(field.type)
    value = col(found.name)
    if have == want:
        return value
    times = (st.TimestampType, st.TimestampNTZType)
    numbers = isinstance(have, _NUMBERS) and isinstance(want, _NUMBERS) and _holds(want, have)
    texts = isinstance(have, (st.StringType, st.VarcharType, st.CharType)) and isinstance(want, st.StringType)
    if not (numbers or texts or (isinstance(have, times) and isinstance(want, times))):
        raise SpecError(
            f"column '{field.name}' of the database does not fit its declaration",
            expected=f"{field.type} (in Spark {want.simpleString()})",
            got=have.simpleString(),
            where="connector 'jdbc'",
            remedy="declare the column with a type that holds the database's values",
        )
    return value.cast(want)


def _holds(want: Any, have: Any) -> bool:
    """Whether the type ``want`` contains every number of the type ``have``."""
    if isinstance(want, st.DoubleType):
        return not isinstance(have, (st.DecimalType, st.LongType))
    if isinstance(have, (st.FloatType, st.DoubleType)) or isinstance(want, st.FloatType):
        return False

    def digits(type_: Any) -> tuple[int, int]:
        if isinstance(type_, st.DecimalType):
            return type_.precision - type_.scale, type_.scale
        return {st.ByteType: 3, st.ShortType: 5, st.IntegerType: 10, st.LongType: 19}[type(type_)], 0

    whole, fraction = digits(have)
    if isinstance(want, st.DecimalType):
        return want.precision - want.scale >= whole and want.scale >= fraction
    return not isinstance(have, st.DecimalType) and digits(want)[0] >= whole
