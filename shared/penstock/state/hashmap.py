"""The state backend in memory: one dictionary for each state. Values are the user's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.backend import KeyedStateBackend
from penstock.state.key_changes import KeyChanges
from penstock.state.key_rows import Registered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.descriptors import StateDescriptor
    from penstock.state.epochs import Epochs


class DictTable(dict[Any, Any]):
    """``table[key]`` is a plain dictionary access; None if the key is absent. A caller that sets a key
    announces it to ``changes`` first, as ``states.State`` does."""

    __slots__ = ("changes",)

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self.changes = KeyChanges(epochs, self.get)

    def __missing__(self, key: Any) -> None:
        return None

    def remove(self, key: Any) -> None:
        """Removes the key, and announces that."""
        self.changes.note(key)
        self.pop(key, None)
        self.changes.removed(key)

    def touch(self, key: Any) -> None:
        """Announces that the value of the key is about to change in place."""
        self.changes.note(key)


class HashMapStateBackend(KeyedStateBackend):
    """The state backend ``hashmap``: all state is in dictionaries in memory."""

    def _make_table(self, desc: StateDescriptor, namespaced: bool) -> DictTable:
        return DictTable(self.epochs)

    def _rows(self, state: Registered) -> Iterator[tuple[Any, Any]]:
        keys = list(state.table)
        return ((key, state.table.get(key)) for key in keys)

    def _put_all(self, state: Registered, rows: Iterable[tuple[Any, Any]]) -> None:
        rows = dict(rows)
        state.table.changes.restored(rows)
        state.table.update(rows)
