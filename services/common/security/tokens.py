"""The file of bearer tokens: a YAML list of names, roles and hashes, read again when it changes.

A token is random (``penstock token`` makes it), so one round of SHA-256 is enough: there is nothing to guess. The
file holds no token, except by reference to a secret.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import secrets
from penstock.errors import PenstockError, SpecError
from penstock.log_events import EventLog
from penstock_services.common.security.roles import Identity, Role, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Characters that a token of a secret must have: shorter ones can be guessed.
LEAST = 20
_HASH = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"name", "role", "sha256", "secret", "expires"}
_FORM = "a list of entries with name, role, and sha256 or secret; `penstock token NAME --role ROLE` makes one"
_log = EventLog("penstock.security")


@dataclass(frozen=True)
class Token:
    """An entry of the file. ``expires_s``: Unix time; None: never."""

    name: str
    role: Role
    expires_s: float | None = None


def digest(token: str) -> str:
    """The hash of a token, as the file holds it."""
    return hashlib.sha256(token.encode()).hexdigest()


def parse_tokens(text: str, where: str) -> dict[str, Token]:
    """Hash → entry. ``where``: the file, for errors. Raises SpecError for an entry that is malformed, twice there
    or without a usable hash, and SecretError if a secret that it names is missing."""
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        # Its words would show what stands in the file.
        raise SpecError("the file of tokens is not YAML", expected=_FORM, where=where) from None
    if not isinstance(tree, list):
        raise SpecError(
            "the file of tokens holds no list", expected=_FORM, got=type(tree).__name__, where=where
        )
    found: dict[str, Token] = {}
    names: set[str] = set()
    for number, entry in enumerate(tree, 1):
        key, token = _entry(entry, f"{where}, entry {number}")
        if key in found or token.name in names:
            raise SpecError("a token is there twice", got=repr(token.name), where=f"{where}, entry {number}")
        names.add(token.name)
        found[key] = token
    return found


def _entry(entry: Any, where: str) -> tuple[str, Token]:
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS or not entry.get("name"):
        got = sorted(map(str, entry)) if isinstance(entry, dict) else type(entry).__name__
        raise SpecError("a malformed entry in the file of tokens", expected=_FORM, got=str(got), where=where)
    name, role = str(entry["name"]), role_of(str(entry.get("role")), where)
    given, secret = entry.get("sha256"), entry.get("secret")
    if (given is None) == (secret is None):
        raise SpecError("a token has one of sha256 and secret", expected=_FORM, where=where)
    if secret is not None:
        token = secrets.resolve(f"{secrets.PREFIX}{secret}", where=where)
        if len(token) < LEAST:
            raise SpecError(
                "a token is too short", expected=f"{LEAST} characters or more", where=where,
                remedy="take one that 'penstock token' makes",
            )  # fmt: skip
        given = digest(token)
    if not _HASH.fullmatch(str(given)):
        raise SpecError(
            "not the hash of a token", expected="64 hexadecimal digits, in quotes", where=where,
            remedy="'penstock token' makes tokens with their hashes",
        )  # fmt: skip
    return str(given), Token(name, role, _expiry(entry.get("expires"), where))


def _expiry(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time(), datetime.UTC).timestamp()
    raise SpecError(
        "not a date", expected="2027-01-31 or 2027-01-31T12:00:00Z", got=repr(value)[:80], where=where
    )


class TokenFile:
    """The tokens of a file. Raises SpecError at once if it cannot be read or is malformed. Later, a file that is
    malformed leaves the former tokens valid, with a log line."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp = self._look()
        self._tokens = self._read()

    def find(self, token: str, now_s: float) -> Identity | None:
        """Whose token it is; None if it is nobody's, or has expired."""
        return self.by_digest(digest(token), now_s)

    def by_digest(self, key: str, now_s: float) -> Identity | None:
        """Whose token has this hash. The look-up compares hashes, so its time tells nothing about tokens."""
        found = self.tokens().get(key)
        if found is None or (found.expires_s is not None and now_s >= found.expires_s):
            return None
        return Identity(found.name, found.role, "token", found.expires_s)

    def tokens(self) -> Mapping[str, Token]:
        """Hash → entry, of the file as it is now."""
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp
                self._tokens = self._read()
                _log.info("tokens_read", file=str(self._path), tokens=len(self._tokens))
        except PenstockError as err:
            _log.error("tokens_not_read", file=str(self._path), error=str(err))
        return self._tokens

    def _look(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as err:
            raise _unreadable(self._path, err) from None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> dict[str, Token]:
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as err:
            raise _unreadable(self._path, err) from None
        return parse_tokens(text, str(self._path))


def _unreadable(path: Path, err: Exception) -> SpecError:
    return SpecError(
        "the file of tokens cannot be read",
        expected=_FORM,
        got=str(getattr(err, "strerror", None) or "not UTF-8"),
        where=str(path),
        remedy="make it there, or change security.rest.tokens-file",
    )
