"""Keyed state of one operator subtask, behind one interface.

A backend makes tables (``hashmap``: dictionaries; ``leveldb``: a bounded write-back cache
over LevelDB) and state objects over them, keeps the timers, and gives and takes
snapshots, which are the same rows for every backend (``docs/state-format.md``).

State is registered when the user's ``open`` asks for it; restored rows wait until then.
What nobody asks for is carried into the next snapshot unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError, SpecError, UnsupportedError
from penstock.runtime.state import blocks, states
from penstock.runtime.state.evolution import converter
from penstock.runtime.state.timers import TimerQueue
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.runtime.operator import KeyedBlock, RestoredState
    from penstock.runtime.state.descriptors import StateDescriptor

_BIGINT = t.BigIntType()
EVENT_TIMERS, PROCESSING_TIMERS = "timer/event", "timer/processing"


@dataclass(slots=True)
class Registered:
    """One state: its descriptor and the table that holds it."""

    desc: StateDescriptor
    table: Any
    namespaced: bool

    @property
    def timed(self) -> bool:
        """Live values are (value, expires ms)."""
        return self.desc.ttl is not None


class KeyedStateBackend(ABC):
    """``scope.key``: the current key. ``journal``: present when a record's writes may have
    to be undone (``begin_record`` is implicit: ``commit`` or ``rollback`` ends a record)."""

    def __init__(
        self, space: blocks.KeySpace, *, now_ms: Callable[[], int], uid: str, undo: bool = False
    ) -> None:
        self.space = space
        self.uid = uid
        self.scope = states.Scope()
        self.journal = states.Journal() if undo else None
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        self._now_ms = now_ms
        self._registered: dict[str, Registered] = {}
        self._restored: dict[str, tuple[list[pa.RecordBatch], dict[str, Any]]] = {}

    # -- registering ---------------------------------------------------------------------

    def state(
        self, desc: StateDescriptor, *, scope: states.Scope | None = None, namespaced: bool = False
    ) -> Any:
        """The state object of a descriptor. Asking again gives another object over the same
        table; SpecError when the name was declared with another type before."""
        table: states.Table = self.registered(desc, namespaced=namespaced).table
        if self.journal is not None:
            table = states.JournaledTable(table, self.journal, desc)
        if desc.ttl is not None:
            table = states.TtlTable(table, desc.ttl, self._now_ms)
        scope = scope or self.scope
        match desc.kind:
            case "value":
                return states.ValueState(table, scope)
            case "list":
                return states.ListState(table, scope)
            case "map":
                return states.MapState(table, scope)
            case "reducing":
                return states.ReducingState(table, scope, desc.reduce)  # type: ignore[attr-defined]
            case "aggregating":
                return states.AggregatingState(table, scope, desc.aggregate)  # type: ignore[attr-defined]
        raise InternalError(f"unknown kind of state '{desc.kind}'")

    def registered(self, desc: StateDescriptor, *, namespaced: bool = False) -> Registered:
        """The table of a descriptor, made (and filled from the snapshot) at first sight."""
        if not self.space.types:
            raise UnsupportedError(
                f"state '{desc.name}' on a stream that is not keyed",
                expected="keyed state only after key_by(…)",
                where=f"operator '{self.uid}'",
                remedy="put .key_by(…) before .process(…)",
            )
        known = self._registered.get(desc.state_name)
        if known is None:
            known = Registered(desc, self._make_table(desc, namespaced), namespaced)
            self._registered[desc.state_name] = known
            found = self._restored.pop(desc.state_name, None)
            if found is not None:
                self._load(known, *found)
        elif known.desc.stored_type != desc.stored_type or known.namespaced != namespaced:
            raise SpecError(
                f"state '{desc.name}' is declared twice with different types",
                expected=str(known.desc.stored_type),
                got=str(desc.stored_type),
                where=f"operator '{self.uid}'",
            )
        return known

    @abstractmethod
    def _make_table(self, desc: StateDescriptor, namespaced: bool) -> Any:
        """An empty table (``states.Table``)."""

    @abstractmethod
    def _rows(self, state: Registered) -> Iterable[tuple[Any, Any]]:
        """All (key or (key, namespace), live value), in any order."""

    @abstractmethod
    def _put_all(self, state: Registered, rows: Iterable[tuple[Any, Any]]) -> None:
        """Bulk load at restore."""

    def begin_batch(self, keys: Sequence[Any], groups: Sequence[int] | None = None) -> None:  # noqa: B027
        """These keys come next; ``groups``: their key groups, where known."""

    def end_batch(self) -> None:  # noqa: B027
        """A good moment to write back and evict."""

    def close(self) -> None:  # noqa: B027
        """Release files."""

    # -- snapshots -------------------------------------------------------------------------

    def snapshot(self) -> dict[str, KeyedBlock]:
        """All state and timers, as private arrays."""
        out = {name: self._block(state) for name, state in self._registered.items()}
        for name, queue in (
            (EVENT_TIMERS, self.event_timers),
            (PROCESSING_TIMERS, self.processing_timers),
        ):
            if len(queue):
                out[name] = self._timer_block(queue)
        for name, (batches, schema) in self._restored.items():
            if batches:
                out[name] = blocks.regroup(self.space, batches, schema)
        return out

    def _block(self, state: Registered) -> KeyedBlock:
        desc = state.desc
        keys: list[Any] = []
        values: list[Any] = []
        expires: list[int] = []
        now = self._now_ms()
        for key, live in self._rows(state):
            if state.timed:
                live, expiry = live
                if expiry <= now:
                    continue
                expires.append(expiry)
            keys.append(key)
            values.append(live)
        if desc.kind == "map":
            return self._map_block(state, keys, values, expires)
        fields = [("value", desc.stored_type, values)]
        if state.timed:
            fields.append(("expires_ms", _BIGINT, expires))
        return self._make_block(state, keys, fields)

    def _map_block(self, state: Registered, keys: list, values: list, expires: list) -> KeyedBlock:
        desc: Any = state.desc
        flat = [(key, k, v) for key, entries in zip(keys, values, strict=True) for k, v in entries.items()]
        fields = [
            ("map_key", desc.key_type, [k for _, k, _ in flat]),
            ("value", desc.type, [v for _, _, v in flat]),
        ]
        if state.timed:
            repeated = [e for e, entries in zip(expires, values, strict=True) for _ in entries]
            fields.append(("expires_ms", _BIGINT, repeated))
        return self._make_block(state, [key for key, _, _ in flat], fields)

    def _make_block(self, state: Registered, keys: list, fields: list) -> KeyedBlock:
        schema: dict[str, Any] = {"kind": state.desc.kind}
        if state.desc.ttl is not None:
            schema["ttl_ms"] = state.desc.ttl.ttl_ms
        namespaces = None
        if state.namespaced:
            namespaces = [namespace for _, namespace in keys]
            keys = [key for key, _ in keys]
        return blocks.make_block(self.space, keys, namespaces, fields, schema)

    def _timer_block(self, queue: TimerQueue) -> KeyedBlock:
        pairs = list(queue.items())
        times = [time for time, _ in pairs]
        entries = [entry for _, entry in pairs]
        namespaces = None
        if self.timer_namespaces:
            namespaces = [namespace for _, namespace in entries]
            entries = [key for key, _ in entries]
        schema = {"kind": "timer"}
        return blocks.make_block(self.space, entries, namespaces, [("time", _BIGINT, times)], schema)

    #: Timer entries are (key, namespace); set by window operators.
    timer_namespaces = False

    # -- restoring ---------------------------------------------------------------------------

    def restore(self, restored: RestoredState) -> None:
        """Timers at once; state when it is registered."""
        for name, batches in restored.keyed.items():
            schema = restored.schemas.get(name, {})
            if name in (EVENT_TIMERS, PROCESSING_TIMERS):
                queue = self.event_timers if name == EVENT_TIMERS else self.processing_timers
                for batch in batches:
                    for time, entry in self._read_timers(batch, schema, name):
                        queue.register(time, entry)
            else:
                self._restored[name] = (batches, schema)

    def _read_timers(
        self, batch: pa.RecordBatch, schema: dict[str, Any], name: str
    ) -> Iterator[tuple[int, Any]]:
        keys = self._read_keys(batch, schema, name)
        _, times = blocks.read_field(batch, schema, "time")
        return zip(times, keys, strict=True)

    def _read_keys(self, batch: pa.RecordBatch, schema: dict[str, Any], name: str) -> list[Any]:
        keys = blocks.read_keys(self.space, batch, schema, self._where(name))
        namespaces = blocks.read_namespaces(batch)
        return keys if namespaces is None else list(zip(keys, namespaces, strict=True))

    def _load(self, state: Registered, batches: list[pa.RecordBatch], schema: dict[str, Any]) -> None:
        """Rows may be many: batch by batch; a map's entries stand next to one another."""
        if state.desc.kind == "map":
            self._put_all(state, self._read_maps(state, batches, schema).items())
            return
        for batch in batches:
            keys = self._read_keys(batch, schema, state.desc.state_name)
            values = self._read_values(state, batch, schema, "value", state.desc.stored_type)
            values = self._with_expiry(state, batch, schema, values)
            self._put_all(state, zip(keys, values, strict=True))

    def _read_maps(
        self, state: Registered, batches: list[pa.RecordBatch], schema: dict[str, Any]
    ) -> dict[Any, Any]:
        desc: Any = state.desc
        maps: dict[Any, Any] = {}
        for batch in batches:
            keys = self._read_keys(batch, schema, desc.state_name)
            map_keys = self._read_values(state, batch, schema, "map_key", desc.key_type)
            values = self._read_values(state, batch, schema, "value", desc.type)
            values = self._with_expiry(state, batch, schema, values)
            for key, map_key, value in zip(keys, map_keys, values, strict=True):
                if state.timed:
                    value, expiry = value
                    maps.setdefault(key, ({}, expiry))[0][map_key] = value
                else:
                    maps.setdefault(key, {})[map_key] = value
        return maps

    def _read_values(
        self,
        state: Registered,
        batch: pa.RecordBatch,
        schema: dict[str, Any],
        field: str,
        declared: t.LogicalType,
    ) -> list[Any]:
        stored, values = blocks.read_field(batch, schema, field)
        convert = converter(stored, declared, self._where(state.desc.state_name))
        return values if convert is None else [None if v is None else convert(v) for v in values]

    def _with_expiry(
        self, state: Registered, batch: pa.RecordBatch, schema: dict[str, Any], values: list[Any]
    ) -> list[Any]:
        ttl = state.desc.ttl
        if ttl is None:
            return values
        if "expires_ms" in schema["types"]:
            _, expires = blocks.read_field(batch, schema, "expires_ms")
        else:  # the time to live is new: it begins now
            expires = [self._now_ms() + ttl.ttl_ms] * len(values)
        return list(zip(values, expires, strict=True))

    def _where(self, name: str) -> str:
        return f"state '{name}' of operator '{self.uid}'"


def make_backend(
    kind: str,
    space: blocks.KeySpace,
    *,
    now_ms: Callable[[], int],
    uid: str,
    local_dir: Any = None,
    undo: bool = False,
    cache_entries: int | None = None,
) -> KeyedStateBackend:
    """``kind``: ``hashmap`` or ``leveldb`` (files in ``local_dir``)."""
    if kind == "hashmap":
        from penstock.runtime.state.hashmap import HashMapStateBackend

        return HashMapStateBackend(space, now_ms=now_ms, uid=uid, undo=undo)
    if kind == "leveldb":
        from penstock.runtime.state.leveldb import LevelDBStateBackend

        limit = {} if cache_entries is None else {"cache_entries": cache_entries}
        return LevelDBStateBackend(space, local_dir, now_ms=now_ms, uid=uid, undo=undo, **limit)
    raise SpecError("unknown state backend", expected="hashmap | leveldb", got=repr(kind))
