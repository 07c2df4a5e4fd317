"""Frames on a data connection.

Header (16 bytes, little-endian): payload length u32, type u8, flags u8, edge u16,
producer u32, consumer u32. Payloads:

    BATCH      Arrow IPC record-batch message without its schema (both ends know it);
               flags say which of the columns ``__kind`` and ``__time`` lead
    WATERMARK  i64 µs
    STATUS     u8, 1 = idle
    BARRIER    MessagePack [checkpoint id, timestamp ms, kind, patience ms or nil]
    END        empty
    CREDIT     u32 bytes; consumer → producer
    HELLO      empty; consumer → producer, once: the target slot has taken the socket
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.errors import InternalError
from penstock.operators.idleness import Idleness
from penstock.runtime.elements import (
    END_OF_INPUT,
    STATUSES,
    Barrier,
    Element,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)
from penstock.types.batch import KIND_FIELD, TIME_FIELD, Batch, physical_arrow_schema

if TYPE_CHECKING:
    from penstock.types.logical import Schema

HEADER = struct.Struct("<IBBHII")
HEADER_BYTES = HEADER.size
#: A larger payload means a broken peer: senders cut batches at a few MiB.
MAX_PAYLOAD_BYTES = 1 << 30

BATCH, WATERMARK, STATUS, BARRIER, END, CREDIT, HELLO = range(1, 8)
_KINDS, _TIMES = 1, 2
_I64 = struct.Struct("<q")
_U32 = struct.Struct("<I")


def encode_element(element: Element) -> tuple[int, int, bytes | memoryview]:
    """(type, flags, payload)."""
    match element:
        case Batch():
            rb = element.to_arrow()
            lead = rb.schema.names[:2]
            flags = (_KINDS if KIND_FIELD in lead else 0) | (_TIMES if TIME_FIELD in lead else 0)
            return BATCH, flags, memoryview(rb.serialize())
        case Watermark(value=value):
            return WATERMARK, 0, _I64.pack(value)
        case WatermarkStatus(idle=idle):
            return STATUS, 0, bytes([idle])
        case Barrier():
            fields = (element.checkpoint_id, element.timestamp_ms, element.kind, element.patience_ms)
            return BARRIER, 0, msgspec.msgpack.encode(fields)
        case EndOfInput():
            return END, 0, b""
    raise InternalError(f"no frame for {element!r}")


class ElementDecoder:
    """Decodes the elements of one channel, whose edge has ``schema``."""

    __slots__ = ("_arrow", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._arrow: dict[int, pa.Schema] = {}

    def decode(self, type_: int, flags: int, payload: bytes | bytearray) -> Element:
        """The element of a frame. Raises InternalError for an unknown type."""
        if type_ == BATCH:
            arrow = self._arrow.get(flags)
            if arrow is None:
                arrow = physical_arrow_schema(
                    self._schema, kinds=bool(flags & _KINDS), times=bool(flags & _TIMES)
                )
                self._arrow[flags] = arrow
            rb = pa.ipc.read_record_batch(pa.py_buffer(payload), arrow)
            return without_placeholder(Batch.from_arrow(self._schema, rb), self._schema)
        if type_ == WATERMARK:
            return Watermark(_I64.unpack(payload)[0])
        if type_ == STATUS:
            return STATUSES[Idleness(payload[0])]
        if type_ == BARRIER:
            return Barrier(*msgspec.msgpack.decode(payload))
        if type_ == END:
            return END_OF_INPUT
        raise InternalError(f"a data frame of unknown type {type_}")


def without_placeholder(batch: Batch, schema: Schema) -> Batch:
    """A batch without columns is sent with a column of kinds, which carries its length."""
    if schema.fields or batch.kinds is None or batch.kinds.any():
        return batch
    return batch.with_kinds(None)


def encode_credit(n: int) -> bytes:
    """The payload of a CREDIT frame of ``n`` bytes."""
    return _U32.pack(n)


def decode_credit(payload: bytes | bytearray) -> int:
    """The bytes of credit in a CREDIT frame."""
    credit: int = _U32.unpack(payload)[0]
    return credit
