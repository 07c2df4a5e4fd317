"""Formats by name: Penstock's own, those of installed packages, and import paths."""

from __future__ import annotations

from penstock.errors import ConnectorError
from penstock.formats.api import Format
from penstock.plugins import Register, instance_of

FORMATS: Register[Format] = Register(
    "format",
    "penstock.formats",
    builtin={
        "arrow": "penstock.formats.arrow:ArrowFormat",
        "avro": "penstock.formats.avro.format:AvroFormat",
        "avro-confluent": "penstock.formats.avro.confluent:AvroConfluentFormat",
        "canal-json": "penstock.formats.changelog.canal:CanalJsonFormat",
        "csv": "penstock.formats.csv:CsvFormat",
        "debezium-avro-confluent": "penstock.formats.changelog.debezium_avro:DebeziumAvroFormat",
        "debezium-json": "penstock.formats.changelog.debezium:DebeziumJsonFormat",
        "json": "penstock.formats.json:JsonFormat",
        "maxwell-json": "penstock.formats.changelog.maxwell:MaxwellJsonFormat",
        "msgpack": "penstock.formats.msgpack:MsgpackFormat",
        "ogg-json": "penstock.formats.changelog.ogg:OggJsonFormat",
        "orc": "penstock.formats.orc:OrcFormat",
        "parquet": "penstock.formats.parquet:ParquetFormat",
        "protobuf": "penstock.formats.protobuf.format:ProtobufFormat",
        "raw": "penstock.formats.raw:RawFormat",
    },
    make=instance_of(Format),
    expected="a penstock.formats.api.Format",
    error=ConnectorError,
)


def known_formats() -> list[str]:
    """The names of all formats, sorted."""
    return FORMATS.names()


def get_format(name: str | None, *, where: str = "") -> Format:
    """The format of that name or import path; if there is none, ConnectorError with the nearest name."""
    if not name:
        raise ConnectorError(
            "option 'format' is missing",
            expected="'format' = one of " + ", ".join(known_formats()),
            got="no such option",
            where=where or None,
            remedy="add 'format' = 'json'",
        )
    return FORMATS.find(name, where=where or None)


def message_format(name: str | None, *, where: str) -> Format:
    """A format for single messages; ConnectorError for one that has only files."""
    found = get_format(name, where=where)
    if not found.messages:
        raise ConnectorError(
            f"format '{name}' is for files, not for messages",
            expected="a format for messages: json, csv, raw, arrow, …",
            got=f"'format' = '{name}'",
            where=where,
            remedy="use 'arrow', which holds many rows in a message",
        )
    return found


def file_format(name: str | None, *, where: str) -> Format:
    """A format for files; ConnectorError for one that has only messages."""
    found = get_format(name, where=where)
    if found.files is None:
        raise ConnectorError(
            f"format '{name}' is for messages, not for files",
            expected="a format for files: parquet, orc, arrow, json, csv, …",
            got=f"'format' = '{name}'",
            where=where,
            remedy="use another format",
        )
    return found
