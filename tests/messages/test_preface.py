"""The preface of a data connection: round trip, forgery, malformed peers."""

import asyncio
import json
import socket

import pytest

from penstock.errors import FencedError
from penstock.messages.preface import (
    MAGIC,
    decode_preface,
    encode_preface,
    read_preface,
    recv_preface,
    verify,
)

SECRET = "00112233445566778899aabbccddeeff"
FIELDS = {
    "job_id": "job-1",
    "job_attempt": 2,
    "epoch": 7,
    "source_allocation": "a",
    "target_allocation": "b",
}


def body_of(encoded: bytes) -> bytes:
    return encoded[8:]


def test_round_trip_and_mac() -> None:
    preface = decode_preface(body_of(encode_preface(**FIELDS, secret=SECRET)))
    assert {name: preface[name] for name in FIELDS} == FIELDS
    assert verify(preface, SECRET)
    assert not verify(preface, "ff" * 16)


@pytest.mark.parametrize(("field", "value"), [("job_attempt", 3), ("epoch", 8), ("target_allocation", "c")])
def test_a_changed_field_is_refused(field: str, value: object) -> None:
    preface = decode_preface(body_of(encode_preface(**FIELDS, secret=SECRET)))
    preface[field] = value
    assert not verify(preface, SECRET)


async def test_recv_leaves_the_rest_of_the_stream() -> None:
    left, right = socket.socketpair()
    right.setblocking(False)
    left.sendall(encode_preface(**FIELDS, secret=SECRET) + b"first frame")
    loop = asyncio.get_running_loop()
    preface = await recv_preface(loop, right)
    assert preface["job_id"] == "job-1"
    assert right.recv(100) == b"first frame"
    left.close()
    right.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        MAGIC + (1 << 30).to_bytes(4, "big"),
        MAGIC + (2).to_bytes(4, "big") + b"[]",
        MAGIC + (9).to_bytes(4, "big") + b'{"a": 1',
        MAGIC,
    ],
)
async def test_other_protocols_are_refused(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    with pytest.raises(FencedError):
        await read_preface(reader)


def test_wrong_types_are_refused() -> None:
    preface = json.loads(body_of(encode_preface(**FIELDS, secret=SECRET)))
    preface["epoch"] = "7"
    with pytest.raises(FencedError, match="malformed"):
        decode_preface(json.dumps(preface).encode())
