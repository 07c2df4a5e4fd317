"""The port of keyed state: what every store of it can do for the operator, the task and the cluster.

Three stores implement it:

* ``KeySpace``: rows by slot, in the tables of one operator (``slot_table.py``);
* ``KeyedStateBackend``: objects by key, in dictionaries or LevelDB, and timers (``backend.py``);
* ``WaitingRows``: a log, rows by number in the order in which they came or are due (``waiting_rows.py``).

An operator gives each of its stores to ``Operator.keep``. From then on they are driven together, as
``KeyedStates``: cut at the barrier, handed over to another subtask, looked into from outside, closed.
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

#: Rows that are exported at once.
PIECE_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class StateRows:
    """Some rows of one keyed state as a snapshot has them (``docs/state-format.md``).

    ``name``: of the state; ``batch``: key columns first, without slots and marks of removal; its arrays
    are private; ``schema``: ``KeyedBlock.schema``; ``keys``: how many columns the key has."""

    name: str
    batch: pa.RecordBatch
    schema: Mapping[str, Any]
    keys: int

    def key_columns(self, types: Sequence[LogicalType]) -> list[Column]:
        """The key of each row; ``types``: of its columns."""
        return [Column.from_arrow(x, self.batch.column(i)) for i, x in enumerate(types)]


class KeyedState(Protocol):
    """All that one store keeps, by the key by which the operator's input is partitioned.

    All calls come from the operator's thread, between two batches: none while outputs of the operator
    are pending. What one call returns as an iterator is taken to its end, or given up, before the next.
    """

    @property
    def state_names(self) -> Sequence[str]:
        """Of its states in a snapshot."""

    @property
    def key_types(self) -> Sequence[LogicalType]:
        """Of the key's columns; none at all: everything lies in key group 0."""

    def live_bytes(self) -> int:
        """Bytes in memory that are in use: what the slot's limit counts."""

    @property
    def on_disk(self) -> int:
        """Keys (a log: rows) of which nothing is in memory."""

    def evict(self) -> None:
        """Move to the disk what the limit of the slot's memory asks for. ExternalError when far too much
        is held and the store cannot move it."""

    def expire(self, now_ms: int) -> None:
        """Give up what was not written for its time to live (processing time, ms since the epoch)."""

    # -- checkpoints ---------------------------------------------------------------------

    def cut(self) -> Mapping[str, KeyedBlock | PendingBlock]:
        """Each state at this moment, by name: what changed since the last confirmed checkpoint, or the
        whole (``Epochs.since``). Nothing is copied yet."""

    def restore(self, restored: RestoredState | None) -> None:
        """Load what a snapshot has of this subtask's key groups; once, before the first batch. Rows of
        states that it does not know are ignored, or kept for the next snapshot."""

    # -- key groups that move -------------------------------------------------------------

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """All rows of these key groups, wherever they lie, some at a time; nothing is moved, changed or
        announced. InternalError when one of the groups is masked."""

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """These key groups belong to this store from now on, with these rows (see ``collected``). The
        store had no rows of them. The next delta holds them."""

    def mask(self, groups: KeyGroups) -> None:
        """These key groups belong to another subtask from now on. Nothing of them is seen any more: not
        in a cut, not when a watermark or a timer fires, and a batch or a request with one of their keys
        is an InternalError. The next delta takes their rows back."""

    def drop(self, more: Callable[[], bool]) -> bool:
        """Free rows of masked groups as long as ``more()``, in slices of about a millisecond. True: none
        are left. A cut, a watermark or a timer that comes first frees the rest at once."""

    # -- looking from outside ----------------------------------------------------------------

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """All rows of ``n`` distinct keys, wherever they lie; nothing is moved, changed or announced.
        InternalError when one of the keys is masked."""

    def close(self) -> None:
        """Release files and the claim on the slot's memory. May be called in any state, once."""


class KeyedStates:
    """The stores of one operator, driven together. It fulfils ``KeyedState`` but for what only a store
    knows (its key types), and for ``restore`` and ``close``, which the operator does in its own order."""

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
        """``KeyedState.absorb`` by all stores: each gets what no other one keeps."""
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
    """Exported rows as ``absorb`` takes them."""
    out = RestoredState(checkpoint_id=0)
    for part in rows:
        found: list[pa.RecordBatch] = out.keyed.setdefault(part.name, [])  # type: ignore[assignment]
        found.append(part.batch)
        out.schemas.setdefault(part.name, []).append(dict(part.schema))
    return out


def enumerate_keys(store: KeyedState, groups: KeyGroups) -> Iterator[list[Column]]:
    """The key columns of all keys of these groups that have any state, each key once, some at a time.
    Memory: a copy of each key."""
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
    """Those of some rows that belong to one of ``n`` keys: for stores that can only look through all."""
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
