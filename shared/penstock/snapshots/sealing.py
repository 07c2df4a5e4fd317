"""A JSON object whose last field is a checksum of the rest.

``{…,"crc32":"0123abcd"}``: the CRC-32 of all bytes before that comma. It remains a JSON object, so that a
reader which does not know the checksum can still read its version.
"""

from __future__ import annotations

import re
import zlib
from typing import Literal

_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\s*\Z')
#: The seal, with some white space after it, lies within so many bytes of the end.
_SEAL_BYTES = 64


def seal(document: bytes) -> bytes:
    """``document`` with its checksum. ``document`` is a JSON object with at least one field."""
    body = document[:-1]
    return b'%s,"crc32":"%08x"}' % (body, zlib.crc32(body))


def seal_of(data: bytes) -> Literal["whole", "broken", "absent"]:
    """``whole`` if the checksum is right, ``broken`` if it is wrong, ``absent`` if there is none."""
    start = max(0, len(data) - _SEAL_BYTES)
    found = _SEAL.search(data, start)
    if found is None:
        return "absent"
    return "whole" if zlib.crc32(data[: found.start()]) == int(found[1], 16) else "broken"
