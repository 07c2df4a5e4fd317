"""The in-memory backend: one dictionary a state. Values are the user's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.runtime.state.backend import KeyedStateBackend, Registered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.runtime.state.descriptors import StateDescriptor


class DictTable(dict):
    """``table[key]`` is a plain dictionary access, None when absent."""

    __slots__ = ()

    def __missing__(self, key: Any) -> None:
        return None

    def remove(self, key: Any) -> None:
        self.pop(key, None)

    def touch(self, key: Any) -> None:
        """Nothing to remember: the dictionary is the state."""


class HashMapStateBackend(KeyedStateBackend):
    def _make_table(self, desc: StateDescriptor, namespaced: bool) -> DictTable:
        return DictTable()

    def _rows(self, state: Registered) -> Iterable[tuple[Any, Any]]:
        return state.table.items()

    def _put_all(self, state: Registered, rows: Iterable[tuple[Any, Any]]) -> None:
        state.table.update(rows)
