"""``penstock token``: a new bearer token, and its entry for the cluster's file of tokens."""

from __future__ import annotations

import hashlib
import json
import secrets

import typer

from penstock.errors import SpecError

#: As the services know them, which the command line does not import.
ROLES = ("read", "operate", "submit", "admin")
_BYTES = 32


def make_token(name: str, role: str, format: str) -> None:
    """Prints a token that is shown once, and the entry that holds its hash. Raises SpecError for another role."""
    if role not in ROLES:
        raise SpecError("no such role", expected=", ".join(ROLES), got=repr(role), where="--role")
    token = f"pst_{secrets.token_urlsafe(_BYTES)}"
    digest = hashlib.sha256(token.encode()).hexdigest()
    if format == "json":
        entry = {"name": name, "role": role, "sha256": digest}
        typer.echo(json.dumps({"token": token, "entry": entry}))
        return
    typer.echo(
        f"{token}\n\n"
        "Keep it: it is shown this once. Its entry for the file that security.rest.tokens-file names:\n\n"
        f'- name: {json.dumps(name)}\n  role: {role}\n  sha256: "{digest}"'
    )
