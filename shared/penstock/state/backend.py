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
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError, SpecError, UnsupportedError
from penstock.state import blocks, states
from penstock.state.epochs import Epochs
from penstock.state.evolution import converter
from penstock.state.timers import TimerQueue
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock, PendingBlock, RestoredState
    from penstock.state.descriptors import StateDescriptor
    from penstock.state.key_changes import KeyCut

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
        self,
        space: blocks.KeyLayout,
        *,
        now_ms: Callable[[], int],
        uid: str,
        undo: bool = False,
        epochs: Epochs | None = None,
    ) -> None:
        self.space = space
        self.uid = uid
        self.scope = states.Scope()
        self.journal = states.Journal() if undo else None
        self.epochs = epochs or Epochs()
        self.event_timers = TimerQueue(self.epochs)
        self.processing_timers = TimerQueue(self.epochs)
        self._now_ms = now_ms
        self._registered: dict[str, Registered] = {}
        self._restored: dict[str, tuple[Sequence[pa.RecordBatch], dict[str, Any]]] = {}

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
            case "value" if states.deep_copy(desc) is not None:
                return states.ObjectState(table, scope)
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
            name = next((n for n in desc.state_names if n in self._restored), None)
            if name is not None:
                self._load(known, *self._restored.pop(name))
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
    def _rows(self, state: Registered) -> Iterator[tuple[Any, Any]]:
        """All (key or (key, namespace), live value) of this moment, in any order; the table
        may change while they are taken, and a key that does may come in any state."""

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

    def snapshot(self) -> dict[str, KeyedBlock | PendingBlock]:
        """All state and timers of this moment; nothing is copied yet."""
        delta = self.epochs.since > 0
        out: dict[str, KeyedBlock | PendingBlock] = {}
        for name, state in self._registered.items():
            out[name] = self._cut(state)
        for name, queue in (
            (EVENT_TIMERS, self.event_timers),
            (PROCESSING_TIMERS, self.processing_timers),
        ):
            out[name] = self._timer_cut(queue)
        for name, (batches, schema) in self._restored.items():
            if batches:
                out[name] = blocks.regroup(self.space, batches, schema, delta=delta)
        return out

    def _cut(self, state: Registered) -> KeyCut:
        desc, table = state.desc, state.table
        form = self._form(state)
        make_rows = partial(self._map_rows if desc.kind == "map" else self._value_rows, state, form)
        copy = states.deep_copy(desc) or states.shallow_copy(desc)
        if copy is not None and state.timed:
            inner = copy
            copy = lambda pair: (inner(pair[0]), pair[1])  # noqa: E731
        return table.changes.cut(
            rows=partial(self._rows, state), copy=copy, make_rows=make_rows, assemble=form.block
        )

    def _form(self, state: Registered) -> blocks.RowForm:
        desc: Any = state.desc
        schema: dict[str, Any] = {"kind": desc.kind}
        if desc.kind == "map":
            fields = [("map_key", desc.key_type), ("value", desc.type)]
        else:
            fields = [("value", desc.stored_type)]
        if state.timed:
            fields.append(("expires_ms", _BIGINT))
            schema["ttl_ms"] = desc.ttl.ttl_ms
        return blocks.RowForm(self.space, state.namespaced, tuple(fields), schema)

    def _value_rows(
        self, state: Registered, form: blocks.RowForm, keys: Sequence[Any], values: Sequence[Any]
    ) -> pa.RecordBatch:
        """Rows of (key, live value or None). Expired ones count as removed."""
        removed = [value is None for value in values]
        columns: list[Any] = [values]
        if state.timed:
            columns, removed = self._without_expired(values)
        return form.rows(*_split(keys, state.namespaced), columns, removed)

    def _without_expired(self, values: Sequence[Any]) -> tuple[list[list[Any]], list[bool]]:
        """([values, expiries], removed) of (value, expires ms) pairs."""
        now = self._now_ms()
        removed = [pair is None or pair[1] <= now for pair in values]
        pairs = [(None, 0) if gone else pair for pair, gone in zip(values, removed, strict=True)]
        return [[value for value, _ in pairs], [expires for _, expires in pairs]], removed

    def _map_rows(
        self, state: Registered, form: blocks.RowForm, keys: Sequence[Any], values: Sequence[Any]
    ) -> pa.RecordBatch:
        """A row an entry; a map that is gone is one row, removed."""
        expires: list[Any] = [0] * len(keys)
        if state.timed:
            (values, expires), _ = self._without_expired(values)
        flat: list[tuple[Any, ...]] = []
        for key, entries, expiry in zip(keys, values, expires, strict=True):
            if entries:
                flat += [(key, k, v, expiry, False) for k, v in entries.items()]
            else:
                flat.append((key, None, None, 0, True))
        columns = list(map(list, zip(*flat, strict=True))) if flat else [[], [], [], [], []]
        fields = columns[1:4] if state.timed else columns[1:3]
        return form.rows(*_split(columns[0], state.namespaced), fields, columns[4])

    def _timer_cut(self, queue: TimerQueue) -> KeyCut:
        form = blocks.RowForm(
            self.space, self.timer_namespaces, (("time", _BIGINT),), {"kind": "timer"}, ("time",)
        )

        def make_rows(pairs: Sequence[Any], registered: Sequence[Any]) -> pa.RecordBatch:
            entries = [entry for _, entry in pairs]
            removed = [known is None for known in registered]
            columns = [[time for time, _ in pairs]]
            return form.rows(*_split(entries, self.timer_namespaces), columns, removed)

        return queue.changes.cut(rows=queue.pairs, copy=None, make_rows=make_rows, assemble=form.block)

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

    def _load(self, state: Registered, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]) -> None:
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
        self, state: Registered, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]
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
        where = self._where(state.desc.state_name)
        convert = converter(stored, declared, where, state.desc.former_fields)
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


def _split(keys: Sequence[Any], namespaced: bool) -> tuple[Sequence[Any], Sequence[Any]]:
    """(keys, namespaces) of keys that may carry one."""
    if not namespaced:
        return keys, ()
    return [key for key, _ in keys], [namespace for _, namespace in keys]
