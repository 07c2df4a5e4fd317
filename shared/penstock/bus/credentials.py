"""NATS credentials in files: an nkey's seed, or a JWT with its nkey (``.creds``).

A ``.creds`` file is read for each connection, so a renewed one needs no restart. nats-py reads a ``.creds`` file without the
expected lines for ever: here they are found, or the file is refused by name.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import NATS_CREDENTIALS, NATS_NKEY
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import ConfigOption

_JWT = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s+(\S+)\s+-{3,}END NATS USER JWT-{3,}")
_SEED = re.compile(r"-{3,}BEGIN USER NKEY SEED-{3,}\s+(\S+)\s+-{3,}END USER NKEY SEED-{3,}")
#: How the seed of a user's nkey begins; accounts (SA) and operators (SO) do not connect.
_USERS = "SU"


def credentials(config: Mapping[str, str]) -> dict[str, Any]:
    """Who connects, as arguments of nats-py's ``connect``. Raises SpecError if a file cannot be used, both kinds are
    named, or the package nkeys is missing."""
    creds, nkey = NATS_CREDENTIALS.read(config), NATS_NKEY.read(config)
    if creds and nkey:
        raise SpecError(
            "a service connects to NATS with one kind of credentials",
            got=f"{NATS_CREDENTIALS.key} and {NATS_NKEY.key}",
            remedy="leave one of them out",
        )
    if creds:
        _jwt_and_seed(creds)  # refused now rather than at each attempt to connect
        return {
            "user_jwt_cb": lambda: bytearray(_jwt_and_seed(creds)[0].encode()),
            "signature_cb": lambda nonce: _signed(nonce, _jwt_and_seed(creds)[1], creds),
        }
    if nkey:
        return {"nkeys_seed_str": _seed_in(nkey)}
    return {}


def _text(option: ConfigOption[str], path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as err:
        raise _refused(option, path, "cannot be read", str(err)) from None


def _jwt_and_seed(path: str) -> tuple[str, str]:
    text = _text(NATS_CREDENTIALS, path)
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        missing = "a user's JWT" if jwt is None else "the seed of its nkey"
        raise _refused(NATS_CREDENTIALS, path, f"does not hold {missing}")
    _key(seed[1], NATS_CREDENTIALS, path)
    return jwt[1], seed[1]


def _seed_in(path: str) -> str:
    lines = [line.strip() for line in _text(NATS_NKEY, path).splitlines()]
    # Comments, and the frame that `nsc` and `nk` write around a seed.
    seeds = [line for line in lines if line and not line.startswith(("#", "-", "*"))]
    if len(seeds) != 1:
        raise _refused(NATS_NKEY, path, "does not hold one seed", f"{len(seeds)} lines")
    _key(seeds[0], NATS_NKEY, path)
    return seeds[0]


def _key(seed: str, option: ConfigOption[str], path: str) -> Any:
    try:
        import nkeys
    except ImportError:
        raise SpecError(
            "NATS credentials need a package that is not installed",
            where=f"configuration key '{option.key}'",
            remedy="pip install 'penstock[nkeys]'",
        ) from None
    if not seed.startswith(_USERS):
        raise _refused(option, path, "holds no seed of a user's nkey")
    try:
        return nkeys.from_seed(bytearray(seed.encode()))
    except (nkeys.NkeysError, ValueError):
        raise _refused(option, path, "holds a seed that is damaged") from None


def _signed(nonce: str, seed: str, path: str) -> bytes:
    return base64.b64encode(_key(seed, NATS_CREDENTIALS, path).sign(nonce.encode()))


def _refused(option: ConfigOption[str], path: str, what: str, got: str | None = None) -> SpecError:
    """What the file holds is never shown."""
    return SpecError(
        f"a file of NATS credentials {what}",
        expected="a .creds file as `nsc generate creds` writes it"
        if option is NATS_CREDENTIALS
        else "the seed of a user's nkey (SU…), as `nk -gen user` writes it",
        got=got,
        where=f"configuration key '{option.key}': {path}",
    )
