"""The format ``avro``: Flink's mapping of types, its options, and the extra dependency that it needs."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from penstock.errors import ConnectorError
from penstock.formats.api import Format
from penstock.formats.avro.files import AvroFiles
from penstock.formats.avro.schema import table_schema
from penstock.options import Option, OptionSet, boolean, choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.formats.api import FormatContext
    from penstock.formats.avro.messages import AvroDecoder, AvroEncoder
    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "format 'avro'",
    [
        Option("avro.encoding", choice("binary", "json"), "binary", "Of messages; files are always binary."),
        Option("avro.codec", choice("null", "deflate", "snappy", "zstandard", "bzip2", "xz"), "snappy", "Of files written."),
        Option(
            "avro.timestamp_mapping.legacy", boolean, True,
            "TIMESTAMP is timestamp-millis (or -micros), and TIMESTAMP_LTZ has no form; "
            "false: TIMESTAMP is local-timestamp-…, and TIMESTAMP_LTZ is timestamp-….",
        ),
    ],
)  # fmt: skip


def need_library(owner: str) -> None:
    """Raise ConnectorError, which names the extra to install, if fastavro is not installed."""
    if importlib.util.find_spec("fastavro") is None:
        raise ConnectorError(
            "the library that reads and writes Avro is not installed",
            expected="the Python package fastavro",
            got="no such package",
            where=owner,
            remedy="pip install 'penstock[avro]', on every machine that plans or runs the job",
        )


class AvroFormat(Format):
    """The format ``avro``, for messages and files."""

    name = "avro"
    options = OPTIONS
    extension = "avro"
    positional = True

    def __init__(self) -> None:
        self.files = AvroFiles(OPTIONS)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        need_library("format 'avro'")
        table_schema(schema, legacy=OPTIONS.read(options)["avro.timestamp_mapping.legacy"])

    def decoder(self, ctx: FormatContext) -> AvroDecoder:
        from penstock.formats.avro.messages import AvroDecoder

        return AvroDecoder(ctx, OPTIONS.read(ctx.options))

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> AvroEncoder:
        from penstock.formats.avro.messages import AvroEncoder

        return AvroEncoder(schema, OPTIONS.read(options))
