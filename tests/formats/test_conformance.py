"""The built-in formats, through the kit that outsiders run theirs through."""

from __future__ import annotations

from penstock.formats import get_format
from penstock.testing.conformance import FormatConformance
from penstock.types import Schema
from penstock.types import logical as t


class TestJson(FormatConformance):
    def format(self):
        return get_format("json")


class TestCsv(FormatConformance):
    keeps_null_text = False

    def format(self):
        return get_format("csv")


class TestCsvWithNulls(FormatConformance):
    options = {"csv.null-literal": "\\N", "csv.header": "true"}

    def format(self):
        return get_format("csv")


class TestRaw(FormatConformance):
    keeps_null_text = False
    schema = Schema.of(("line", t.VarCharType()))
    finds_bad_records = False

    def format(self):
        return get_format("raw")

    def rows(self, count):
        return [(f"line {i}",) for i in range(count)]


class TestArrow(FormatConformance):
    def format(self):
        return get_format("arrow")


class TestParquet(FormatConformance):
    options = {"parquet.row-group-rows": "40"}

    def format(self):
        return get_format("parquet")


class TestOrc(FormatConformance):
    def format(self):
        return get_format("orc")


class TestAvro(FormatConformance):
    def format(self):
        return get_format("avro")


class TestAvroWithZonedTimes(FormatConformance):
    options = {"avro.timestamp_mapping.legacy": "false", "avro.codec": "null"}

    def format(self):
        return get_format("avro")


class TestAvroAsJson(FormatConformance):
    options = {"avro.encoding": "json", "avro.codec": "deflate"}

    def format(self):
        return get_format("avro")
