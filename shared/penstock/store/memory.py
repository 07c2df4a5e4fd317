"""Object storage within one process, for tests, the simulation and ``memory://``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Store


class MemoryStore:
    """Objects in a dict; see ``penstock.ports.Store``. ``objects`` maps keys to bytes."""

    _named: ClassVar[dict[str, MemoryStore]] = {}

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    @classmethod
    def named(cls, url: str) -> MemoryStore:
        """The one store of this process for ``url``."""
        return cls._named.setdefault(url, cls())

    async def get(self, key: str) -> bytes:
        """See ``Store.get``."""
        return self.objects[key]

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ``Store.get_range``. Returns fewer than ``length`` bytes at the end of the object."""
        return self.objects[key][start : start + length]

    async def put(self, key: str, data: bytes) -> None:
        """See ``Store.put``."""
        self.objects[check_key(key)] = bytes(data)

    async def create(self, key: str, data: bytes) -> bool:
        """See ``Store.create``."""
        if check_key(key) in self.objects:
            return False
        self.objects[key] = bytes(data)
        return True

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        """See ``Store.list``."""
        return sorted((k, len(v)) for k, v in self.objects.items() if k.startswith(prefix))

    async def copy(self, key: str, target: str) -> None:
        """Copies an object to another key. Raises KeyError if ``key`` is absent."""
        self.objects[check_key(target)] = self.objects[key]

    async def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``."""
        for key in keys:
            self.objects.pop(key, None)


if TYPE_CHECKING:
    _port: type[Store] = MemoryStore
