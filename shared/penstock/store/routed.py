"""A store whose keys may also be whole URLs: what lies in another folder or bucket.

Only reading: a job writes below its own store, but may begin from a savepoint elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import quote, unquote, urlsplit

from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.ports import Store


def is_url(key: str) -> bool:
    return "://" in key


def split_url(url: str) -> tuple[str, str]:
    """(URL of the store, key in it): of a file the root folder, of the others the bucket."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "file:///", unquote(parts.path).lstrip("/")
    if not parts.scheme or not parts.path.strip("/"):
        raise SpecError("not the URL of an object", expected="scheme://bucket/key", got=repr(url))
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


def _url_of(store_url: str, key: str) -> str:
    """What ``split_url`` takes apart."""
    return f"{store_url}{quote(key)}" if store_url == "file:///" else f"{store_url}/{key}"


@runtime_checkable
class CopyingStore(Protocol):
    """A store that can copy without the bytes going through this process."""

    async def copy(self, key: str, target: str) -> None:
        """KeyError when ``key`` is not there."""


@runtime_checkable
class FolderStore(Protocol):
    """A store whose keys lie in folders, which stay when they are empty."""

    async def remove_folder(self, folder: str) -> None:
        """If nothing is in it; else, and when there is none, nothing is done."""


async def copy_object(store: Store, key: str, target: str) -> None:
    """An object under another key of the same store. KeyError when it is not there."""
    if isinstance(store, CopyingStore):
        await store.copy(key, target)
    else:
        await store.put(target, await store.get(key))


class RoutedStore:
    """``base``: for plain keys; ``open_other``: a store by its URL."""

    def __init__(self, base: Store, url: str, open_other: Callable[[str], Store]) -> None:
        self.base = base
        self.url = url
        self._open_other = open_other
        self._others: dict[str, Store] = {}

    def of(self, key: str) -> tuple[Store, str]:
        """The store that holds ``key``, and its key there."""
        if not is_url(key):
            return self.base, key
        url, inner = split_url(key)
        if url not in self._others:
            self._others[url] = self._open_other(url)
        return self._others[url], inner

    async def get(self, key: str) -> bytes:
        store, inner = self.of(key)
        try:
            return await store.get(inner)
        except KeyError:
            raise KeyError(key) from None

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        store, inner = self.of(key)
        try:
            return await store.get_range(inner, start, length)
        except KeyError:
            raise KeyError(key) from None

    async def put(self, key: str, data: bytes) -> None:
        store, inner = self.of(key)
        await store.put(inner, data)

    async def create(self, key: str, data: bytes) -> bool:
        return await self.base.create(key, data)

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        store, inner = self.of(prefix)
        found = await store.list(inner)
        if not is_url(prefix):
            return found
        url, _ = split_url(prefix)
        return [(_url_of(url, key), size) for key, size in found]

    async def delete(self, keys: Sequence[str]) -> None:
        await self.base.delete([key for key in keys if not is_url(key)])
        for key in keys:
            if is_url(key):
                store, inner = self.of(key)
                await store.delete([inner])

    async def remove_folder(self, folder: str) -> None:
        store, inner = self.of(folder)
        if isinstance(store, FolderStore):
            await store.remove_folder(inner)

    async def copy(self, key: str, target: str) -> None:
        """The object, under another key (or URL); KeyError when it is not there."""
        store, inner = self.of(key)
        other, target_key = self.of(target)
        if store is other:
            await copy_object(store, inner, target_key)
        else:
            await other.put(target_key, await store.get(inner))


if TYPE_CHECKING:
    _port: type[Store] = RoutedStore
