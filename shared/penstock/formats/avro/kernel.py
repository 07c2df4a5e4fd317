"""The compiled way from Avro records to columns (``penstock.native``), for the types that it knows.

A writer's schema becomes a table of nodes, through which the kernel walks for each record. It takes records that are
exactly one record of the schema; of the others the record-by-record way says what is wrong.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.formats.avro.schema import UNITS
from penstock.formats.build import FIRST_DAY, LAST_DAY
from penstock.formats.by_kernel import MAX_BYTES, MIN_RECORDS, Decoded, Texts, forget
from penstock.native import library
from penstock.native.columns import Outs, address, gather
from penstock.types import logical as t
from penstock.types.arrow_buffers import binary_array
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.formats.avro.schema import Node, Writer
    from penstock.types.logical import LogicalType

_KINDS = (
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "fixed",
    "enum",
    "union",
    "record",
    "array",
    "map",
)
_KIND = {name: number for number, name in enumerate(_KINDS)}
_DECIMAL = len(_KINDS)
_PLACES = (_KIND["bytes"], _KIND["string"], _KIND["fixed"])
_BITS: dict[type[LogicalType], int] = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
_DAY_US = 86_400_000_000
_MAX_NODES = 4096
#: The greatest number of milliseconds that is a number of microseconds.
_MAX_MILLIS = (2**63 - 1) // 1000


class _Node(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32), ("out", ctypes.c_int32), ("first", ctypes.c_int32), ("count", ctypes.c_int32),
        ("size", ctypes.c_int32), ("bits", ctypes.c_int32), ("limit", ctypes.c_int64),
    ]  # fmt: skip


class _NotKnownError(Exception):
    """The kernel has no way for this type."""


class _Place:
    """Where a column's values come out, and what they are there: ``unit`` of times in µs, ``symbols`` of an enum."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.unit = 1
        self.symbols: list[str] | None = None
        self.floating = False
        self.fields: list[_Place | None] = []


def kernel_of(
    writer: Writer, schema: Node, columns: t.Schema, unread: Mapping[str, Sequence[str]]
) -> AvroKernel | None:
    """A decoder of the writer's records; None where the library is missing, or a type is not its own. ``unread``: fields of
    ROW columns that become NULL, column → fields."""
    found = library()
    if found is None or not columns.fields:
        return None
    try:
        return AvroKernel(found, writer, schema, columns, unread)
    except _NotKnownError:
        return None


class AvroKernel:
    """Use ``kernel_of``."""

    def __init__(
        self,
        found: ctypes.CDLL,
        writer: Writer,
        schema: Node,
        columns: t.Schema,
        unread: Mapping[str, Sequence[str]],
    ) -> None:
        self._library, self._columns, self._writer = found, columns, writer
        self._decode = found.penstock_avro_decode
        self._decode.restype = ctypes.c_int64
        self._made: list[_Node] = []
        self._children: list[int] = []
        self._texts: list[bool] = []
        wanted = {f.name: f.type for f in columns.fields}
        root = self._record(schema, wanted, (), unread)
        self._places = [root.get(f.name) for f in columns.fields]
        self._nodes = (_Node * len(self._made))(*self._made)
        self._links = np.array([*self._children, 0], np.int32)

    # -- nodes --------------------------------------------------------------------------

    def _new(self, kind: int) -> _Node:
        if len(self._made) >= _MAX_NODES:
            raise _NotKnownError
        self._made.append(_Node(kind, -1, 0, 0, 0, 64, 0))
        return self._made[-1]

    def _link(self, node: _Node, children: list[int]) -> None:
        node.first, node.count = len(self._children), len(children)
        self._children += children

    def _place(self, node: _Node, *, texts: bool) -> _Place:
        node.out = len(self._texts)
        self._texts.append(texts)
        return _Place(node.out)

    def _record(
        self,
        node: Node,
        wanted: dict[str, LogicalType],
        above: tuple[str, ...],
        unread: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, _Place]:
        """Lays out a record; gives the places of its wanted fields. ``unread``: of its ROWs."""
        if node["name"] in above:
            raise _NotKnownError  # it holds itself
        made = self._new(_KIND["record"])
        places, children = {}, []
        for field in node["fields"]:
            children.append(len(self._made))
            name = field["name"]
            left_out = (unread or {}).get(name, ())
            place = self._any(field["type"], wanted.get(name), (*above, node["name"]), left_out)
            if place is not None:
                places[field["name"]] = place
        self._link(made, children)
        return places

    def _any(
        self, node: Node, type_: LogicalType | None, above: tuple[str, ...], left_out: Sequence[str] = ()
    ) -> _Place | None:
        """Lays out a schema; gives the place of its values, if they are wanted. ``left_out``: fields of a ROW that are not."""
        if isinstance(node, list):
            made, place, children = self._new(_KIND["union"]), None, []
            for branch in node:
                children.append(len(self._made))
                place = self._any(branch, None if branch == "null" else type_, above, left_out) or place
            self._link(made, children)
            return place
        node, kind = self._writer.resolved(node)
        if isinstance(node, list):
            return self._any(node, type_, above, left_out)
        match kind:
            case "record":
                return self._nested(node, type_, above, left_out)
            case "array" | "map":
                if type_ is not None:
                    raise _NotKnownError
                made = self._new(_KIND[kind])
                child = len(self._made)
                self._any(node["items" if kind == "array" else "values"], None, above)
                self._link(made, [child])
                return None
        if kind not in _KIND:
            raise _NotKnownError
        return self._leaf(node, kind, type_)

    def _nested(
        self, node: Node, type_: LogicalType | None, above: tuple[str, ...], left_out: Sequence[str]
    ) -> _Place | None:
        at = len(self._made)
        if type_ is None:
            self._record(node, {}, above)
            return None
        assert isinstance(type_, t.RowType)
        if not type_.fields:
            raise _NotKnownError
        places = self._record(node, {f.name: f.type for f in type_.fields if f.name not in left_out}, above)
        place = self._place(self._made[at], texts=False)
        place.fields = [places.get(f.name) for f in type_.fields]
        return place

    def _leaf(self, node: Node, kind: str, type_: LogicalType | None) -> _Place | None:
        logical = node.get("logicalType") if isinstance(node, dict) else None
        made = self._new(_KIND[kind])
        if isinstance(node, dict):
            made.size = node.get("size", 0)
            made.count = len(node.get("symbols", ()))
        if type_ is None:
            return None
        if isinstance(type_, t.DecimalType):
            if (node.get("precision"), node.get("scale", 0)) != (
                type_.precision,
                type_.scale,
            ) or type_.precision > 18:
                raise _NotKnownError
            made.kind, made.limit = _DECIMAL, 10**type_.precision
            made.size = made.size if kind == "fixed" else -1
            return self._place(made, texts=False)
        if isinstance(type_, t.FloatType | t.DoubleType) and kind not in ("float", "double"):
            raise _NotKnownError
        place = self._place(made, texts=made.kind in _PLACES)
        place.floating = kind in ("float", "double")
        made.bits = _BITS.get(type(type_), 64)
        if kind == "enum":
            place.symbols = node["symbols"]
        if isinstance(type_, t.TimestampType | t.TimestampLtzType | t.TimeType):
            place.unit = UNITS[str(logical)]
        return place

    # -- records ------------------------------------------------------------------------

    def decode(self, texts: Texts) -> Decoded | None:
        """The records of which it is sure; None if there are none."""
        count = len(texts.start)
        if count < MIN_RECORDS or len(texts.data) > MAX_BYTES:
            return None
        outs = Outs(count, self._texts)
        sure = np.zeros(count, np.bool_)
        taken = self._decode(
            texts.data, address(texts.start), address(texts.end), ctypes.c_int64(count), self._nodes,
            address(self._links), outs.pointers, address(sure),
        )  # fmt: skip
        if taken < count:
            forget(outs, ~sure)
        columns = [
            self._column(f.type, place, outs, texts.data, sure)
            for f, place in zip(self._columns.fields, self._places, strict=True)
        ]
        rows = np.flatnonzero(sure)
        if not len(rows):
            return None
        batch = Batch(self._columns, columns, num_rows=count)
        return Decoded(batch if len(rows) == count else batch.take(rows), rows)

    def _column(
        self, type_: LogicalType, place: _Place | None, outs: Outs, data: bytes, sure: np.ndarray
    ) -> Column:
        """A column's values. ``sure`` becomes False for values that do not fit it."""
        if place is None:
            return Column.nulls(type_, outs.count)
        valid = outs.mask(place.number)
        if not type_.nullable and valid is not None:
            sure &= valid
        if isinstance(type_, t.RowType):
            return Column.from_arrow(type_, self._rows(type_, place, outs, data, sure))
        number = outs.number[place.number]
        if number is None:
            found = outs.places[place.number]
            assert found is not None
            array = binary_array(external_arrow_type(type_), *gather(self._library, data, found), valid)
            return Column(type_, array)
        if place.symbols is not None:
            at = pa.array(number, mask=None if valid is None else ~valid)
            return Column(type_, pa.array(place.symbols, pa.string()).take(at))
        if place.floating:
            number = number.view(np.float64)
        elif place.unit != 1 or isinstance(type_, t.TimeType | t.TimestampType | t.TimestampLtzType):
            number = _times(type_, number, place.unit, sure)
        elif isinstance(type_, t.DateType):
            sure &= (number >= FIRST_DAY) & (number <= LAST_DAY)
        dtype = numpy_dtype(type_)
        assert dtype is not None
        return Column(type_, number.astype(dtype, copy=False), valid)

    def _rows(self, type_: t.RowType, place: _Place, outs: Outs, data: bytes, sure: np.ndarray) -> pa.Array:
        there = outs.mask(place.number)
        parts = []
        for field, inner in zip(type_.fields, place.fields, strict=True):
            # A field of a row that is NULL has no value to be sure of.
            fits = np.ones(outs.count, np.bool_)
            parts.append(self._column(field.type, inner, outs, data, fits).to_external_arrow())
            sure &= fits if there is None else fits | ~there
        fields = [pa.field(f.name, p.type) for f, p in zip(type_.fields, parts, strict=True)]
        return pa.StructArray.from_arrays(
            parts, fields=fields, mask=None if there is None else pa.array(~there)
        )


def _times(type_: Any, number: np.ndarray, unit: int, sure: np.ndarray) -> np.ndarray:
    """µs, cut to the type's precision."""
    if unit != 1:
        fits = (number >= -_MAX_MILLIS) & (number <= _MAX_MILLIS)
        sure &= fits
        number = np.where(fits, number, 0) * unit
    step = 10 ** (6 - type_.precision)
    if step > unit:
        number = number - number % step
    if isinstance(type_, t.TimeType):
        sure &= (number >= 0) & (number < _DAY_US)
    else:
        sure &= (number >= FIRST_DAY * _DAY_US) & (number < (LAST_DAY + 1) * _DAY_US)
    return number
