"""Many messages in one: each behind its length as a varint, as the library's ``writeDelimitedTo`` writes them."""

from __future__ import annotations

from collections.abc import Iterable


def join(messages: Iterable[bytes]) -> bytes:
    """The messages, each behind its length."""
    out = bytearray()
    for message in messages:
        rest = len(message)
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
        out += message
    return bytes(out)


def cut(data: bytes) -> list[bytes]:
    """The messages of ``data``. What follows a broken length cannot be told apart, and is the last one."""
    found, at = [], 0
    while at < len(data):
        length, shift, start = 0, 0, at
        while at < len(data) and data[at] > 0x7F and shift < 63:
            length |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
        end = len(data) + 1
        if at < len(data) and data[at] <= 0x7F:
            end = at + 1 + (length | data[at] << shift)
        if end > len(data):
            # No message begins with these bytes: field number 0 does not exist.
            found.append(b"\0" + data[start:])
            return found
        found.append(data[at + 1 : end])
        at = end
    return found
