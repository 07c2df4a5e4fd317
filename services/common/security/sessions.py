"""The cookies of browsers: what was proven at the login, signed, so that every dispatcher that has the same key
reads them and none keeps a list. Pure but for the key's file."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

import msgspec

from penstock.errors import SpecError

LEAST_KEY = 32


class Session(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a cookie holds. ``proof``: the hash of the token with which the browser logged in, empty for OIDC;
    ``kind``: what the cookie is for, so that one cannot take another's place."""

    kind: str
    name: str = ""
    role: int = 0
    expires_s: float
    proof: str = ""


class Sessions:
    """Signs and reads cookies. ``key``: at least 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cookie(self, session: Session) -> str:
        """The cookie's value."""
        text = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
        return f"{text}.{self._signature(text)}"

    def read(self, cookie: str, kind: str, now_s: float) -> Session | None:
        """The session of a cookie; None if it was not signed here, is of another kind, or has expired."""
        text, _, signature = cookie.partition(".")
        if not signature.isascii() or not text.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(text)):
            return None
        session = msgspec.json.decode(base64.urlsafe_b64decode(text), type=Session)
        return session if session.kind == kind and now_s < session.expires_s else None

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def session_key(path: str, where: str) -> bytes:
    """The key in the file; a random one if ``path`` is empty. Raises SpecError if the file cannot be read or holds
    less than 32 bytes."""
    if not path:
        return secrets.token_bytes(LEAST_KEY)
    try:
        key = Path(path).read_bytes().strip()
    except OSError as err:
        raise SpecError(
            "the key of the sessions cannot be read", got=err.strerror or str(err), where=f"{where}: {path}",
            remedy="make it: head -c 48 /dev/urandom | base64 > FILE, and chmod 600 FILE",
        ) from None  # fmt: skip
    if len(key) < LEAST_KEY:
        raise SpecError(
            "the key of the sessions is too short",
            expected=f"{LEAST_KEY} bytes or more", got=f"{len(key)} bytes", where=f"{where}: {path}",
        )  # fmt: skip
    return key
