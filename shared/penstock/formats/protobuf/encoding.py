"""Columns → messages: each field is set over the whole batch, and each message is then written in C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Fd
from google.protobuf.message import EncodeError

from penstock.errors import RecordError
from penstock.formats.api import Encoder
from penstock.formats.protobuf.delimited import join
from penstock.formats.protobuf.mapping import is_map
from penstock.formats.reporting import shorten
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

_REFUSED = (ValueError, TypeError, OverflowError, EncodeError)


class ProtobufEncoder(Encoder):
    def __init__(self, schema: Schema, message: Any, options: Mapping[str, Any]) -> None:
        self._schema = schema
        self._message = message
        self._name = message.DESCRIPTOR.full_name
        self._null_string = options["protobuf.write-null-string-literal"]

    def encode(self, batch: Batch) -> list[bytes]:
        messages = [self._message() for _ in range(len(batch))]
        columns = [column.to_external_arrow() for column in batch.columns]
        self._set_all(self._message.DESCRIPTOR, t.RowType(self._schema.fields), columns, messages, "")
        try:
            return [message.SerializeToString() for message in messages]
        except _REFUSED as err:
            raise self._refused("", "all required fields", f"{type(err).__name__} {err}") from None

    def encode_batch(self, batch: Batch) -> bytes:
        return join(self.encode(batch))

    def _set_all(
        self, descriptor: Any, type_: t.RowType, columns: list[pa.Array], owners: list[Any], path: str
    ) -> None:
        """Sets the fields of all messages ``owners``; NULL leaves a field unset."""
        self._check_oneofs(descriptor, type_, columns, path)
        for column, array in zip(type_.fields, columns, strict=True):
            field, place = descriptor.fields_by_name[column.name], f"{path}{column.name}"
            try:
                if is_map(field):
                    self._set_maps(field, column.type, array, owners, place)
                elif field.is_repeated:
                    self._set_lists(field, column.type, array, owners, place)
                else:
                    self._set_values(field, column.type, array, owners, place)
            except _REFUSED as err:
                raise self._refused(place, str(column.type), f"{type(err).__name__} {err}") from None

    def _check_oneofs(self, descriptor: Any, type_: t.RowType, columns: list[pa.Array], path: str) -> None:
        """RecordError for a row with values for two fields of which a message holds one."""
        for group in descriptor.oneofs:
            names = {field.name for field in group.fields}
            given = [i for i, column in enumerate(type_.fields) if column.name in names]
            if len(given) < 2:
                continue
            counts = sum(np.asarray(columns[i].is_valid()).astype(np.int64) for i in given)
            if (np.asarray(counts) > 1).any():
                some = ", ".join(f"'{path}{type_.fields[i].name}'" for i in given)
                raise self._refused(
                    f"{path}{group.name}", f"at most one of {some} (oneof '{group.name}')",
                    "a row with several", "write NULL into the others",
                )  # fmt: skip

    def _set_values(self, field: Any, type_: Any, array: pa.Array, owners: list[Any], path: str) -> None:
        name = field.name
        if field.type == Fd.TYPE_MESSAGE:
            valid = array.is_valid().to_pylist()
            there = [getattr(owner, name) for owner, ok in zip(owners, valid, strict=True) if ok]
            for message in there:
                message.SetInParent()
            self._fill(field, type_, array.drop_null(), there, path)
            return
        for owner, value in zip(owners, self._scalars(field, type_, array), strict=True):
            if value is not None:
                setattr(owner, name, value)

    def _set_lists(self, field: Any, type_: Any, array: pa.Array, owners: list[Any], path: str) -> None:
        name, lengths = field.name, _lengths(array)
        items = self._items(field, type_.element, array.flatten(), path)
        if field.type == Fd.TYPE_MESSAGE:
            made = [getattr(o, name).add() for o, n in zip(owners, lengths, strict=True) for _ in range(n)]
            self._fill(field, type_.element, items, made, f"{path}[]")
            return
        values, at = self._scalars(field, type_.element, items), 0
        for owner, count in zip(owners, lengths, strict=True):
            if count:
                getattr(owner, name).extend(values[at : at + count])
                at += count

    def _set_maps(self, field: Any, type_: Any, array: pa.Array, owners: list[Any], path: str) -> None:
        name, lengths, entry = field.name, _lengths(array), field.message_type.fields_by_name
        kept = array.drop_null()
        start, end = (kept.offsets[0].as_py(), kept.offsets[-1].as_py()) if len(kept) else (0, 0)
        keys = self._scalars(entry["key"], type_.key, kept.keys[start:end])
        items = self._items(entry["value"], type_.value, kept.items[start:end], path)
        maps = [getattr(o, name) for o, n in zip(owners, lengths, strict=True) for _ in range(n)]
        if entry["value"].type == Fd.TYPE_MESSAGE:
            made = [held[key] for held, key in zip(maps, keys, strict=True)]
            self._fill(entry["value"], type_.value, items, made, f"{path}.value")
            return
        values = self._scalars(entry["value"], type_.value, items)
        for held, key, value in zip(maps, keys, values, strict=True):
            held[key] = value

    def _items(self, field: Any, type_: t.LogicalType, items: pa.Array, path: str) -> pa.Array:
        """Elements without NULL, which a message cannot hold."""
        if not items.null_count:
            return items
        if isinstance(type_, t.STRINGS) and field.type == Fd.TYPE_STRING and self._null_string is not None:
            return items.fill_null(self._null_string)
        raise self._refused(
            path, "elements without NULL, which Protocol Buffers cannot hold", "NULL in an array or map",
            "set 'protobuf.write-null-string-literal' for strings; filter other elements in the query",
        )  # fmt: skip

    def _fill(self, field: Any, type_: Any, array: pa.Array, messages: list[Any], path: str) -> None:
        """Nested messages, one for each value of ``array``, which has no NULL."""
        if isinstance(type_, t.RowType):
            self._set_all(field.message_type, type_, array.flatten(), messages, f"{path}.")
            return
        for message, micros in zip(messages, array.cast(pa.int64()).to_pylist(), strict=True):
            message.seconds, rest = divmod(micros, 1_000_000)
            message.nanos = rest * 1000

    def _scalars(self, field: Any, type_: t.LogicalType, array: pa.Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        if field.type == Fd.TYPE_ENUM and isinstance(type_, t.STRINGS):
            numbers = {name: value.number for name, value in field.enum_type.values_by_name.items()}
            if unknown := [v for v in values if v is not None and v not in numbers]:
                known = ", ".join(numbers)
                raise ValueError(f"'{unknown[0]}' is none of enum '{field.enum_type.full_name}': {known}")
            return [None if v is None else numbers[v] for v in values]
        if isinstance(type_, t.DecimalType):
            return [None if v is None else int(v) for v in values]
        return values

    def _refused(self, path: str, expected: str, got: str, remedy: str | None = None) -> RecordError:
        return RecordError(
            f"a row cannot be written as message '{self._name}'",
            expected=expected,
            got=shorten(got, 300).strip("'\""),
            where=f"column '{path}'" if path else None,
            remedy=remedy or "filter such rows, or change the query",
        )


def _lengths(array: pa.Array) -> list[int]:
    """The number of elements of each list or map; 0 for NULL."""
    lengths = np.diff(np.asarray(array.offsets))
    if array.null_count:
        lengths = np.where(np.asarray(array.is_valid()), lengths, 0)
    return lengths.tolist()
