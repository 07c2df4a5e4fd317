"""Broadcast state: maps with the same content on every subtask. Each subtask restores them completely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SnapshotError
from penstock.state.codec import codec
from penstock.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.snapshots.contract import RestoredState


_PREFIX = "broadcast/"


class _Saved(msgspec.Struct):
    """One union item. ``entries``: the whole map, encoded by its codec."""

    subtask_index: int
    entries: bytes
    version: int = 1


class BroadcastState:
    """A map, which may be changed while a broadcast element is processed."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self._entries = entries

    def get(self, key: Any) -> Any:
        """The value of ``key``, or None."""
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        self._entries[key] = value

    def put_all(self, entries: dict[Any, Any]) -> None:
        self._entries.update(entries)

    def remove(self, key: Any) -> None:
        self._entries.pop(key, None)

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries.items())

    def keys(self) -> list[Any]:
        return list(self._entries)

    def values(self) -> list[Any]:
        return list(self._entries.values())

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    __getitem__, __setitem__, __delitem__, __contains__ = get, put, remove, contains

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


class BroadcastStates:
    """All broadcast states of one operator subtask."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._maps: dict[str, tuple[MapStateDescriptor, dict[Any, Any]]] = {}
        self._restored: dict[str, bytes] = {}

    def state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        """The state of a descriptor. The first call loads its restored entries."""
        name = f"{_PREFIX}{descriptor.name}"
        if name not in self._maps:
            entries = {}
            former = (f"{_PREFIX}{former}" for former in descriptor.former_names)
            found = next((n for n in (name, *former) if n in self._restored), None)
            if found is not None:
                entries = codec(descriptor.stored_type).decode(self._restored.pop(found))
            self._maps[name] = (descriptor, entries)
        return BroadcastState(self._maps[name][1])

    def snapshot(self, subtask_index: int) -> dict[str, list[bytes]]:
        """Name → union items for a snapshot. States that were restored and not asked for are copied
        unchanged."""
        out = {
            name: codec(descriptor.stored_type).encode(entries)
            for name, (descriptor, entries) in self._maps.items()
        }
        out.update(self._restored)
        return {n: [msgspec.msgpack.encode(_Saved(subtask_index, data))] for n, data in out.items()}

    def restore(self, restored: RestoredState) -> None:
        """Takes the entries that the subtask with the lowest index wrote, because all subtasks wrote the
        same.

        Raises SnapshotError if an item cannot be decoded.
        """
        for name, items in restored.unions.items():
            if not name.startswith(_PREFIX):
                continue  # a union list
            try:
                saved = [msgspec.msgpack.decode(item, type=_Saved) for item in items]
            except msgspec.MsgspecError as err:
                raise SnapshotError(
                    "broadcast state cannot be read",
                    got=str(err),
                    where=f"state '{name}' of operator '{self._uid}'",
                ) from err
            if saved:
                self._restored[name] = min(saved, key=lambda s: s.subtask_index).entries
