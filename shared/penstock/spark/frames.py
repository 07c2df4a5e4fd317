"""A DataFrame with the SQL schema of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.spark.graph import ARRIVAL, TIME
from penstock.spark.typemap import column_names, spark_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from penstock.types.logical import LogicalType, Schema


def col(name: str) -> Column:
    """The column of exactly this name."""
    return F.col("`" + name.replace("`", "``") + "`")


def micros(value: Column, type_: LogicalType) -> Column:
    """A time column as BIGINT µs."""
    if isinstance(type_, t.TimestampType):
        return F.unix_micros(value.cast("timestamp"))
    return F.unix_micros(value) if isinstance(type_, t.TimestampLtzType) else value


def from_micros(value: Column, type_: LogicalType) -> Column:
    """A column of BIGINT µs as TIMESTAMP or TIMESTAMP_LTZ."""
    made = F.timestamp_micros(value)
    return made.cast("timestamp_ntz") if isinstance(type_, t.TimestampType) else made


@dataclass(frozen=True)
class Frame:
    """A DataFrame with the schema of its rows. ``df`` has the columns of ``schema`` under ``column_names``,
    then ``__time`` if ``time`` and ``__arrival`` if ``arrival`` (BIGINT, NULL where unknown)."""

    df: DataFrame
    schema: Schema
    time: bool = False
    arrival: bool = False

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns in Spark."""
        return column_names(self.schema)

    @cached_property
    def _columns(self) -> list[Column]:
        # Every call into Spark's functions costs a round trip or two to Java.
        return [col(n) for n in self.names]

    def column(self, index: int) -> Column:
        """Column ``index`` as a Spark column."""
        return self._columns[index]

    def columns(self) -> list[Column]:
        """All visible columns as Spark columns."""
        return list(self._columns)

    def over(self, df: DataFrame) -> Frame:
        """A frame with the same columns over ``df``, whose columns have the same names."""
        made = replace(self, df=df)
        made.__dict__["_columns"] = self._columns
        return made

    def hidden(self) -> list[Column]:
        """The hidden columns (event time, order of arrival) that the frame has."""
        return [*([col(TIME)] if self.time else []), *([col(ARRIVAL)] if self.arrival else [])]

    def select(self, schema: Schema, columns: Sequence[Any]) -> Frame:
        """A frame with other columns over the same rows. The hidden columns stay."""
        mine = {id(c): n for c, n in zip(self._columns, self.names, strict=True)}
        named = [
            c if mine.get(id(c)) == n else c.alias(n)
            for c, n in zip(columns, column_names(schema), strict=True)
        ]
        return replace(self, df=self.df.select(*named, *self.hidden()), schema=schema)

    def renamed(self, schema: Schema) -> Frame:
        """The same columns under the names of ``schema``, whose types have the same storage."""
        if column_names(schema) == self.names:
            return replace(self, schema=schema)
        return self.select(schema, self.columns())

    def with_hidden(self, *, time: bool, arrival: bool) -> Frame:
        """The frame with exactly the hidden columns asked for. An unknown event time is NULL; an unknown
        order of arrival is the order of the partitions."""
        if time == self.time and arrival == self.arrival:
            return self
        extra = []
        if time:
            extra.append((col(TIME) if self.time else F.lit(None).cast("bigint")).alias(TIME))
        if arrival:
            known = col(ARRIVAL) if self.arrival else F.monotonically_increasing_id()
            extra.append(known.alias(ARRIVAL))
        return Frame(self.df.select(*self.columns(), *extra), self.schema, time, arrival)


def typed_null(type_: LogicalType) -> Column:
    """A NULL of this type."""
    return F.lit(None).cast(spark_type(type_))
