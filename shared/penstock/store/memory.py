"""Object storage within one process, for tests, the simulation and ``memory://``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.store.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Store


class MemoryStore:
    _named: ClassVar[dict[str, MemoryStore]] = {}

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    @classmethod
    def named(cls, url: str) -> MemoryStore:
        """The same store for the same URL, within this process."""
        return cls._named.setdefault(url, cls())

    async def get(self, key: str) -> bytes:
        return self.objects[key]

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.objects[key][start : start + length]

    async def put(self, key: str, data: bytes) -> None:
        self.objects[check_key(key)] = bytes(data)

    async def create(self, key: str, data: bytes) -> bool:
        if check_key(key) in self.objects:
            return False
        self.objects[key] = bytes(data)
        return True

    async def list(self, prefix: str) -> Sequence[tuple[str, int]]:
        return sorted((k, len(v)) for k, v in self.objects.items() if k.startswith(prefix))

    async def copy(self, key: str, target: str) -> None:
        self.objects[check_key(target)] = self.objects[key]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


if TYPE_CHECKING:
    _port: type[Store] = MemoryStore
