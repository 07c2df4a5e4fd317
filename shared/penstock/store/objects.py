"""Object storage through obstore: S3 and compatible stores, Google Cloud Storage, Azure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import ObjectStoreError
from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import ObjectStore

    from penstock.ports import Store


def short(err: Exception) -> str:
    """The text of an obstore error on one line, without its dump of Rust structures."""
    return " ".join(str(err).partition("Debug source:")[0].split())


class ObstoreStore:
    """Objects in the obstore store ``store``, whose prefix is the folder in the bucket; see
    ``penstock.ports.Store``.

    ``url`` names the store in errors. Every method raises ObjectStoreError if the store fails.
    """

    def __init__(self, store: ObjectStore, url: str) -> None:
        self._store = store
        self.url = url

    def _error(self, err: Exception, key: str) -> ObjectStoreError:
        text = short(err)
        return ObjectStoreError(
            f"the object store {self.url} failed: {text[:500]}",
            where=key or self.url,
            remedy="check high-availability.storageDir and storage.options.* (endpoint, keys, region)",
        )

    async def get(self, key: str) -> bytes:
        """See ``Store.get``."""
        import obstore
        import obstore.exceptions

        try:
            result = await obstore.get_async(self._store, key)
            return bytes(await result.bytes_async())
        except FileNotFoundError:
            raise KeyError(key) from None
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, key) from err

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ``Store.get_range``."""
        import obstore
        import obstore.exceptions

        try:
            return bytes(await obstore.get_range_async(self._store, key, start=start, length=length))
        except FileNotFoundError:
            raise KeyError(key) from None
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, key) from err

    async def put(self, key: str, data: bytes) -> None:
        """See ``Store.put``."""
        import obstore
        import obstore.exceptions

        try:
            await obstore.put_async(self._store, check_key(key), data)
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, key) from err

    async def create(self, key: str, data: bytes) -> bool:
        """See ``Store.create``."""
        import obstore
        import obstore.exceptions

        try:
            await obstore.put_async(self._store, check_key(key), data, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, key) from err
        return True

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """See ``Store.list``."""
        import obstore
        import obstore.exceptions

        # obstore lists whole folders only. The rest of the prefix is compared below.
        folder = prefix.rpartition("/")[0]
        found: list[tuple[str, int]] = []
        try:
            async for chunk in obstore.list(self._store, folder or None):
                items: Any = chunk
                found += [(item["path"], item["size"]) for item in items]
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, prefix) from err
        return sorted(item for item in found if item[0].startswith(prefix))

    async def copy(self, key: str, target: str) -> None:
        """Copies an object within the store; its bytes do not pass through this process. KeyError if ``key``
        is absent."""
        import obstore
        import obstore.exceptions

        try:
            await obstore.copy_async(self._store, key, check_key(target))
        except FileNotFoundError:
            raise KeyError(key) from None
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, key) from err

    async def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``."""
        import obstore
        import obstore.exceptions

        try:
            if keys:
                await obstore.delete_async(self._store, list(keys))
        except FileNotFoundError:
            # One key is absent, and the others may not have been deleted: delete them one by one.
            for key in keys if len(keys) > 1 else ():
                await self.delete([key])
        except (obstore.exceptions.BaseError, OSError) as err:
            raise self._error(err, ", ".join(keys)) from err


if TYPE_CHECKING:
    _port: type[Store] = ObstoreStore
