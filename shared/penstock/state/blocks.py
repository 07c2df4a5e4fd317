"""Converts rows of keyed state to ``KeyedBlock``s and back, in the same way for every backend."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.hashing import hash_columns, key_groups
from penstock.columnar.python_values import from_python, to_python, tuples
from penstock.errors import SpecError
from penstock.snapshots.by_key import NAMESPACE_BYTES, REMOVED_COLUMN, without_keys, without_removed
from penstock.snapshots.contract import KeyedBlock
from penstock.snapshots.keyed_blocks import group_order
from penstock.types import logical as t
from penstock.types.canonical import user_key
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WINDOW = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The key of an operator: the types of its columns, and the number of key groups."""

    types: tuple[t.LogicalType, ...]
    max_parallelism: int

    def columns(self, keys: Sequence[Any]) -> list[Column]:
        """``keys`` as columns. A key is a value, or a tuple if there are several columns."""
        if any(isinstance(x, t.RawType) for x in self.types):
            keys = list(map(user_key, keys))
        if len(self.types) == 1:
            return [from_python(self.types[0], keys)]
        parts = list(zip(*keys, strict=True)) or [()] * len(self.types)
        return [from_python(type_, part) for type_, part in zip(self.types, parts, strict=True)]

    def groups(self, columns: Sequence[Column]) -> np.ndarray:
        """The key group of each row, int32."""
        if not columns:
            return np.zeros(0, np.int32)
        return key_groups(hash_columns(columns), self.max_parallelism)

    def group_of(self, key: Any) -> int:
        """The key group of one key."""
        return int(self.groups(self.columns([key]))[0])


def encode_namespace(window: tuple[int, int]) -> bytes:
    """A window (start, end in µs) as 16 bytes, big-endian."""
    return _WINDOW.pack(*window)


def decode_namespace(data: bytes) -> tuple[int, int]:
    """The window (start, end in µs) that ``encode_namespace`` encoded."""
    return _WINDOW.unpack(data)


@dataclass(frozen=True, slots=True)
class RowForm:
    """The columns of the rows of one state.

    ``fields``: (name, type) after key and namespace. ``identity``: those fields that distinguish the
    entries of one key (a timer's time). ``schema``: further entries for the snapshot's schema.
    """

    space: KeyLayout
    namespaced: bool
    fields: tuple[tuple[str, t.LogicalType], ...]
    schema: Mapping[str, Any]
    identity: tuple[str, ...] = ()

    def rows(
        self,
        keys: Sequence[Any],
        namespaces: Sequence[tuple[int, int]],
        values: Sequence[Sequence[Any]],
        removed: Sequence[bool],
    ) -> pa.RecordBatch:
        """A batch with the columns ``key0 …``, ``namespace`` (if there is one), the fields, and
        ``__removed``."""
        named = [(f"key{i}", c) for i, c in enumerate(self.space.columns(keys))]
        if self.namespaced:
            binary = t.BinaryType(NAMESPACE_BYTES)
            named.append(("namespace", from_python(binary, [encode_namespace(n) for n in namespaces])))
        for (name, type_), column in zip(self.fields, values, strict=True):
            named.append((name, from_python(type_, column)))
        arrays = [c.to_arrow() for _, c in named]
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array(removed, pa.bool_())], names=[*(n for n, _ in named), REMOVED_COLUMN]
        )

    def block(
        self, pieces: Sequence[pa.RecordBatch], aside: Sequence[pa.RecordBatch], delta: bool
    ) -> KeyedBlock:
        """All rows in key-group order. Rows in ``aside``, which were copied before a change, replace those in
        ``pieces``."""
        schema = self.described()
        batch = _joined(pieces)
        if aside:
            first = _joined(aside)
            batch = _joined([without_keys(batch, [first], schema), first])
        if not delta:
            batch = without_removed(batch)
        out = in_group_order(self.space, batch, schema)
        out.identity, out.delta = "key", delta
        return out

    def described(self) -> dict[str, Any]:
        """The schema of the state for a snapshot."""
        names = [*(f"key{i}" for i in range(len(self.space.types))), *(["namespace"] * self.namespaced)]
        return {
            "keys": [str(x) for x in self.space.types],
            "key_types": [t.type_to_json(x) for x in self.space.types],
            "columns": {name: str(type_) for name, type_ in self.fields},
            "types": {name: t.type_to_json(type_) for name, type_ in self.fields},
            "identity": [*names, *self.identity],
            **self.schema,
        }


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def in_group_order(space: KeyLayout, batch: pa.RecordBatch, schema: dict[str, Any]) -> KeyedBlock:
    """A block of the rows of ``batch``, sorted by key group."""
    types = [t.type_from_json(x) for x in schema["key_types"]]
    columns = [Column.from_arrow(type_, batch.column(i)) for i, type_ in enumerate(types)]
    groups = space.groups(columns)
    if len(groups) > 1 and (np.diff(groups) < 0).any():
        order = group_order(groups)
        batch, groups = batch.take(pa.array(order)), groups[order]
    return KeyedBlock(batch, groups, schema)


def read_keys(space: KeyLayout, batch: pa.RecordBatch, schema: Mapping[str, Any], where: str) -> list[Any]:
    """The keys of the rows. Raises SpecError if the snapshot has other key types."""
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
    """The window of each row, or None if the state has no namespaces."""
    if "namespace" not in batch.schema.names:
        return None
    return [decode_namespace(x) for x in batch.column("namespace").to_pylist()]


def read_field(
    batch: pa.RecordBatch, schema: Mapping[str, Any], name: str
) -> tuple[t.LogicalType, list[Any]]:
    """(stored type, values) of one field."""
    type_ = t.type_from_json(schema["types"][name])
    return type_, to_python(Column.from_arrow(type_, batch.column(name)))


def regroup(
    space: KeyLayout, batches: Sequence[pa.RecordBatch], schema: dict[str, Any], *, delta: bool
) -> KeyedBlock:
    """Restored rows that no state claimed, unchanged, as a block for the next snapshot. A delta gets no rows."""
    batch = _joined(batches)
    out = in_group_order(space, batch.slice(0, 0) if delta else batch, schema)
    out.identity, out.delta = "key", delta
    return out
