"""A check of the conditional create at the start of a process, because the decision log depends on it.

Some stores that imitate S3 accept ``If-None-Match: *`` and overwrite nevertheless (seen with s3rver and
with ``rclone serve s3``). Such a store is refused.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from penstock.errors import ObjectStoreError

if TYPE_CHECKING:
    from penstock.ports import Store

PREFIX = "probe/"


async def probe_conditional_create(store: Store, name: str = "object store") -> None:
    """Raises ObjectStoreError if a second create of one key succeeds or changes the object. ``name`` names
    the store in the error. The probe's object is deleted afterwards."""
    key = f"{PREFIX}{uuid.uuid4().hex}"
    first = await store.create(key, b"first")
    second = await store.create(key, b"second")
    kept = await store.get(key)
    await store.delete([key])
    if not first or second or kept != b"first":
        raise ObjectStoreError(
            f"the {name} does not honour conditional creates: a key was written twice",
            expected="a second create of a key fails and leaves the object as it was",
            got=f"first create {first}, second create {second}, the object then reads {kept!r}",
            remedy="use a folder (file:///…), Amazon S3, MinIO, or another store with If-None-Match",
        )
