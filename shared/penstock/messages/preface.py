"""The plaintext preface of a data connection.

Layout: 4 bytes magic ``PNS1``, uint32 big-endian length, JSON object::

    {job_id, job_attempt, epoch, source_allocation, target_allocation, mac}

``mac`` is HMAC-SHA256 (hex) with the job attempt's secret over the other five fields
as canonical JSON (sorted keys, no spaces). A task manager reads and verifies it, then
hands the socket to the slot of ``target_allocation``. A length of 0 (``WATCH``) is of
somebody who only wants to see when the task manager is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any

from penstock.errors import FencedError

MAGIC = b"PNS1"
WATCH = MAGIC + bytes(4)
#: A preface is a few hundred bytes; anything larger is not one of ours.
MAX_PREFACE_BYTES = 4096
_FIELDS = ("job_id", "job_attempt", "epoch", "source_allocation", "target_allocation")


def _canonical(preface: dict[str, Any]) -> bytes:
    signed = {name: preface[name] for name in _FIELDS}
    return json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()


def _mac(preface: dict[str, Any], secret: str) -> str:
    return hmac.new(bytes.fromhex(secret), _canonical(preface), hashlib.sha256).hexdigest()


def encode_preface(
    *,
    job_id: str,
    job_attempt: int,
    epoch: int,
    source_allocation: str,
    target_allocation: str,
    secret: str,
) -> bytes:
    """The bytes that open a data connection. ``secret``: hex, from ``Deploy``."""
    preface: dict[str, Any] = {
        "job_id": job_id,
        "job_attempt": job_attempt,
        "epoch": epoch,
        "source_allocation": source_allocation,
        "target_allocation": target_allocation,
    }
    preface["mac"] = _mac(preface, secret)
    body = json.dumps(preface, separators=(",", ":")).encode()
    return MAGIC + len(body).to_bytes(4, "big") + body


def decode_preface(body: bytes) -> dict[str, Any]:
    """The JSON part as a checked dict. FencedError when it is not a preface."""
    try:
        preface = json.loads(body)
        ok = isinstance(preface, dict) and all(name in preface for name in (*_FIELDS, "mac"))
        ok = ok and isinstance(preface["job_attempt"], int) and isinstance(preface["epoch"], int)
        texts = ("job_id", "source_allocation", "target_allocation", "mac")
        ok = ok and all(isinstance(preface[name], str) for name in texts)
    except ValueError:
        ok = False
    if not ok:
        raise FencedError(
            "a data connection opened with a malformed preface",
            expected="JSON with " + ", ".join((*_FIELDS, "mac")),
            got=repr(body[:80]),
        )
    return dict(preface)


async def read_preface(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Reads exactly the preface, not a byte more when the stream's limit is small.

    The caller sets the time limit. FencedError when the peer speaks something else or
    hangs up. Prefer ``recv_preface`` where the socket is passed on: a StreamReader may
    have read further.
    """
    try:
        head = await reader.readexactly(8)
        return decode_preface(await reader.readexactly(_body_length(head)))
    except asyncio.IncompleteReadError as err:
        raise _hung_up(len(err.partial)) from None


async def recv_preface(loop: asyncio.AbstractEventLoop, sock: Any) -> dict[str, Any] | None:
    """Reads the preface from a non-blocking socket, exactly, so that the socket can be
    passed to the slot with its next byte being the first frame's. None: somebody watches."""
    head = await _recv_exactly(loop, sock, 8)
    if head == WATCH:
        return None
    return decode_preface(await _recv_exactly(loop, sock, _body_length(head)))


def verify(preface: dict[str, Any], secret: str) -> bool:
    """True when ``preface`` was made by a holder of ``secret`` (constant time)."""
    return hmac.compare_digest(_mac(preface, secret), str(preface["mac"]))


def _body_length(head: bytes) -> int:
    length = int.from_bytes(head[4:], "big")
    if head[:4] != MAGIC or not 0 < length <= MAX_PREFACE_BYTES:
        raise FencedError(
            "a data connection did not open with our preface",
            expected=f"{MAGIC!r} and a length up to {MAX_PREFACE_BYTES}",
            got=repr(head),
            remedy="only penstock slots may connect to a task manager's data port",
        )
    return length


async def _recv_exactly(loop: asyncio.AbstractEventLoop, sock: Any, n: int) -> bytes:
    got = b""
    while len(got) < n:
        chunk = await loop.sock_recv(sock, n - len(got))
        if not chunk:
            raise _hung_up(len(got))
        got += chunk
    return got


def _hung_up(n: int) -> FencedError:
    return FencedError("a data connection closed inside its preface", got=f"{n} bytes")
