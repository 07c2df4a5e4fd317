"""The plaintext preface of a data connection.

Layout: 4 bytes magic ``PNS1``, uint32 big-endian length, JSON object::

    {job_id, job_attempt, epoch, source_allocation, target_allocation, mac}

``mac`` is the HMAC-SHA256 (hex) of the other five fields as canonical JSON (sorted keys, no spaces); its
key is the secret of the job attempt. A task manager reads and verifies the preface, then passes the socket
to the slot of ``target_allocation``. A preface of length 0 (``WATCH``) opens a connection without data:
its peer only waits for the connection to close, which tells that the task manager has ended.
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
#: A preface has a few hundred bytes. A connection that announces more is refused.
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
    """The bytes that open a data connection. ``secret`` is the hex string from ``Deploy``."""
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
    """Parses the JSON part and checks the fields and their types. Raises FencedError if it is malformed."""
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
    """Reads a preface from a stream. The caller sets the time limit.

    Raises FencedError if the peer closes the connection or sends anything else. A StreamReader may have
    buffered bytes after the preface, so ``recv_preface`` is the one to use where the socket is passed on.
    """
    try:
        head = await reader.readexactly(8)
        return decode_preface(await reader.readexactly(_body_length(head)))
    except asyncio.IncompleteReadError as err:
        raise _hung_up(len(err.partial)) from None


async def recv_preface(loop: asyncio.AbstractEventLoop, sock: Any) -> dict[str, Any] | None:
    """Reads exactly the preface from a non-blocking socket, so that the next byte is the first frame's when
    the socket is passed to the slot. Returns None for ``WATCH``. Raises FencedError as ``read_preface``
    does."""
    head = await _recv_exactly(loop, sock, 8)
    if head == WATCH:
        return None
    return decode_preface(await _recv_exactly(loop, sock, _body_length(head)))


def verify(preface: dict[str, Any], secret: str) -> bool:
    """Whether the sender of ``preface`` held ``secret`` (hex). The comparison takes constant time."""
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
