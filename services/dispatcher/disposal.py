"""Deletes a savepoint: the objects that its manifest names or, if the manifest cannot be read, the objects in
its folder that have the names of a savepoint's objects.

Without a manifest a folder is cleared only if it has a savepoint's name, and objects with other names stay
even then, so that a mistyped path deletes nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import SnapshotError
from penstock.messages.layout import SAVEPOINT_NAME
from penstock.plan.compiled import PLAN_NAME
from penstock.snapshots.manifest import read_manifest
from penstock.store.routed import FolderStore

if TYPE_CHECKING:
    from penstock.ports import Store

#: The names that ``manifest.self_contained`` gives to a savepoint's objects.
_OBJECT = re.compile(r"\d{5}-[^/]+")


async def dispose(store: Store, folder: str) -> str | None:
    """Deletes the savepoint in ``folder`` (a key or URL). Returns a sentence if the manifest could not be
    read and the objects were deleted nevertheless, otherwise None. Raises SnapshotError if there is no
    savepoint."""
    warning = await _delete(store, folder)
    if isinstance(store, FolderStore):
        await store.remove_folder(folder)
    return warning


async def _delete(store: Store, folder: str) -> str | None:
    try:
        manifest = await read_manifest(store, folder)
    except SnapshotError as err:
        return await _dispose_unread(store, folder, err)
    # The manifest is deleted first, so that a half deleted savepoint no longer counts as one.
    await store.delete([f"{folder}/manifest"])
    inside = {key for key in manifest.object_keys() if key.startswith(f"{folder}/")}
    await store.delete(sorted(inside | {f"{folder}/{PLAN_NAME}"}))
    return None


async def _dispose_unread(store: Store, folder: str, err: SnapshotError) -> str:
    found = [key.removeprefix(f"{folder}/") for key, _ in await store.list(f"{folder}/")]
    ours = sorted(name for name in found if name in ("manifest", PLAN_NAME) or _OBJECT.fullmatch(name))
    if not ours:
        raise SnapshotError(
            "the savepoint is not there",
            expected="a savepoint's folder, with an object 'manifest'",
            got=f"{len(found)} other objects" if found else "nothing there",
            where=folder,
            remedy="name the folder that `penstock savepoint JOB` printed; if it is deleted already, "
            "there is nothing to do",
        )
    if not folder.rpartition("/")[2].startswith(SAVEPOINT_NAME):
        raise SnapshotError(
            f"a folder is not cleared whose manifest cannot be read: {err.message}",
            expected=f"a readable manifest, or a folder called {SAVEPOINT_NAME}…",
            got=f"{err.got}, and {len(ours)} objects with names like a savepoint's",
            where=folder,
            remedy=f"if it is a savepoint, rename the folder to {SAVEPOINT_NAME}… and dispose of it again, "
            "or delete the folder yourself",
        )
    # The manifest is deleted last: while it exists, the rest is recognised as a damaged savepoint.
    await store.delete([f"{folder}/{name}" for name in ours if name != "manifest"])
    await store.delete([f"{folder}/manifest"])
    left = sorted(set(found) - set(ours))
    return (
        f"{err.message} ({err.got}), so the {len(ours)} objects in {folder} that have a savepoint's names "
        "were deleted" + (f"; others were left: {', '.join(left[:5])}" if left else "")
    )
