"""Opening object storage by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.errors import ObjectStoreError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import Store

_KNOWN = "file:///folder, s3://bucket/prefix, gs://…, az://…, or memory:///name"


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """The store at ``url``; keys are relative to its folder or prefix.

    ``options`` are obstore's (``endpoint``, ``access_key_id``, ``secret_access_key``,
    ``region``, ``allow_http`` …), as in the keys ``storage.options.*``. SpecError for a URL
    that names no store, ObjectStoreError when it cannot be opened.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        from penstock.store.memory import MemoryStore

        return MemoryStore.named(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise SpecError("not a folder's URL", expected="file:///absolute/folder", got=repr(url))
        from penstock.store.local import LocalStore

        return LocalStore(unquote(parts.path))
    if not parts.scheme:
        raise SpecError("not an object store's URL", expected=_KNOWN, got=repr(url))
    import obstore.exceptions
    from obstore.store import from_url

    from penstock.store.objects import ObstoreStore, short

    config: Any = dict(options or {})
    client: Any = {"allow_http": True} if config.pop("allow_http", "false").lower() == "true" else None
    try:
        store = from_url(url, config=config or None, client_options=client)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as err:
        raise ObjectStoreError(
            f"cannot open the object store {url}: {short(err)}",
            expected=_KNOWN,
            remedy="check high-availability.storageDir and storage.options.*",
        ) from err
    return ObstoreStore(store, url)
