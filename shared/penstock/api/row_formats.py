"""Schemas that encode rows as messages and decode them, under Flink's names: JSON, CSV, Avro, and one field
of a row unchanged.

Each schema names one of Penstock's formats, with its options. A deserialization schema knows the columns too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.api.serialization import ByteArraySchema, SimpleStringSchema
from penstock.api.typeinfo import Types, schema_of
from penstock.errors import SpecError, SpecValueError, UnsupportedError

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType


@dataclass(frozen=True)
class RowSchema:
    """``format``: Penstock's name of the format; ``options``: the format's options, as in a table;
    ``type_info``: the row's type, if known."""

    format: str
    type_info: Any = None
    options: dict[str, str] = field(default_factory=dict)


class JsonRowSerializationSchema(RowSchema):
    """Rows as JSON objects. ``JsonRowSerializationSchema.builder()``."""

    @staticmethod
    def builder() -> Any:
        """A builder; ``build()`` makes the schema."""
        return JsonRowSerializationSchema.Builder()

    class Builder:
        """Collects what the schema needs."""

        def __init__(self) -> None:
            self._type_info: Any = None

        def with_type_info(self, type_info: LogicalType) -> Any:
            """The rows' type: ``Types.ROW(…)`` or ``Types.ROW_NAMED(…)``."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema."""
            return JsonRowSerializationSchema("json", self._type_info)


class JsonRowDeserializationSchema(RowSchema):
    """JSON objects as rows. ``JsonRowDeserializationSchema.builder()``."""

    @staticmethod
    def builder() -> Any:
        """A builder; ``build()`` makes the schema."""
        return JsonRowDeserializationSchema.Builder()

    class Builder:
        """Collects what the schema needs."""

        def __init__(self) -> None:
            self._made = JsonRowDeserializationSchema("json")

        def type_info(self, type_info: LogicalType) -> Any:
            """The rows' type: ``Types.ROW(…)`` or ``Types.ROW_NAMED(…)``."""
            self._made = replace(self._made, type_info=type_info)
            return self

        def json_schema(self, json_schema: str) -> Any:
            """Flink's way to give the type as a JSON schema. Always raises UnsupportedError: name the columns
            with ``type_info``."""
            raise UnsupportedError(
                "a row's type as a JSON schema",
                expected="type_info(Types.ROW_NAMED([…], […]))",
                got=json_schema[:80],
            )

        def fail_on_missing_field(self) -> Any:
            """Treat a record with a missing field as a bad record, instead of reading NULL."""
            return self._set("json.fail-on-missing-field")

        def ignore_parse_errors(self) -> Any:
            """Skip records that do not parse."""
            return self._set("json.ignore-parse-errors")

        def _set(self, option: str) -> Any:
            self._made = replace(self._made, options={**self._made.options, option: "true"})
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema. SpecError without a type."""
            if self._made.type_info is None:
                expected = "type_info(Types.ROW_NAMED([…], […]))"
                raise SpecError("rows without a type", expected=expected, got="no type")
            return self._made


class _CsvBuilder:
    _made: Any

    def set_field_delimiter(self, delimiter: str) -> Any:
        """One character between fields; ``,`` without it."""
        return self._set("csv.field-delimiter", delimiter)

    def set_quote_character(self, c: str) -> Any:
        """The character around fields that contain delimiters."""
        return self._set("csv.quote-character", c)

    def set_null_literal(self, s: str) -> Any:
        """The text that means NULL."""
        return self._set("csv.null-literal", s)

    def _set(self, option: str, value: str) -> Any:
        self._made = replace(self._made, options={**self._made.options, option: value})
        return self

    def build(self) -> Any:
        """The schema."""
        return self._made


class CsvRowSerializationSchema(RowSchema):
    """Rows as lines of CSV. ``CsvRowSerializationSchema.Builder(type_info)``."""

    class Builder(_CsvBuilder):
        """``type_info``: the rows' type."""

        def __init__(self, type_info: LogicalType) -> None:
            self._made = CsvRowSerializationSchema("csv", type_info)

        def set_line_delimiter(self, delimiter: str) -> Any:
            """The end of a row. A message is one row without an end of line, so only ``""`` is accepted."""
            if delimiter:
                raise UnsupportedError(
                    "a line end in a message", expected="''", got=repr(delimiter), remedy="leave it out"
                )
            return self


class CsvRowDeserializationSchema(RowSchema):
    """Lines of CSV as rows. ``CsvRowDeserializationSchema.Builder(type_info)``."""

    class Builder(_CsvBuilder):
        """``type_info``: the rows' type."""

        def __init__(self, type_info: LogicalType) -> None:
            self._made = CsvRowDeserializationSchema("csv", type_info)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Any:
            """Whether records that do not parse are skipped."""
            return self._set("csv.ignore-parse-errors", "true" if ignore_parse_errors else "false")


class _AvroRowSchema(RowSchema):
    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        if avro_schema_string is None:
            raise UnsupportedError(
                "Avro rows by a class of Java",
                expected='avro_schema_string=\'{"type": "record", …}\'',
                got=repr(record_class),
            )
        super().__init__(
            "avro", avro_row_type(avro_schema_string), {"avro.timestamp_mapping.legacy": "false"}
        )


class AvroRowSerializationSchema(_AvroRowSchema):
    """Rows as Avro records. ``avro_schema_string``: their schema; ``record_class`` names a class of Java and is refused."""


class AvroRowDeserializationSchema(_AvroRowSchema):
    """Avro records as rows. ``avro_schema_string``: their schema; ``record_class`` names a class of Java and is refused."""


@dataclass(frozen=True)
class RowFieldExtractorSchema:
    """One field of a row, which holds bytes, as it is. ``field_index``: from 0."""

    field_index: int

    def __post_init__(self) -> None:
        if not isinstance(self.field_index, int) or self.field_index < 0:
            raise SpecValueError(
                "Field index must be non-negative", expected="a number from 0 on", got=repr(self.field_index)
            )


def as_row_schema(schema: Any, what: str) -> RowSchema:
    """A schema of this module, or one of bare bytes or texts. SpecError for anything else. ``what``: for the error."""
    match schema:
        case RowSchema():
            return schema
        case SimpleStringSchema():
            return RowSchema("raw", Types.STRING())
        case ByteArraySchema():
            return RowSchema("raw", Types.BYTES())
    raise SpecError(
        f"not a schema of {what}",
        expected="SimpleStringSchema, ByteArraySchema, or JsonRow…, CsvRow… and AvroRow…Schema",
        got=repr(schema),
    )


def field_names(schema: RowSchema) -> list[str]:
    """The names of the row's fields, in order."""
    return list(schema_of(schema.type_info).names)


# -- Avro -------------------------------------------------------------------------------------------


def avro_row_type(text: str) -> Any:
    """The row type of an Avro record. SpecError if the schema is no record; UnsupportedError for a type
    without a column type, or one that the format ``avro`` would write differently."""
    try:
        schema = json.loads(text)
    except ValueError as err:
        raise SpecError("not an Avro schema", expected="JSON", got=str(err)) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SpecError("not an Avro record", expected='{"type": "record", …}', got=text[:80])
    return _avro_type(schema)


def _avro_type(node: Any) -> Any:
    from penstock.types import logical as t

    match node:
        case ["null", inner]:
            return _avro_type(inner).with_nullable(True)
        case {"type": "record", "fields": fields}:
            made = tuple(t.Field(f["name"], _avro_type(f["type"])) for f in fields)
            return t.RowType(made, nullable=False)
        case {"type": "array", "items": items}:
            return t.ArrayType(_avro_type(items), nullable=False)
        case {"type": "map", "values": values}:
            return t.MapType(t.VarCharType(nullable=False), _avro_type(values), nullable=False)
        case {"logicalType": "decimal", "type": "bytes", "precision": precision}:
            return t.DecimalType(precision, node.get("scale", 0), nullable=False)
        case {"logicalType": str(logical)} if logical in _AVRO_TIMES:
            return _AVRO_TIMES[logical]().with_nullable(False)
        case {"type": str(plain)} if "logicalType" not in node and plain in _AVRO_PLAIN:
            return _avro_type(plain)
        case str() if node in _AVRO_PLAIN:
            return _AVRO_PLAIN[node]().with_nullable(False)
    raise UnsupportedError(
        "an Avro type without a column type",
        expected='records, arrays, maps, numbers, texts, bytes, times and decimals; a union only as ["null", T]',
        got=json.dumps(node)[:120],
    )


def _times() -> dict[str, Any]:
    from penstock.types import logical as t

    return {
        "date": t.DateType, "time-millis": lambda: t.TimeType(3), "timestamp-millis": lambda: t.TimestampLtzType(3),
        "timestamp-micros": lambda: t.TimestampLtzType(6), "local-timestamp-millis": lambda: t.TimestampType(3),
        "local-timestamp-micros": lambda: t.TimestampType(6),
    }  # fmt: skip


_AVRO_TIMES = _times()
_AVRO_PLAIN: dict[str, Any] = {
    "boolean": Types.BOOLEAN, "int": Types.INT, "long": Types.LONG, "float": Types.FLOAT, "double": Types.DOUBLE,
    "string": Types.STRING, "bytes": Types.BYTES,
}  # fmt: skip
