"""The format ``protobuf``: Flink's options and mapping of types, and the extra that it needs."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectorError
from penstock.formats.api import Format
from penstock.options import Option, OptionSet, boolean, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.formats.api import FormatContext
    from penstock.formats.protobuf.decoding import ProtobufDecoder
    from penstock.formats.protobuf.encoding import ProtobufEncoder
    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "format 'protobuf'",
    [
        Option("protobuf.message-class-name", text, None, "The generated class, package.module_pb2.Message; with a descriptor set the message's full name.", required=True),
        Option("protobuf.descriptor-set", text, None, "A file of protoc --include_imports --descriptor_set_out, on every machine."),
        Option("protobuf.ignore-parse-errors", boolean, False, "Leave messages out that cannot be parsed."),
        Option("protobuf.read-default-values", boolean, False, "Fields that are not set are read as their defaults, not as NULL."),
        Option("protobuf.write-null-string-literal", text, None, "What is written for NULL in an array or map of strings."),
    ],
)  # fmt: skip


class ProtobufFormat(Format):
    name = "protobuf"
    options = OPTIONS

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
            raise ConnectorError(
                "the library that reads and writes Protocol Buffers is not installed",
                expected="the Python package protobuf",
                got="no such package",
                where="format 'protobuf'",
                remedy="pip install 'penstock[protobuf]', on every machine that plans or runs the job",
            )
        self._message(schema, options)

    def _message(self, schema: Schema, options: Mapping[str, str]) -> Any:
        """The class of the table's messages, which fits its columns."""
        from penstock.formats.protobuf.descriptors import message_class
        from penstock.formats.protobuf.mapping import check_columns

        found = message_class(OPTIONS.read(options))
        check_columns(schema, found.DESCRIPTOR)
        return found

    def decoder(self, ctx: FormatContext) -> ProtobufDecoder:
        from penstock.formats.protobuf.decoding import ProtobufDecoder

        return ProtobufDecoder(ctx, self._message(ctx.schema, ctx.options), OPTIONS.read(ctx.options))

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> ProtobufEncoder:
        from penstock.formats.protobuf.encoding import ProtobufEncoder

        return ProtobufEncoder(schema, self._message(schema, options), OPTIONS.read(options))
