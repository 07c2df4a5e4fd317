"""Rows of keyed state ↔ ``KeyedBlock``: the same whatever the backend."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SpecError
from penstock.runtime.kernels.hashing import hash_columns, key_groups
from penstock.runtime.operator import KeyedBlock
from penstock.runtime.state.values import from_python, to_python, tuples
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WINDOW = struct.Struct(">qq")
NAMESPACE_BYTES = _WINDOW.size


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The key of an operator: its types, and how many key groups there are."""

    types: tuple[t.LogicalType, ...]
    max_parallelism: int

    def columns(self, keys: Sequence[Any]) -> list[Column]:
        if len(self.types) == 1:
            return [from_python(self.types[0], keys)]
        parts = list(zip(*keys, strict=True)) or [()] * len(self.types)
        return [from_python(type_, part) for type_, part in zip(self.types, parts, strict=True)]

    def groups(self, columns: Sequence[Column]) -> np.ndarray:
        """int32 key group a row."""
        if not columns:
            return np.zeros(0, np.int32)
        return key_groups(hash_columns(columns), self.max_parallelism)

    def group_of(self, key: Any) -> int:
        return int(self.groups(self.columns([key]))[0])


def encode_namespace(window: tuple[int, int]) -> bytes:
    return _WINDOW.pack(*window)


def decode_namespace(data: bytes) -> tuple[int, int]:
    return _WINDOW.unpack(data)  # type: ignore[return-value]


def make_block(
    space: KeySpace,
    keys: Sequence[Any],
    namespaces: Sequence[tuple[int, int]] | None,
    fields: Sequence[tuple[str, t.LogicalType, Sequence[Any]]],
    schema: Mapping[str, Any],
) -> KeyedBlock:
    """Columns ``key0 …``, ``namespace`` (if given), then ``fields``, sorted by key group."""
    key_columns = space.columns(keys)
    groups = space.groups(key_columns) if keys else np.zeros(0, np.int32)
    named = [(f"key{i}", c) for i, c in enumerate(key_columns)]
    if namespaces is not None:
        binary = t.BinaryType(NAMESPACE_BYTES)
        named.append(("namespace", from_python(binary, [encode_namespace(n) for n in namespaces])))
    named += [(name, from_python(type_, values)) for name, type_, values in fields]
    if len(groups) > 1 and (np.diff(groups) < 0).any():
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        named = [(name, column.take(order)) for name, column in named]
    batch = pa.RecordBatch.from_arrays([c.to_arrow() for _, c in named], names=[n for n, _ in named])
    described = {
        "keys": [str(x) for x in space.types],
        "key_types": [t.type_to_json(x) for x in space.types],
        "columns": {name: str(type_) for name, type_, _ in fields},
        "types": {name: t.type_to_json(type_) for name, type_, _ in fields},
        **schema,
    }
    return KeyedBlock(batch, groups, described)


def read_keys(space: KeySpace, batch: pa.RecordBatch, schema: Mapping[str, Any], where: str) -> list[Any]:
    """The rows' keys. SpecError when the snapshot was keyed by other types."""
    stored = tuple(t.type_from_json(x) for x in schema["key_types"])
    if [x.with_nullable(True) for x in stored] != [x.with_nullable(True) for x in space.types]:
        raise SpecError(
            "state is keyed by other types",
            expected=", ".join(map(str, space.types)),
            got=", ".join(map(str, stored)),
            where=where,
            remedy="key by the stored types, or start without this state",
        )
    return tuples([Column.from_arrow(type_, batch.column(i)) for i, type_ in enumerate(space.types)])


def read_namespaces(batch: pa.RecordBatch) -> list[tuple[int, int]] | None:
    if "namespace" not in batch.schema.names:
        return None
    return [decode_namespace(x) for x in batch.column("namespace").to_pylist()]


def read_field(
    batch: pa.RecordBatch, schema: Mapping[str, Any], name: str
) -> tuple[t.LogicalType, list[Any]]:
    """(stored type, values) of a field."""
    type_ = t.type_from_json(schema["types"][name])
    return type_, to_python(Column.from_arrow(type_, batch.column(name)))


def regroup(space: KeySpace, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]) -> KeyedBlock:
    """Restored rows that nobody claimed, for the next snapshot unchanged."""
    batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    types = [t.type_from_json(x) for x in schema["key_types"]]
    columns = [Column.from_arrow(type_, batch.column(i)) for i, type_ in enumerate(types)]
    groups = space.groups(columns)
    order = np.argsort(groups, kind="stable")
    return KeyedBlock(batch.take(pa.array(order)), groups[order], schema)
