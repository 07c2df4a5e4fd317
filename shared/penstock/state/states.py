"""State objects for user functions: value, list, map, reducing, aggregating.

They use ``scope.key`` and a table, and know no backend. A table returns None for an absent key;
``table[key] = value`` replaces, ``remove`` removes, and ``touch`` announces that the live value is about
to change in place. A key is announced to ``changes`` before it is set. Undo and time to live are layers
over a table.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Protocol

from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.state.descriptors import StateDescriptor, StateTtlConfig
    from penstock.state.key_changes import KeyChanges


class Table(Protocol):
    """The live values of one state, by key, or by (key, namespace) if the state has namespaces."""

    @property
    def changes(self) -> KeyChanges: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def remove(self, key: Any) -> None: ...
    def touch(self, key: Any) -> None: ...


class Scope:
    """The current key or (key, namespace). The operator sets it before each call of user code."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = None


class Journal:
    """The changes of state and timers by one record: ``commit`` keeps them, ``rollback`` undoes them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._seen: set[tuple[int, Any]] = set()

    def first_touch(self, table: Table, key: Any) -> bool:
        """Whether this is the first access to the key of this table since the last commit or rollback."""
        entry = (id(table), key)
        if entry in self._seen:
            return False
        self._seen.add(entry)
        return True

    def add(self, undo: Callable[[], Any]) -> None:
        self._undo.append(undo)

    def commit(self) -> None:
        if self._undo or self._seen:
            self._undo.clear()
            self._seen.clear()

    def rollback(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self.commit()


class JournaledTable:
    """Saves the old value at the first access to a key; a mutable value is copied."""

    __slots__ = ("_copy", "_journal", "_table")

    @property
    def changes(self) -> KeyChanges:
        return self._table.changes

    def __init__(self, table: Table, journal: Journal, desc: StateDescriptor) -> None:
        self._table = table
        self._journal = journal
        self._copy = deep_copy(desc) or shallow_copy(desc)

    def _save(self, key: Any) -> Any:
        table = self._table
        value = table[key]
        if self._journal.first_touch(table, key):
            old = value
            if self._copy is not None and old is not None:
                old = self._copy(old)

            def undo() -> None:
                if old is None:
                    table.remove(key)
                else:
                    table.changes.note(key)
                    table[key] = old

            self._journal.add(undo)
        return value

    def __getitem__(self, key: Any) -> Any:
        return self._table[key] if self._copy is None else self._save(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._save(key)
        self._table.changes.note(key)
        self._table[key] = value

    def remove(self, key: Any) -> None:
        self._save(key)
        self._table.remove(key)

    def touch(self, key: Any) -> None:
        self._table.touch(key)


class TtlTable:
    """Live values are (value, expiry in ms since 1970). An expired value is removed when it is accessed."""

    __slots__ = ("_now_ms", "_on_read", "_table", "_ttl_ms")

    @property
    def changes(self) -> KeyChanges:
        return self._table.changes

    def __init__(self, table: Table, config: StateTtlConfig, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._ttl_ms = config.ttl_ms
        self._on_read = config.update_type.value == "OnReadAndWrite"
        self._now_ms = now_ms

    def __getitem__(self, key: Any) -> Any:
        pair = self._table[key]
        if pair is None:
            return None
        now = self._now_ms()
        if pair[1] <= now:
            self._table.remove(key)
            return None
        if self._on_read:
            self.changes.note(key)
            self._table[key] = (pair[0], now + self._ttl_ms)
        return pair[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.changes.note(key)
        self._table[key] = (value, self._now_ms() + self._ttl_ms)

    def remove(self, key: Any) -> None:
        self._table.remove(key)

    def touch(self, key: Any) -> None:
        pair = self._table[key]
        if pair is not None:
            self.changes.note(key)
            self._table[key] = (pair[0], self._now_ms() + self._ttl_ms)


_MUTABLE = (t.RawType, t.ArrayType, t.MapType, t.MultisetType)


def deep_copy(desc: StateDescriptor) -> Callable[[Any], Any] | None:
    """A function that copies a value of the state if user code may change it in place; otherwise None."""
    return copy.deepcopy if isinstance(desc.type, (*_MUTABLE, t.RowType)) else None


def shallow_copy(desc: StateDescriptor) -> Callable[[Any], Any] | None:
    """A function that copies a value if only our own list or map around it changes in place; otherwise None."""
    return copy.copy if isinstance(desc.stored_type, _MUTABLE) else None


# -- what the user holds ---------------------------------------------------------------------------


class State:
    """Base class of state objects. ``clear`` removes the value of the current key."""

    __slots__ = ("_scope", "_table")

    def __init__(self, table: Table, scope: Scope) -> None:
        self._table = table
        self._scope = scope

    def clear(self) -> None:
        self._table.remove(self._scope.key)


class ValueState(State):
    """One value for each key."""

    __slots__ = ()

    def value(self) -> Any:
        """The value of the current key; None if there is none."""
        return self._table[self._scope.key]

    def update(self, value: Any) -> None:
        """Sets the value of the current key; None removes it."""
        table, key = self._table, self._scope.key
        if value is None:
            table.remove(key)
            return
        changes = table.changes
        if key not in changes.changed:
            changes.first_change(key)
        table[key] = value


class ObjectState(ValueState):
    """A ``ValueState`` of a type that user code may change in place between ``value`` and ``update``."""

    __slots__ = ()

    def value(self) -> Any:
        table, key = self._table, self._scope.key
        if table.changes.cuts:
            table.changes.note(key)
        return table[key]


class MergingState(State):
    """State that can be merged, as when windows merge."""

    __slots__ = ()

    def merge(self, sources: Iterable[Any]) -> None:
        """Merges the values of the scope keys ``sources`` into that of the current key, and removes them."""
        table, key = self._table, self._scope.key
        moved: Any = None
        for source in sources:
            value = table[source]
            if value is None:
                continue
            table.remove(source)
            moved = value if moved is None else self._merged(moved, value)
        if moved is None:
            return
        table.changes.note(key)
        own = table[key]
        table[key] = moved if own is None else self._merged(own, moved)

    def _merged(self, first: Any, second: Any) -> Any:
        raise NotImplementedError


class ListState(MergingState):
    """A list for each key."""

    __slots__ = ()

    def _merged(self, first: Any, second: Any) -> Any:
        return [*first, *second]

    def get(self) -> list[Any]:
        """A copy of the list of the current key; empty if there is none."""
        items = self._table[self._scope.key]
        return [] if items is None else list(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        table, key = self._table, self._scope.key
        items = table[key]
        table.touch(key)
        if items is None:
            table[key] = [value]
        else:
            items.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        values = list(values)
        key = self._scope.key
        items = self._table[key]
        if items is not None:
            self._table.touch(key)
            items.extend(values)
        elif values:
            self._table.changes.note(key)
            self._table[key] = values

    def update(self, values: Iterable[Any]) -> None:
        """Replaces all items. Without items the list is removed."""
        values = list(values)
        if values:
            self._table.changes.note(self._scope.key)
            self._table[self._scope.key] = values
        else:
            self.clear()


class MapState(State):
    """A map for each key, loaded as a whole. ``get`` returns None for a map key that is absent."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        entries = self._table[self._scope.key]
        return None if entries is None else entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        table, scope = self._table, self._scope.key
        entries = table[scope]
        table.touch(scope)
        if entries is None:
            table[scope] = {key: value}
        else:
            entries[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        scope = self._scope.key
        entries = self._table[scope]
        if entries is None or key not in entries:
            return
        if len(entries) > 1:
            self._table.touch(scope)
            del entries[key]
        else:
            self._table.remove(scope)

    def contains(self, key: Any) -> bool:
        entries = self._table[self._scope.key]
        return entries is not None and key in entries

    def items(self) -> list[tuple[Any, Any]]:
        entries = self._table[self._scope.key]
        return [] if entries is None else list(entries.items())

    def keys(self) -> list[Any]:
        return [k for k, _ in self.items()]

    def values(self) -> list[Any]:
        return [v for _, v in self.items()]

    def is_empty(self) -> bool:
        return not self._table[self._scope.key]

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


class ReducingState(MergingState):
    """One value for each key, combined from all values that were added; ``get`` returns None if there is none."""

    __slots__ = ("_reduce",)

    def __init__(self, table: Table, scope: Scope, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(table, scope)
        self._reduce = reduce

    def _merged(self, first: Any, second: Any) -> Any:
        return self._reduce(first, second)

    def get(self) -> Any:
        return self._table[self._scope.key]

    def add(self, value: Any) -> None:
        table, key = self._table, self._scope.key
        table.changes.note(key)  # before the user's function, which may change the old value in place
        old = table[key]
        table[key] = value if old is None else self._reduce(old, value)


class AggregatingState(MergingState):
    """An accumulator for each key; ``get`` returns its result, or None if there is no accumulator."""

    __slots__ = ("_aggregate",)

    def __init__(self, table: Table, scope: Scope, aggregate: Any) -> None:
        super().__init__(table, scope)
        self._aggregate = aggregate

    def _merged(self, first: Any, second: Any) -> Any:
        return self._aggregate.merge(first, second)

    def get(self) -> Any:
        accumulator = self._table[self._scope.key]
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def add(self, value: Any) -> None:
        table, key = self._table, self._scope.key
        table.changes.note(key)
        accumulator = table[key]
        if accumulator is None:
            accumulator = self._aggregate.create_accumulator()
        table[key] = self._aggregate.add(value, accumulator)
