"""The format ``msgpack``: one MessagePack map for each record, decoded by msgspec into the columns' types.

Messages are decoded in batches into a struct of exactly the projected fields. If anything in a batch does not fit, they are
decoded one by one, and a record that does not fit is a bad record. Nothing is converted: a text is never a number.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats.api import Decoder, Encoder, Format, FormatContext
from penstock.formats.build import build_column, field_attribute
from penstock.formats.json import has_plain_names
from penstock.formats.json_encode import grouped, timestamps_as_text
from penstock.formats.reporting import unsupported_type
from penstock.options import Option, OptionSet, boolean
from penstock.types import logical as t
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.types.logical import Schema

_BROKEN = (
    msgspec.MsgspecError, pa.ArrowException, ValueError, OverflowError, TypeError, KeyError, ArithmeticError,
)  # fmt: skip

OPTIONS = OptionSet(
    "format 'msgpack'",
    [
        Option("msgpack.ignore-parse-errors", boolean, False, "Skip records that do not parse or do not fit the columns."),
        Option("msgpack.fail-on-missing-field", boolean, False, "A missing field is a bad record, not NULL."),
    ],
)  # fmt: skip

_Instant = Annotated[dt.datetime, msgspec.Meta(tz=True)]
_Clock = Annotated[dt.time, msgspec.Meta(tz=False)]


def _wire_type(type_: t.LogicalType, *, required: bool, path: str) -> Any:
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
        case t.CharType() | t.VarCharType() | t.DateType() | t.TimestampType():
            out = str
        case t.TimeType():
            out = _Clock
        case t.TimestampLtzType():
            out = _Instant
        case t.BinaryType() | t.VarBinaryType():
            out = bytes
        case t.ArrayType(element=element):
            out = list[_wire_type(element, required=required, path=path)]  # type: ignore[misc]
        case t.MapType(key=key, value=value):
            out = dict[_key_type(key, path), _wire_type(value, required=required, path=path)]  # type: ignore[misc]
        case t.MultisetType(element=element):
            out = dict[_key_type(element, path), int]  # type: ignore[misc]
        case t.RowType(fields=fields):
            out = _struct([(f.name, f.type) for f in fields], required=required, path=path)
        case t.NullType():
            return None
        case _:
            raise unsupported_type("msgpack", path, type_)
    return out | None


def _key_type(type_: t.LogicalType, path: str) -> Any:
    match type_:
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            return int
        case t.CharType() | t.VarCharType():
            return str
    raise UnsupportedError(
        f"format 'msgpack' cannot hold column '{path}'",
        expected="keys of a map that are texts or integers",
        got=str(type_),
        where=f"column '{path}'",
        remedy="CAST the keys to STRING, or use another format",
    )


def _struct(
    fields: Sequence[tuple[str, t.LogicalType]], *, required: bool, path: str = ""
) -> type[msgspec.Struct]:
    """A struct with attributes f0, f1 … under the columns' own names."""
    members: list[Any] = []
    for i, (name, type_) in enumerate(fields):
        wire = _wire_type(type_, required=required, path=f"{path}.{name}" if path else name)
        members.append((field_attribute(i), wire) if required else (field_attribute(i), wire, None))
    rename = {field_attribute(i): name for i, (name, _) in enumerate(fields)}
    return msgspec.defstruct("Record", members, rename=rename, gc=False)


def _has_times(type_: t.LogicalType) -> bool:
    match type_:
        case t.TimestampLtzType() | t.TimeType():
            return True
        case t.ArrayType(element=inner) | t.MapType(value=inner):
            return _has_times(inner)
        case t.RowType(fields=fields):
            return any(_has_times(f.type) for f in fields)
    return False


def _prepared(type_: t.LogicalType, value: Any) -> Any:
    """A decoded value in the form that ``build_column`` takes: instants as text in UTC, times of day cut to
    the precision."""
    if value is None or not _has_times(type_):
        return value
    match type_:
        case t.ArrayType(element=element):
            return [_prepared(element, v) for v in value]
        case t.MapType(value=inner):
            return {k: _prepared(inner, v) for k, v in value.items()}
        case t.RowType(fields=fields):
            for i, field in enumerate(fields):
                name = field_attribute(i)
                setattr(value, name, _prepared(field.type, getattr(value, name)))
            return value
        case t.TimeType(precision=precision):
            step = 10 ** (6 - min(precision, 6))
            return value.replace(microsecond=value.microsecond - value.microsecond % step)
    return f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')}Z"


class MsgpackDecoder(Decoder):
    """Decodes MessagePack maps, and arrays of maps (``decode_batch``)."""

    def __init__(self, ctx: FormatContext) -> None:
        options = OPTIONS.read(ctx.options)
        self._ignore_errors = options["msgpack.ignore-parse-errors"]
        required = options["msgpack.fail-on-missing-field"]
        if self._ignore_errors and required:
            raise ConnectorError(
                "'msgpack.ignore-parse-errors' and 'msgpack.fail-on-missing-field' exclude each other",
                expected="at most one of them true",
                got="both true",
                where="format 'msgpack'",
                remedy="remove one of them",
            )
        self._bad_record = ctx.bad_record
        self._schema = ctx.schema.select(ctx.projection)
        fields = [(f.name, f.type) for f in self._schema.fields]
        decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_struct(fields, required=required))
        self._decode_one = decoder.decode
        self._pieces = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
        self._columns = [(field_attribute(i), type_) for i, (_, type_) in enumerate(fields)]

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        decode_one = self._decode_one
        try:
            return self._build([decode_one(m) for m in messages])
        except _BROKEN:
            return self._one_by_one(messages, where)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        if not data:
            return self._build([])
        try:
            pieces = [bytes(piece) for piece in self._pieces(data)]
        except msgspec.MsgspecError as err:
            self._reject(err, data, where, "one MessagePack array of maps")
            return self._build([])
        return self.decode(pieces, lambda i: f"{where}, record {i + 1}")

    def _one_by_one(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        good = []
        for i, message in enumerate(messages):
            try:
                self._build([self._decode_one(message)])
                # Building changes a record's instants in place, so the good ones are decoded anew.
                good.append(self._decode_one(message))
            except _BROKEN as err:
                self._reject(err, message, where(i), "one MessagePack map that fits the table's columns")
        return self._build(good)

    def _build(self, records: list[Any]) -> Batch:
        columns = []
        for attribute, type_ in self._columns:
            values = list(map(attrgetter(attribute), records))
            if _has_times(type_):
                values = [_prepared(type_, v) for v in values]
            column = build_column(type_, values)
            if not type_.nullable and column.null_count:
                raise ValueError("NULL in a NOT NULL column")
            columns.append(column)
        return Batch(self._schema, columns, num_rows=len(records))

    def _reject(self, err: Exception, message: bytes, where: str, expected: str) -> None:
        if self._ignore_errors:
            return
        got = str(err)
        for i, field in enumerate(self._schema.fields):
            got = got.replace(f"$.{field_attribute(i)}`", f"$.{field.name}`")
        error = RecordError(
            "the message is no MessagePack record of the table",
            expected=expected, got=f"{len(message)} bytes: {got}", where=where,
            remedy="declare the columns as the writer has them, or set 'on-error' to skip or dead-letter",
        )  # fmt: skip
        self._bad_record(error, bytes(message), where)


class MsgpackEncoder(Encoder):
    """Encodes each row as one map, and many rows as an array of maps."""

    def __init__(self, schema: Schema) -> None:
        self._names = schema.names
        self._encode = msgspec.msgpack.Encoder().encode

    def _maps(self, batch: Batch) -> list[dict[str, Any]]:
        if not batch.columns:
            return [{} for _ in range(len(batch))]
        columns = [_values(c.type, c.to_external_arrow()) for c in batch.columns]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]

    def encode(self, batch: Batch) -> list[bytes]:
        return list(map(self._encode, self._maps(batch)))

    def encode_batch(self, batch: Batch) -> bytes:
        return self._encode(self._maps(batch))


def _values(type_: t.LogicalType, array: pa.Array) -> list[Any]:
    """The value of each row in the form that msgspec writes."""
    match type_:
        case t.TimestampType():
            return timestamps_as_text(array, iso=False).to_pylist()
        case t.TimestampLtzType():
            numbers = array.cast(pa.int64()).to_pylist()
            return [None if n is None else _EPOCH + dt.timedelta(microseconds=n) for n in numbers]
        case t.TimeType():
            return pc.utf8_rtrim(pc.utf8_rtrim(array.cast(pa.string()), "0"), ".").to_pylist()
        case t.DateType():
            return array.cast(pa.string()).to_pylist()
        case t.DecimalType():
            return [None if v is None else format(v, "f") for v in array.to_pylist()]
        case t.DayTimeIntervalType():
            return [None if v is None else v // 1000 for v in array.cast(pa.int64()).to_pylist()]
        case t.ArrayType(element=element):
            return grouped(array, _values(element, array.flatten()), list)
        case t.MapType(key=key, value=value):
            return _maps(array, key, value)
        case t.MultisetType(element=element):
            return _maps(array, element, t.IntType())
        case t.RowType(fields=fields):
            names = [f.name for f in fields]
            if not names:
                return array.to_pylist()
            children = [_values(f.type, child) for f, child in zip(fields, array.flatten(), strict=True)]
            valid = array.is_valid().to_pylist()
            rows = zip(zip(*children, strict=True), valid, strict=True)
            return [dict(zip(names, row, strict=True)) if ok else None for row, ok in rows]
    return array.to_pylist()


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _maps(array: pa.Array, key: t.LogicalType, value: t.LogicalType) -> list[Any]:
    kept = array.drop_null()
    start, end = (kept.offsets[0].as_py(), kept.offsets[-1].as_py()) if len(kept) else (0, 0)
    keys, items = _values(key, kept.keys[start:end]), _values(value, kept.items[start:end])
    return grouped(array, list(zip(keys, items, strict=True)), dict)


class MsgpackFormat(Format):
    """The format ``msgpack``, for messages."""

    name = "msgpack"
    options = OPTIONS

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        super().check(schema, options)
        for field in schema.fields:
            if not has_plain_names([field]):
                raise UnsupportedError(
                    f"format 'msgpack' cannot hold column '{field.name}'",
                    expected="names without quotes, backslashes and control characters",
                    got=f"{field}",
                    where=f"column '{field.name}'",
                    remedy="rename the column or its field, or use another format",
                )
            _wire_type(field.type, required=False, path=field.name)

    def decoder(self, ctx: FormatContext) -> MsgpackDecoder:
        return MsgpackDecoder(ctx)

    def encoder(self, schema: Schema, options: Mapping[str, str]) -> MsgpackEncoder:
        return MsgpackEncoder(schema)
