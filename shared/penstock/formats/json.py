"""JSON: one object for each record, or JSON lines for many.

There are three ways, each for what the one before it leaves. Where the compiled kernels were built (``json_kernel``), they
decode a batch at once. msgspec decodes into a struct of exactly the projected fields (others are skipped unread), from
which each column is built at once. If anything among these records does not fit, they are decoded again record by record
(``json_lenient``), with Flink's conversions (numbers in quotes, numbers as text …). A record that still does not fit is a
bad record.
"""

from __future__ import annotations

from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import ConnectorError, RecordError
from penstock.formats.api import Decoder, Format, FormatContext
from penstock.formats.build import build_column, field_attribute, is_plain_name
from penstock.formats.by_kernel import Decoded, of_lines, of_messages, with_rest
from penstock.formats.json_kernel import kernel_of
from penstock.formats.json_lenient import LenientConverter
from penstock.formats.lines import LineFiles
from penstock.formats.reporting import redact, unsupported_type
from penstock.options import Option, OptionSet, boolean, choice
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.formats.json_encode import JsonEncoder
    from penstock.types.logical import Schema

_FAST_PATH_ERRORS = (
    msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError,
)  # fmt: skip

_LINE_END, _OPENS, _CLOSES = b"\n{}"

OPTIONS = OptionSet(
    "format 'json'",
    [
        Option("json.ignore-parse-errors", boolean, False, "Skip records that do not parse; bad fields are NULL."),
        Option("json.fail-on-missing-field", boolean, False, "A missing field is a bad record, not NULL."),
        Option(
            "json.timestamp-format.standard", choice("SQL", "ISO-8601"), "SQL",
            "How time stamps are written: '2020-01-02 03:04:05.678' or '2020-01-02T03:04:05.678'; both are read.",
        ),
        Option("json.encode.decimal-as-plain-number", boolean, False, "Known from Flink: decimals are always written plain."),
        Option("json.encode.ignore-null-fields", boolean, False, "Leave NULL fields out."),
    ],
)  # fmt: skip


def wire_type(type_: t.LogicalType, *, required: bool, path: str) -> Any:
    """The Python type that msgspec decodes a column into."""
    match type_:
        case t.BooleanType():
            out: Any = bool
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            out = int
        case t.YearMonthIntervalType() | t.DayTimeIntervalType():
            out = int
        case t.FloatType() | t.DoubleType():
            out = float
        case t.DecimalType():
            out = Decimal
        case t.CharType() | t.VarCharType() | t.DateType() | t.TimeType():
            out = str
        case t.TimestampType() | t.TimestampLtzType():
            out = str
        case t.BinaryType() | t.VarBinaryType():
            out = bytes
        case t.ArrayType(element=element):
            out = list[wire_type(element, required=required, path=path)]  # type: ignore[misc]
        case t.MapType(value=value):
            out = dict[str, wire_type(value, required=required, path=path)]  # type: ignore[misc]
        case t.MultisetType():
            out = dict[str, int]
        case t.RowType(fields=fields):
            out = record_struct([(f.name, f.type) for f in fields], required=required, path=path)
        case t.VariantType():
            out = msgspec.Raw
        case t.NullType():
            return None
        case _:
            raise unsupported_type("json", path, type_)
    return out | None


def record_struct(
    fields: Sequence[tuple[str, t.LogicalType]], *, required: bool, path: str = ""
) -> type[msgspec.Struct]:
    """A struct with attributes f0, f1 … under the columns' own JSON names."""
    members: list[Any] = []
    for i, (name, type_) in enumerate(fields):
        wire = wire_type(type_, required=required, path=f"{path}.{name}" if path else name)
        attribute = field_attribute(i)
        members.append((attribute, wire) if required else (attribute, wire, None))
    rename = {field_attribute(i): name for i, (name, _) in enumerate(fields)}
    return msgspec.defstruct("Record", members, rename=rename, gc=False)


def has_plain_names(fields: Iterable[t.Field]) -> bool:
    """Whether all names of the fields, and of the fields of their ROWs, are plain (``is_plain_name``)."""
    return all(is_plain_name(f.name) and _plain_inside(f.type) for f in fields)


def _plain_inside(type_: t.LogicalType) -> bool:
    match type_:
        case t.ArrayType(element=inner) | t.MapType(value=inner):
            return _plain_inside(inner)
        case t.RowType(fields=fields):
            return has_plain_names(fields)
    return True


class JsonDecoder(Decoder):
    """Decodes JSON objects and JSON lines. Raises ConnectorError for options that exclude each other."""

    def __init__(self, ctx: FormatContext) -> None:
        options = OPTIONS.read(ctx.options)
        self._ignore_errors = options["json.ignore-parse-errors"]
        self._fail_on_missing = options["json.fail-on-missing-field"]
        if self._ignore_errors and self._fail_on_missing:
            raise ConnectorError(
                "'json.ignore-parse-errors' and 'json.fail-on-missing-field' exclude each other",
                expected="at most one of them true",
                got="both true",
                where="format 'json'",
                remedy="remove one of them",
            )
        self._bad_record = ctx.bad_record
        self._extra = ctx.extra
        self._schema = ctx.schema.select(ctx.projection)
        fields = [(f.name, f.type) for f in self._schema.fields]
        #: Whether records are decoded into a struct. If not, each is parsed and converted by name.
        self._as_struct = has_plain_names(self._schema.fields)
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            record_struct(fields, required=self._fail_on_missing) if self._as_struct else dict[str, Any]
        )
        self._decode_one, self._decode_lines = decoder.decode, decoder.decode_lines
        self._columns = [(field_attribute(i), type_) for i, (_, type_) in enumerate(fields)]
        self._lenient: LenientConverter | None = None
        self._kernel = kernel_of(self._schema, required=self._fail_on_missing) if self._as_struct else None

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        if not self._columns:
            return self._count_only(messages, where)
        done = None if self._kernel is None else self._kernel.decode(of_messages(messages))

        def rest(numbers: list[int] | None) -> Decoded:
            if numbers is None:
                return self._decode_each(messages, where)
            return self._decode_each([messages[i] for i in numbers], lambda i: where(numbers[i]))

        return with_rest(done, len(messages), rest).batch

    def _decode_each(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Decoded:
        """Without the kernel; ``rows``: those that were not rejected."""
        if not self._as_struct:
            return self._decode_leniently(messages, where)
        try:
            decode_one = self._decode_one
            batch = self._build([decode_one(m) for m in messages])
            return Decoded(batch, np.arange(len(messages)))
        except _FAST_PATH_ERRORS:
            return self._decode_leniently(messages, where)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        if self._columns and (batch := self._decode_plain_lines(data.strip(b"\n"))) is not None:
            return batch
        lines = data.split(b"\n")
        kept = [line for line in lines if line and not line.isspace()]

        def where_line(index: int) -> str:
            # Blank lines count as lines, but not as records.
            numbers = [i for i, line in enumerate(lines, 1) if line and not line.isspace()]
            return f"{where}, line {self._extra.get('lines_before', 0) + numbers[index]}"

        return self.decode(kept, where_line)

    def _decode_plain_lines(self, data: bytes) -> Batch | None:
        """All lines by one call, or None unless each of them is exactly one object that fits.

        The decoder itself takes objects that share a line, or span several. Between ``}`` and ``{`` a line
        end cannot lie inside an object; so with as many objects as lines, each line is one object.
        """
        if self._kernel is not None:
            lines = of_lines(data)
            done = self._kernel.decode(lines)
            if done is not None and len(done.rows) == len(lines.start):
                return done.batch
        if not self._as_struct:
            return None
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == _LINE_END)
        if not (data.startswith(b"{") and data.endswith(b"}")):
            return None
        if not ((text[ends - 1] == _CLOSES).all() and (text[ends + 1] == _OPENS).all()):
            return None
        count = len(ends) + 1
        try:
            records = self._decode_lines(data)
            return self._build(records) if len(records) == count else None
        except _FAST_PATH_ERRORS:
            return None

    def _build(self, records: list[Any]) -> Batch:
        columns = []
        for attribute, type_ in self._columns:
            column = build_column(type_, list(map(attrgetter(attribute), records)))
            if not type_.nullable and column.null_count:
                raise ValueError("NULL in a NOT NULL column")
            columns.append(column)
        return Batch(self._schema, columns, num_rows=len(records))

    def _count_only(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        """No column is wanted (COUNT(*)): the records must still parse."""
        good = 0
        for i, message in enumerate(messages):
            try:
                self._decode_one(message)
                good += 1
            except msgspec.MsgspecError as err:
                self._reject(err, message, where(i))
        return Batch(self._schema, [], num_rows=good)

    def _decode_leniently(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Decoded:
        if self._lenient is None:
            self._lenient = LenientConverter(
                self._schema, fail_on_missing=self._fail_on_missing, null_on_error=self._ignore_errors
            )
        rows, kept = [], []
        for i, message in enumerate(messages):
            try:
                rows.append(self._lenient.convert(message))
                kept.append(i)
            except (msgspec.MsgspecError, RecordError, UnicodeDecodeError) as err:
                self._reject(err, message, where(i))
        return Decoded(self._lenient.to_batch(rows), np.array(kept, np.int64))

    def _reject(self, err: Exception, message: bytes, where: str) -> None:
        if self._ignore_errors:
            return
        if not isinstance(err, RecordError):
            err = RecordError("the record is not JSON", expected="one JSON object", got=str(err))
        err.where = f"{where}, {err.where}" if err.where else where
        err.remedy = f"mend the record, or set 'on-error' to skip or dead-letter; it reads (redacted): {redact(message)}"
        self._bad_record(err, bytes(message), where)


class JsonFormat(Format):
    """The format ``json``, for messages and files."""

    name = "json"
    options = OPTIONS
    extension = "json"

    def __init__(self) -> None:
        self.files = LineFiles(self, cut=True)

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        for field in schema.fields:
            wire_type(field.type, required=False, path=field.name)

    def decoder(self, ctx: FormatContext) -> JsonDecoder:
        return JsonDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> JsonEncoder:
        from penstock.formats.json_encode import JsonEncoder

        return JsonEncoder(schema, OPTIONS.read(options))
