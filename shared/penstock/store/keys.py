"""What a key may be: ``/``-separated, relative, no empty, ``.`` or ``..`` part."""

from __future__ import annotations

from penstock.errors import ObjectStoreError


def check_key(key: str) -> str:
    """``key`` itself; ObjectStoreError when it could leave the store or name a folder."""
    if not key or any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise ObjectStoreError(
            "not an object key",
            expected="relative, parts separated by single '/', none of them '.' or '..'",
            got=repr(key),
        )
    return key
