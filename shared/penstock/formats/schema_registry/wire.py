"""The header of a registered message: a zero byte and the schema's id in four bytes, the highest first."""

from __future__ import annotations

HEADER_BYTES = 5
_MAGIC = 0


def header(schema_id: int) -> bytes:
    """The bytes in front of a message of the schema ``schema_id``."""
    return bytes([_MAGIC]) + schema_id.to_bytes(4, "big")


def schema_id_of(message: bytes) -> int:
    """The id of the schema that the message's header names. ValueError: there is no such header."""
    if len(message) < HEADER_BYTES:
        raise ValueError(f"{len(message)} bytes are less than the header, which has {HEADER_BYTES}")
    if message[0] != _MAGIC:
        raise ValueError(f"the first byte is {message[0]}, not {_MAGIC}")
    return int.from_bytes(message[1:HEADER_BYTES], "big")
