"""Keyed state of one operator subtask, behind one interface.

A backend makes tables (``hashmap``: dictionaries; ``leveldb``: a bounded write-back cache over LevelDB)
and state objects over them. It keeps the timers, takes snapshots, and restores them. The rows of a
snapshot are the same for every backend (``docs/state-format.md``).

A state is registered when the user's ``open`` declares it; restored rows wait until then. Rows of states
that are not declared are copied into the next snapshot unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import tuples
from penstock.errors import InternalError, SpecError, UnsupportedError
from penstock.state import blocks, states
from penstock.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from penstock.state.epochs import Epochs
from penstock.state.key_groups import GivenAway, KeyGroups
from penstock.state.key_rows import EntryRows, Registered, read_timers, read_values, state_rows, timer_rows
from penstock.state.keyed_state import rows_of_keys
from penstock.state.timers import TimerQueue
from penstock.state.unclaimed import Unclaimed, replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock, PendingBlock, RestoredState
    from penstock.state.descriptors import StateDescriptor
    from penstock.state.keyed_state import StateRows
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

EVENT_TIMERS, PROCESSING_TIMERS = "timer/event", "timer/processing"
#: The number of entries that are examined together when key groups that were given away are removed.
_DROP_ENTRIES = 512


class KeyedStateBackend(ABC):
    """Base class of state backends. It implements ``KeyedState`` except for the tables.

    ``scope.key``: the current key. ``journal``: records the changes of one record if they may have to be
    undone; ``commit`` or ``rollback`` ends a record. ``undo``: make a journal. ``now_ms``: processing
    time.
    """

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
        self._now_ms = now_ms
        self._registered: dict[str, Registered] = {}
        self._unclaimed = Unclaimed(space, self.epochs)
        #: The key groups that have been given to another subtask.
        self.given = GivenAway(space.max_parallelism, self._sweep, where=f"operator '{uid}'")
        self._use_timers(TimerQueue(self.epochs), TimerQueue(self.epochs))

    def _use_timers(self, event: TimerQueue, processing: TimerQueue) -> None:
        self.event_timers, self.processing_timers = event, processing
        for queue in (event, processing):
            queue.before_due = self.given.finish

    # -- registering ---------------------------------------------------------------------

    def state(
        self, desc: StateDescriptor, *, scope: states.Scope | None = None, namespaced: bool = False
    ) -> Any:
        """The state object of a descriptor. Each call returns another object over the same table.
        ``namespaced``: entries are (key, namespace). Raises SpecError if the name was declared with
        another type before."""
        table: states.Table = self.registered(desc, namespaced=namespaced).table
        if self.journal is not None:
            table = states.JournaledTable(table, self.journal, desc)
        if desc.ttl is not None:
            table = states.TtlTable(table, desc.ttl, self._now_ms)
        scope = scope or self.scope
        match desc:
            case ReducingStateDescriptor():
                return states.ReducingState(table, scope, desc.reduce)
            case AggregatingStateDescriptor():
                return states.AggregatingState(table, scope, desc.aggregate)
        match desc.kind:
            case "value" if states.deep_copy(desc) is not None:
                return states.ObjectState(table, scope)
            case "value":
                return states.ValueState(table, scope)
            case "list":
                return states.ListState(table, scope)
            case "map":
                return states.MapState(table, scope)
        raise InternalError(f"unknown kind of state '{desc.kind}'")

    def registered(self, desc: StateDescriptor, *, namespaced: bool = False) -> Registered:
        """The table of a descriptor. The first call makes it and loads its rows from the snapshot.

        Raises UnsupportedError if the stream has no key, SpecError if the name was declared with another
        type before.
        """
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
            for batches, schema in self._unclaimed.take(desc.state_names):
                self._load(known, batches, schema)
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
        """An empty table that implements ``states.Table``."""

    @abstractmethod
    def _rows(self, state: Registered) -> Iterator[tuple[Any, Any]]:
        """All (entry, live value) at this moment, in any order; an entry is a key or (key, namespace). The
        table may change during the iteration; a key that changes may come with its old or its new value."""

    @abstractmethod
    def _put_all(self, state: Registered, rows: Iterable[tuple[Any, Any]]) -> None:
        """Loads restored rows."""

    def begin_batch(self, keys: Sequence[Any], groups: Sequence[int] | None = None) -> None:
        """Announces the keys of the next batch, with their key groups if known. Raises InternalError if a key
        was given away."""
        if self.given.any:
            self.given.refuse(self.space.columns(keys), len(keys))

    def end_batch(self) -> None:  # noqa: B027
        """Called after each batch: a backend may write back and evict values here."""

    def close(self) -> None:  # noqa: B027
        """Releases files."""

    # -- snapshots -------------------------------------------------------------------------

    def cut(self) -> dict[str, KeyedBlock | PendingBlock]:
        """All states and timers at this moment. Nothing is copied yet."""
        self.given.finish()
        if not self.space.types:  # a stream without a key has no keyed state
            return {}
        out: dict[str, KeyedBlock | PendingBlock] = {x.name: x.cut() for x in self._kept()}
        return {**out, **self._unclaimed.cut()}

    def _kept(self) -> list[EntryRows]:
        """All states and timers."""
        out = [
            state_rows(state, self.space, partial(self._rows, state), self._now_ms)
            for state in self._registered.values()
        ]
        for name, queue in ((EVENT_TIMERS, self.event_timers), (PROCESSING_TIMERS, self.processing_timers)):
            out.append(timer_rows(name, queue, self.space, namespaced=self.timer_namespaces))
        return out

    #: Whether timer entries are (key, namespace). Window operators set it.
    timer_namespaces = False

    def restore(self, restored: RestoredState | None) -> None:
        """Loads timers at once, and each state when it is registered."""
        if restored is None:
            return
        for name in restored.keyed:
            known = next((x for x in self._registered.values() if name in x.desc.state_names), None)
            for batches, schema in restored.forms(name):
                if name in (EVENT_TIMERS, PROCESSING_TIMERS):
                    queue = self.event_timers if name == EVENT_TIMERS else self.processing_timers
                    for batch in batches:
                        for time, entry in read_timers(self.space, batch, schema, self._where(name)):
                            queue.register(time, entry)
                        self.end_batch()
                elif known is not None and not replaced(known.desc.state_names, name, schema):
                    self._load(known, batches, schema)
                else:
                    self._unclaimed.add(name, batches, schema)

    def _load(self, state: Registered, batches: Sequence[pa.RecordBatch], schema: dict[str, Any]) -> None:
        where = self._where(state.desc.state_name)
        for rows in read_values(state, self.space, batches, schema, self._now_ms(), where):
            self._put_all(state, rows)

    def _where(self, name: str) -> str:
        return f"state '{name}' of operator '{self.uid}'"

    # -- key groups, from outside ------------------------------------------------------------

    @property
    def state_names(self) -> list[str]:
        """The names of registered states, of timers, and of restored states that are not registered."""
        return [*(x.name for x in self._kept()), *self._unclaimed.names]

    @property
    def key_types(self) -> Sequence[LogicalType]:
        """The types of the key's columns."""
        return self.space.types

    def live_bytes(self) -> int:
        """See ``KeyedState``. 0: ordinary Python objects are not counted."""
        return 0

    @property
    def on_disk(self) -> int:
        """See ``KeyedState``."""
        return 0

    def evict(self) -> None:
        """See ``KeyedState``."""
        self.end_batch()

    def expire(self, now_ms: int) -> None:  # noqa: B027
        """See ``KeyedState``. An expired value is removed when it is next read."""

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """See ``KeyedState``."""
        self.given.refuse_groups(groups)
        return self._exported(groups)

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """See ``KeyedState``. Scans all timers, all keys of states with namespaces, and restored rows that
        are not registered."""
        self.given.refuse(keys, n)
        wanted = tuples(keys)
        for state in self._registered.values():
            if not state.namespaced:
                rows = state_rows(state, self.space, partial(self._rows, state), self._now_ms)
                yield from rows.rows((key, rows.changes.value(key)) for key in wanted)
        plain = {name for name, state in self._registered.items() if not state.namespaced}
        others = self._exported(KeyGroups.all(self.space.max_parallelism), but=plain)
        yield from rows_of_keys(others, self.key_types, keys, n)

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """See ``KeyedState``."""
        self.given.take_back(groups)
        self.restore(rows)
        self.end_batch()

    def mask(self, groups: KeyGroups) -> None:
        """See ``KeyedState``."""
        self.given.mask(groups)

    def drop(self, more: Callable[[], bool]) -> bool:
        """See ``KeyedState``."""
        return self.given.drop(more)

    def _exported(self, groups: KeyGroups, but: Iterable[str] = ()) -> Iterator[StateRows]:
        for rows in self._kept():
            if rows.name not in but:
                yield from rows.exported(groups)
        yield from self._unclaimed.exported(groups)

    def _sweep(self, groups: KeyGroups) -> Iterator[None]:
        """Removes the entries of ``groups``, a part in each step."""
        for rows in self._kept():
            for part in rows.of_groups(groups, _DROP_ENTRIES):
                for entry, value in part:
                    if value is not None:
                        rows.remove(entry)
                self.end_batch()
                yield
        self._unclaimed.drop(groups)
