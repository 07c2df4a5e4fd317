"""Keys of NATS and what `nsc` would make of them: an operator, an account, users with permissions, their files."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys


class Key:
    """A new key pair. ``kind``: nkeys' prefix byte."""

    def __init__(self, kind: int = nkeys.PREFIX_BYTE_USER) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), kind).decode()
        self.public = nkeys.from_seed(bytearray(self.seed.encode())).public_key.decode()

    def signed(self, subject: str, name: str, claims: dict[str, Any]) -> str:
        """A JWT about ``subject`` that this key signs."""
        body = {
            "jti": os.urandom(12).hex(), "iat": int(time.time()), "iss": self.public, "sub": subject, "name": name,
            "nats": {"version": 2, **claims},
        }  # fmt: skip
        text = f"{_part(json.dumps({'typ': 'JWT', 'alg': 'ed25519-nkey'}).encode())}.{_part(json.dumps(body).encode())}"
        return f"{text}.{_part(nkeys.from_seed(bytearray(self.seed.encode())).sign(text.encode()))}"


class Operator:
    """An operator with one account."""

    def __init__(self) -> None:
        self._key, self._account = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_ACCOUNT)

    def configuration(self) -> str:
        """What a nats-server needs to know of both."""
        names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
        limits = {**dict.fromkeys(names, -1), "wildcards": True}
        account = self._key.signed(self._account.public, "penstock", {"type": "account", "limits": limits})
        operator = self._key.signed(self._key.public, "operator", {"type": "operator"})
        return f"operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {self._account.public}: {account} }}\n"

    def credentials(
        self, path: Path, name: str, publish: tuple[str, ...] = (">",), subscribe: tuple[str, ...] = (">",)
    ) -> Path:
        """Writes the ``.creds`` file of a new user."""
        user = Key()
        claims = {
            "type": "user", "pub": {"allow": list(publish)}, "sub": {"allow": list(subscribe)},
            "resp": {"max": 1, "ttl": 120 * 10**9}, "subs": -1, "data": -1, "payload": -1,
        }  # fmt: skip
        jwt = self._account.signed(user.public, name, claims)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n"
            "NKEY Seed printed below can be used to sign and prove identity.\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
        return path


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
