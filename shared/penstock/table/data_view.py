"""``ListView`` and ``MapView``: lists and dictionaries in the accumulator of an aggregate function, under PyFlink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView:
    """The base of ``ListView`` and ``MapView``."""

    def clear(self) -> None:
        """Remove everything."""
        raise NotImplementedError


class ListView(DataView, Generic[T]):
    """A list in an accumulator."""

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> Iterable[T]:
        """The elements."""
        return self._list

    def add(self, value: T) -> None:
        """Append ``value``."""
        self._list.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Append all ``values``."""
        self._list.extend(values)

    def clear(self) -> None:
        self._list = []

    def __iter__(self) -> Iterator[T]:
        return iter(self._list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and self._list == other._list

    def __hash__(self) -> int:
        return hash(tuple(self._list))


class RemovableIterator(Generic[T]):
    """Goes over the keys of ``view`` as they were; ``remove`` removes the one that came last. ``items``: what it gives."""

    def __init__(self, view: MapView[Any, Any], keys: list[Any], items: list[T]) -> None:
        self._view = view
        self._keys = keys
        self._items = items
        self._next = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._next >= len(self._items):
            raise StopIteration
        self._next += 1
        return self._items[self._next - 1]

    def remove(self) -> None:
        """Remove the entry that came last from the view."""
        self._view.remove(self._keys[self._next - 1])


class MapView(DataView, Generic[K, V]):
    """A dictionary in an accumulator."""

    def __init__(self) -> None:
        self._map: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The value of ``key``; None if there is none."""
        return self._map.get(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of ``key``."""
        self._map[key] = value

    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set the values of all keys of ``dict_value``."""
        self._map.update(dict_value)

    def remove(self, key: K) -> None:
        """Remove ``key``, if it is there."""
        self._map.pop(key, None)

    def contains(self, key: K) -> bool:
        """Whether ``key`` is there."""
        return key in self._map

    def is_empty(self) -> bool:
        """Whether there is no key."""
        return not self._map

    def keys(self) -> RemovableIterator[K]:
        """The keys."""
        keys = list(self._map)
        return RemovableIterator(self, keys, keys)

    def values(self) -> RemovableIterator[V]:
        """The values."""
        return RemovableIterator(self, list(self._map), list(self._map.values()))

    def items(self) -> RemovableIterator[tuple[K, V]]:
        """Keys with their values."""
        return RemovableIterator(self, list(self._map), list(self._map.items()))

    def clear(self) -> None:
        self._map = {}

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    __setitem__ = put
    __delitem__ = remove

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and self._map == other._map

    def __hash__(self) -> int:
        return hash(tuple(self._map))
