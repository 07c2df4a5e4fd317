"""Frames: every element crosses a connection unchanged, however the bytes are cut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.errors import InternalError
from penstock.runtime.elements import END_OF_INPUT, STATUSES, Barrier, Element, Watermark
from penstock.runtime.network.connection import FrameProtocol
from penstock.runtime.network.frames import HEADER, ElementDecoder, encode_element
from penstock.types import Batch, Schema
from penstock.types.logical import (
    ArrayType,
    BigIntType,
    BooleanType,
    DecimalType,
    DoubleType,
    Field,
    RawType,
    RowType,
    TimestampType,
    VarCharType,
)

SCHEMA = Schema.of(
    ("b", BooleanType()),
    ("i", BigIntType()),
    ("d", DoubleType()),
    ("s", VarCharType()),
    ("m", DecimalType(10, 2)),
    ("t", TimestampType()),
    ("a", ArrayType(BigIntType())),
    ("r", RowType((Field("x", BigIntType()),))),
    ("o", RawType()),
)
ROW = (True, 1, 2.5, "ü", None, None, [1, None], {"x": 3}, {"any": "thing"})
NULLS = (None,) * 9


def batch(**extra: Any) -> Batch:
    return Batch.of(SCHEMA, [ROW, NULLS, ROW], **extra)


def round_trip(element: Element, schema: Schema = SCHEMA) -> Element:
    type_, flags, payload = encode_element(element)
    return ElementDecoder(schema).decode(type_, flags, bytes(payload))


@pytest.mark.parametrize(
    "extra", [{}, {"kinds": [0, 1, 2]}, {"times": [1, 2, 3]}, {"kinds": [3, 3, 0], "times": [1, 2, 3]}]
)
def test_batches(extra: dict[str, Any]) -> None:
    found = round_trip(batch(**extra))
    assert isinstance(found, Batch)
    assert found.to_pylist() == [ROW, NULLS, ROW]
    assert (None if found.kinds is None else found.kinds.tolist()) == extra.get("kinds")
    assert (None if found.times is None else found.times.tolist()) == extra.get("times")


def test_a_slice_carries_only_its_rows() -> None:
    whole = Batch.of(Schema.of(("s", VarCharType())), [("x" * 1000,)] * 1000)
    _, _, payload = encode_element(whole.slice(500, 2))
    assert len(payload) < 4000
    found = round_trip(whole.slice(500, 2), whole.schema)
    assert isinstance(found, Batch)
    assert found.num_rows == 2


@pytest.mark.parametrize("rows", [0, 3])
def test_a_batch_without_columns_keeps_its_length(rows: int) -> None:
    found = round_trip(Batch(Schema(()), [], num_rows=rows), Schema(()))
    assert isinstance(found, Batch)
    assert found.num_rows == rows
    assert found.kinds is None


@pytest.mark.parametrize(
    "element",
    [
        Watermark(-(2**63)),
        Watermark(7),
        *STATUSES.values(),
        Barrier(3, 123, "savepoint"),
        Barrier(4, 5, patience_ms=0),
        END_OF_INPUT,
    ],
)
def test_control_elements(element: Element) -> None:
    assert round_trip(element) == element


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_of_the_bytes_gives_the_same_frames(seed: int) -> None:
    rng = random.Random(seed)
    frames = [
        (rng.randrange(8), rng.randrange(4), rng.randrange(9), rng.randrange(9), rng.randrange(9),
         rng.randbytes(rng.choice([0, 1, 8, 500, 20_000, 300_000])))
        for _ in range(20)
    ]  # fmt: skip
    data = b"".join(HEADER.pack(len(p), *head) + p for *head, p in frames)
    got: list[tuple[Any, ...]] = []
    protocol = FrameProtocol(lambda *frame: got.append((*frame[:5], bytes(frame[5]))), lambda err: None)
    at = 0
    while at < len(data):
        view = protocol.get_buffer(-1)
        n = min(len(view), len(data) - at, rng.choice([1, 7, 100, 5000, 1 << 20]))
        view[:n] = data[at : at + n]
        protocol.buffer_updated(n)
        at += n
    assert got == frames


def test_a_broken_peer_ends_the_connection_with_a_reason() -> None:
    lost: list[Exception | None] = []
    protocol = FrameProtocol(lambda *frame: None, lost.append)
    head = HEADER.pack(1 << 31, 1, 0, 0, 0, 0)
    protocol.get_buffer(-1)[: len(head)] = head
    protocol.buffer_updated(len(head))
    assert isinstance(lost[0], InternalError)
