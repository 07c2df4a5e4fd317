"""The form of a key: relative parts separated by ``/``, none of them empty, ``.`` or ``..``."""

from __future__ import annotations

from penstock.errors import ObjectStoreError


def check_key(key: str) -> str:
    """``key`` itself. Raises ObjectStoreError if the key could leave the store or name a folder."""
    if not key or any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise ObjectStoreError(
            "not an object key",
            expected="relative, parts separated by single '/', none of them '.' or '..'",
            got=repr(key),
        )
    return key
