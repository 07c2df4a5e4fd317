"""Messages → columns: parsed one by one in C, then read field by field over the whole batch."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Fd
from google.protobuf.message import DecodeError

from penstock.errors import RecordError
from penstock.formats.api import Decoder, FormatContext
from penstock.formats.build import flatten, struct_of
from penstock.formats.protobuf.delimited import cut
from penstock.formats.protobuf.mapping import is_map
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: What the library and Arrow raise for bytes that are no message of the class, or do not fit the columns.
BROKEN = (DecodeError, ValueError, TypeError, OverflowError, pa.ArrowException)
#: Seconds that google.protobuf.Timestamp allows: the years 1 to 9999.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
_SECOND_NS = 1_000_000_000


class ProtobufDecoder(Decoder):
    def __init__(self, ctx: FormatContext, message: Any, options: Mapping[str, Any]) -> None:
        self._schema = ctx.schema.select(ctx.projection)
        self._parse = message.FromString
        self._name = message.DESCRIPTOR.full_name
        self._bad_record = ctx.bad_record
        self._ignore = options["protobuf.ignore-parse-errors"]
        self._fields = [message.DESCRIPTOR.fields_by_name[f.name] for f in self._schema.fields]
        self._read = _Reading(options["protobuf.read-default-values"])

    def decode(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        try:
            return self._batch(list(map(self._parse, messages)))
        except BROKEN:
            return self._one_by_one(messages, where)

    def decode_batch(self, data: bytes, where: str) -> Batch:
        """Messages one behind another, each behind its length, as the library's writeDelimitedTo has them."""
        return self.decode(cut(data), lambda i: f"{where}, message {i + 1}")

    def _batch(self, messages: list[Any]) -> Batch:
        columns = []
        for field, descriptor in zip(self._schema.fields, self._fields, strict=True):
            column = Column.from_arrow(field.type, self._read.field(field.type, descriptor, messages))
            if not field.type.nullable and column.null_count:
                raise ValueError(f"NULL in column '{field.name}', which is NOT NULL")
            columns.append(column)
        return Batch(self._schema, columns, num_rows=len(messages))

    def _one_by_one(self, messages: Sequence[bytes], where: Callable[[int], str]) -> Batch:
        good = []
        for i, raw in enumerate(messages):
            try:
                message = self._parse(raw)
                self._batch([message])
            except BROKEN as err:
                if self._ignore:
                    continue
                error = RecordError(
                    f"the record is no message '{self._name}' that fits the table's columns",
                    expected=f"one message '{self._name}'",
                    got=f"{len(raw)} bytes: {type(err).__name__} {err}",
                    where=where(i),
                    remedy="name the writer's message and declare the columns as its fields are, or set 'on-error'",
                )
                self._bad_record(error, bytes(raw), where(i))
                continue
            good.append(message)
        return self._batch(good)


class _Reading:
    """``defaults``: fields that are not set have their defaults, and are not NULL."""

    def __init__(self, defaults: bool) -> None:
        self._defaults = defaults

    def field(self, type_: t.LogicalType, field: Any, owners: list[Any]) -> pa.Array:
        """The field of all messages ``owners``."""
        values = list(map(attrgetter(field.name), owners))
        if field.is_repeated:
            return self._many(type_, field, values)
        absent = None
        if field.has_presence and not self._defaults:
            absent = _unset(field, values, owners)
        return self._one(type_, field, values, absent)

    def _many(self, type_: Any, field: Any, values: list[Any]) -> pa.Array:
        if is_map(field):
            # A map has no order of its own; a replayed record must give the same bytes downstream.
            values = [sorted(value.items(), key=_key) for value in values]
        offsets, _, flat = flatten(values)
        empty = np.diff(np.asarray(offsets)) == 0
        mask = pa.array(empty) if empty.any() and not self._defaults else None
        want = external_arrow_type(type_)
        if not is_map(field):
            items = self._one(type_.element, field, flat, None)
            return pa.ListArray.from_arrays(offsets, items, type=want, mask=mask)
        entry = field.message_type.fields_by_name
        keys = self._one(type_.key, entry["key"], [k for k, _ in flat], None)
        items = self._one(type_.value, entry["value"], [v for _, v in flat], None)
        return pa.MapArray.from_arrays(offsets, keys, items, type=want, mask=mask)

    def _one(self, type_: Any, field: Any, values: list[Any], absent: np.ndarray | None) -> pa.Array:
        """Single values. ``absent``: those that are NULL."""
        match type_:
            case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p):
                return _times(values, absent, p).cast(external_arrow_type(type_))
            case t.RowType():
                there = values
                if absent is not None:
                    there = [v for v, gone in zip(values, absent.tolist(), strict=True) if not gone]
                known = field.message_type.fields_by_name
                children = [self.field(f.type, known[f.name], there) for f in type_.fields]
                if not children:
                    gone = np.zeros(len(values), bool) if absent is None else absent
                    return pa.array([None if g else {} for g in gone.tolist()], pa.struct([]))
                return struct_of(type_, children, absent)
        if field.type == Fd.TYPE_ENUM and isinstance(type_, t.STRINGS):
            values = _names(field.enum_type, values)
        return pa.array(values, external_arrow_type(type_), mask=absent)


def _unset(field: Any, values: list[Any], owners: list[Any]) -> np.ndarray | None:
    """The messages whose field is not set; None: it is set in all. Only a default may be unset: others are not asked."""
    name, default = field.name, field.default_value
    if field.type == Fd.TYPE_MESSAGE or default != default:
        absent = np.array([not owner.HasField(name) for owner in owners], bool)
    elif default not in values:
        return None
    else:
        pairs = zip(values, owners, strict=True)
        absent = np.array([v == default and not owner.HasField(name) for v, owner in pairs], bool)
    return absent if absent.any() else None


def _key(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _names(enum: Any, numbers: list[int]) -> list[str]:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    try:
        return [names[number] for number in numbers]
    except KeyError as err:
        raise ValueError(f"enum '{enum.full_name}' has no value with the number {err}") from None


def _times(values: list[Any], absent: np.ndarray | None, precision: int) -> pa.Array:
    seconds = np.array([v.seconds for v in values], np.int64)
    nanos = np.array([v.nanos for v in values], np.int64)
    wrong = (seconds < _FIRST_S) | (seconds > _LAST_S) | (nanos < 0) | (nanos >= _SECOND_NS)
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"a time outside the years 1 to 9999: {seconds[at]} s and {nanos[at]} ns")
    micros = seconds * 1_000_000 + nanos // 1000
    return pa.array(micros - micros % 10 ** (6 - precision), pa.int64(), mask=absent)
