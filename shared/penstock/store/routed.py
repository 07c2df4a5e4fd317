"""A store that also takes whole URLs as keys: objects in another folder or bucket.

A job creates objects below its own store only, but it may restore a savepoint that lies elsewhere, and
write one there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import quote, unquote, urlsplit

from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.ports import Store


def is_url(key: str) -> bool:
    """Whether ``key`` is a whole URL."""
    return "://" in key


def split_url(url: str) -> tuple[str, str]:
    """(URL of the store, key in it). The store of a file is the root folder, of any other URL the bucket.

    Raises SpecError if the URL names no object.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "file:///", unquote(parts.path).lstrip("/")
    if not parts.scheme or not parts.path.strip("/"):
        raise SpecError("not the URL of an object", expected="scheme://bucket/key", got=repr(url))
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


def _url_of(store_url: str, key: str) -> str:
    """The inverse of ``split_url``."""
    return f"{store_url}{quote(key)}" if store_url == "file:///" else f"{store_url}/{key}"


@runtime_checkable
class CopyingStore(Protocol):
    """A store that copies an object without its bytes passing through this process."""

    async def copy(self, key: str, target: str) -> None:
        """Copies the object ``key`` to ``target``. Raises KeyError if ``key`` is absent."""


@runtime_checkable
class FolderStore(Protocol):
    """A store whose keys lie in folders, which remain when they are empty."""

    async def remove_folder(self, folder: str) -> None:
        """Removes ``folder`` if it is empty. Does nothing if it is absent or not empty."""


async def copy_object(store: Store, key: str, target: str) -> None:
    """Copies an object to another key of the same store. Raises KeyError if ``key`` is absent."""
    if isinstance(store, CopyingStore):
        await store.copy(key, target)
    else:
        await store.put(target, await store.get(key))


class RoutedStore:
    """Uses ``base`` for plain keys, and for a URL the store that ``open_other`` opens.

    ``url`` is that of ``base``; ``open_other`` takes the URL of a store as ``split_url`` gives it. See
    ``penstock.ports.Store`` for the methods; they raise KeyError with the key as it was given.
    """

    def __init__(self, base: Store, url: str, open_other: Callable[[str], Store]) -> None:
        self.base = base
        self.url = url
        self._open_other = open_other
        self._others: dict[str, Store] = {}

    def of(self, key: str) -> tuple[Store, str]:
        """The store that holds ``key``, and the object's key in that store."""
        if not is_url(key):
            return self.base, key
        url, inner = split_url(key)
        if url not in self._others:
            self._others[url] = self._open_other(url)
        return self._others[url], inner

    async def get(self, key: str) -> bytes:
        """See ``Store.get``."""
        store, inner = self.of(key)
        try:
            return await store.get(inner)
        except KeyError:
            raise KeyError(key) from None

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ``Store.get_range``."""
        store, inner = self.of(key)
        try:
            return await store.get_range(inner, start, length)
        except KeyError:
            raise KeyError(key) from None

    async def put(self, key: str, data: bytes) -> None:
        """See ``Store.put``."""
        store, inner = self.of(key)
        await store.put(inner, data)

    async def create(self, key: str, data: bytes) -> bool:
        """See ``Store.create``. Takes plain keys only."""
        return await self.base.create(key, data)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """See ``Store.list``. If ``prefix`` is a URL, the keys that are returned are URLs."""
        store, inner = self.of(prefix)
        found = await store.list(inner)
        if not is_url(prefix):
            return found
        url, _ = split_url(prefix)
        return [(_url_of(url, key), size) for key, size in found]

    async def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``."""
        await self.base.delete([key for key in keys if not is_url(key)])
        for key in keys:
            if is_url(key):
                store, inner = self.of(key)
                await store.delete([inner])

    async def remove_folder(self, folder: str) -> None:
        """Removes an empty folder if the store that holds it has folders; see ``FolderStore``."""
        store, inner = self.of(folder)
        if isinstance(store, FolderStore):
            await store.remove_folder(inner)

    async def copy(self, key: str, target: str) -> None:
        """Copies an object to another key or URL. Raises KeyError if ``key`` is absent."""
        store, inner = self.of(key)
        other, target_key = self.of(target)
        if store is other:
            await copy_object(store, inner, target_key)
        else:
            await other.put(target_key, await store.get(inner))


if TYPE_CHECKING:
    _port: type[Store] = RoutedStore
