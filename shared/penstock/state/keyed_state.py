"""The port of keyed state: the operations that every store offers to the operator, the task and the cluster.

Three stores implement it:

* ``KeySpace``: rows by slot number, in the tables of one operator (``slot_table.py``);
* ``KeyedStateBackend``: objects by key, in dictionaries or LevelDB, and timers (``backend.py``);
* ``WaitingRows``: a log of numbered rows, in the order in which they came or are due (``waiting_rows.py``).

An operator passes each of its stores to ``Operator.keep``. From then on ``KeyedStates`` drives them
together: it cuts them at the barrier, hands key groups to another subtask, looks up keys, and closes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.columnar.key_index import KeyIndex
from penstock.snapshots.contract import RestoredState
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.snapshots.contract import KeyedBlock, PendingBlock
    from penstock.state.key_groups import KeyGroups
    from penstock.types.logical import LogicalType

#: How many rows are exported at once.
PIECE_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class StateRows:
    """Some rows of one keyed state in the form of a snapshot (``docs/state-format.md``).

    ``name``: of the state. ``batch``: key columns first, without slot numbers and marks of removal; its
    arrays are private. ``schema``: ``KeyedBlock.schema``. ``keys``: the number of key columns.
    """

    name: str
    batch: pa.RecordBatch
    schema: Mapping[str, Any]
    keys: int

    def key_columns(self, types: Sequence[LogicalType]) -> list[Column]:
        """The key columns. ``types``: their types."""
        return [Column.from_arrow(x, self.batch.column(i)) for i, x in enumerate(types)]


class KeyedState(Protocol):
    """All state of one store, by the key by which the operator's input is partitioned.

    All calls come from the operator's thread, between two batches, and never while the operator has
    pending outputs. An iterator that a call returns is consumed or dropped before the next call.
    """

    @property
    def state_names(self) -> Sequence[str]:
        """The names of its states in a snapshot."""

    @property
    def key_types(self) -> Sequence[LogicalType]:
        """The types of the key's columns. Without columns everything is in key group 0."""

    def live_bytes(self) -> int:
        """Bytes of memory in use, which count towards the slot's limit."""

    @property
    def on_disk(self) -> int:
        """The number of keys (in a log: rows) that are on disk only."""

    def evict(self) -> None:
        """Moves state to the disk as the slot's memory limit requires. Raises ExternalError if far too much
        memory is used and the store cannot move it."""

    def expire(self, now_ms: int) -> None:
        """Removes what was not written for its time to live. ``now_ms``: processing time, milliseconds since
        1970."""

    # -- checkpoints ---------------------------------------------------------------------

    def cut(self) -> Mapping[str, KeyedBlock | PendingBlock]:
        """Name → the state at this moment: what changed since the last confirmed checkpoint, or the whole
        (``Epochs.since``). Nothing is copied yet."""

    def restore(self, restored: RestoredState | None) -> None:
        """Loads the restored rows of this subtask's key groups; called once, before the first batch. Rows of
        unknown states are ignored, or kept for the next snapshot."""

    # -- key groups that move -------------------------------------------------------------

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """All rows of these key groups, in memory and on disk, in pieces. Nothing is moved or changed. Raises
        InternalError if one of the groups is masked."""

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """These key groups belong to this store from now on, with these rows (see ``collected``). The store
        had no rows of them. The next delta contains them."""

    def mask(self, groups: KeyGroups) -> None:
        """These key groups belong to another subtask from now on. Their state no longer appears in a cut, and
        neither a watermark nor a timer fires for it. A batch or a request with one of their keys raises
        InternalError. The next delta removes their rows."""

    def drop(self, more: Callable[[], bool]) -> bool:
        """Frees rows of masked groups while ``more()`` is True, in slices of about a millisecond. Returns
        whether none are left. A cut, a watermark or a timer before that frees the rest at once."""

    # -- looking from outside ----------------------------------------------------------------

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """All rows of ``n`` distinct keys, in memory and on disk. Nothing is moved or changed. Raises
        InternalError if one of the keys is masked."""

    def close(self) -> None:
        """Closes files and gives back the claim on the slot's memory. Called once, in any state."""


class KeyedStates:
    """The stores of one operator, driven together. It implements ``KeyedState`` except for ``key_types``,
    which only a store has, and for ``restore`` and ``close``, which the operator calls in its own order."""

    def __init__(self, stores: Sequence[KeyedState]) -> None:
        self.stores = stores

    @property
    def state_names(self) -> list[str]:
        """Of all states in a snapshot."""
        return [name for store in self.stores for name in store.state_names]

    def live_bytes(self) -> int:
        """Bytes in memory that are in use."""
        return sum(store.live_bytes() for store in self.stores)

    def expire(self, now_ms: int) -> None:
        """``KeyedState.expire`` in all stores."""
        for store in self.stores:
            store.expire(now_ms)

    def cut(self) -> dict[str, KeyedBlock | PendingBlock]:
        """``KeyedState.cut`` of all stores."""
        return {name: block for store in self.stores for name, block in store.cut().items()}

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """``KeyedState.export`` of all stores."""
        for store in self.stores:
            yield from store.export(groups)

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """``KeyedState.absorb`` in all stores. A store does not receive rows of states that another store
        has."""
        for store in self.stores:
            others = {name for other in self.stores if other is not store for name in other.state_names}
            keyed = {name: batches for name, batches in rows.keyed.items() if name not in others}
            store.absorb(groups, replace(rows, keyed=keyed))

    def mask(self, groups: KeyGroups) -> None:
        """``KeyedState.mask`` in all stores."""
        for store in self.stores:
            store.mask(groups)

    def drop(self, more: Callable[[], bool]) -> bool:
        """``KeyedState.drop`` in all stores, one after the other."""
        return all(store.drop(more) for store in self.stores)

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """``KeyedState.lookup`` in all stores that have a key."""
        for store in self.stores:
            if store.key_types:
                yield from store.lookup(keys, n)


def collected(rows: Iterable[StateRows]) -> RestoredState:
    """Exported rows in the form that ``absorb`` takes."""
    out = RestoredState(checkpoint_id=0)
    for part in rows:
        found: list[pa.RecordBatch] = out.keyed.setdefault(part.name, [])  # type: ignore[assignment]
        found.append(part.batch)
        out.schemas.setdefault(part.name, []).append(dict(part.schema))
    return out


def enumerate_keys(store: KeyedState, groups: KeyGroups) -> Iterator[list[Column]]:
    """The key columns of all keys of these groups that have any state, each key once, in pieces. Keeps a copy
    of each key in memory."""
    types = list(store.key_types)
    seen = KeyIndex(types)
    for part in store.export(groups):
        columns = part.key_columns(types)
        _, new = seen.upsert(columns, part.batch.num_rows)
        if len(new):
            yield seen.keys(new)


def rows_of_keys(
    rows: Iterable[StateRows], types: Sequence[LogicalType], keys: Sequence[Column], n: int
) -> Iterator[StateRows]:
    """The rows that belong to one of ``n`` keys, for stores that can only scan all rows."""
    wanted = KeyIndex(types)
    wanted.upsert(keys, n)
    for part in rows:
        chosen = wanted.lookup(part.key_columns(types), part.batch.num_rows) >= 0
        if chosen.any():
            yield of_rows(part, chosen)


def of_rows(part: StateRows, chosen: np.ndarray) -> StateRows:
    """The rows under a mask."""
    batch = part.batch if chosen.all() else part.batch.take(pa.array(np.flatnonzero(chosen)))
    return StateRows(part.name, batch, part.schema, part.keys)
