"""A JSON object that carries a checksum of itself as its last field.

``{…,"crc32":"0123abcd"}``: CRC-32 of all bytes before the comma. It stays one JSON object, so that a reader
which does not know the checksum still sees its version.
"""

from __future__ import annotations

import re
import zlib
from typing import Literal

_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')
#: Bytes of a seal with some white space after it.
_SEAL_BYTES = 64


def seal(document: bytes) -> bytes:
    """``document``: a JSON object with at least one field."""
    body = document[:-1]
    return b'%s,"crc32":"%08x"}' % (body, zlib.crc32(body))


def seal_of(data: bytes) -> Literal["whole", "broken", "absent"]:
    """Whether the bytes are those that were sealed."""
    start = max(0, len(data) - _SEAL_BYTES)
    found = _SEAL.search(data, start)
    if found is None:
        return "absent"
    return "whole" if zlib.crc32(data[: found.start()]) == int(found[1], 16) else "broken"
