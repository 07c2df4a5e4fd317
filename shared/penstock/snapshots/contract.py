"""What an operator gives to a checkpoint, and what it gets back from one."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    from penstock.types.logical import LogicalType


#: In the schema of restored state that functions declare: the names of all keyed states that the operator had in
#: the object in which its rows were written.
BESIDE = "beside"


@dataclass(slots=True)
class KeyedBlock:
    """Rows of keyed state for a snapshot.

    ``batch``: an Arrow record batch, sorted by key group; ``key_groups``: int32, one a
    row, ascending; None: the rows are in no order, and whoever reads some key groups only
    finds them by ``hashed_by`` (the types of the leading columns, max parallelism). The
    arrays are private to the snapshot: the operator never writes them again. ``schema``: what a reader without the engine needs to know (names → SQL
    type text, descriptor parameters).

    ``identity``: how a row is known again in a later delta. ``slot``: by its last column;
    ``key``: by key and namespace, the last column of a delta marking the removed; empty:
    not at all, the block is always whole. ``delta``: the block holds what changed since
    the snapshot before it in the chain. ``touched``: a slot delta's slots whose older
    rows no longer hold (int64, ascending).
    """

    batch: pa.RecordBatch
    key_groups: np.ndarray | None
    schema: dict[str, Any] = field(default_factory=dict)
    identity: str = ""
    delta: bool = False
    touched: np.ndarray | None = None
    hashed_by: tuple[tuple[LogicalType, ...], int] | None = None


class PendingBlock(ABC):
    """Keyed state that is cut and not yet copied. The operator continues meanwhile: before it changes a row,
    it copies that row out."""

    @abstractmethod
    def copy(self, more: Callable[[], bool]) -> bool:
        """On the data thread: copies piece by piece (of less than a millisecond) as long as ``more()``. True
        if everything is copied."""

    @abstractmethod
    def block(self) -> KeyedBlock:
        """The rows, once everything is copied; may be called in the helper thread."""

    def pieces(self) -> Iterator[KeyedBlock]:
        """``block`` a piece at a time, each in key-group order, so that the whole is never in memory a
        second time; pieces that were passed are freed. Once; at least one piece."""
        yield self.block()

    @abstractmethod
    def discard(self) -> None:
        """The snapshot is not wanted any more."""


class PendingItems(Protocol):
    """List items that are not known yet: awaited once, or closed. A coroutine is one."""

    def __await__(self) -> Generator[Any, Any, dict[str, list[bytes]]]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class OperatorSnapshot:
    """What one operator adds to a checkpoint.

    ``keyed``: by state name. ``lists``: items dealt out anew on rescaling. ``unions``:
    every subtask gets all items of all subtasks. ``pending``: list items that are known
    only once asynchronous work is durable (a sink's pre-commit); awaited before the
    acknowledgement.
    """

    keyed: Mapping[str, KeyedBlock | PendingBlock] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    unions: dict[str, list[bytes]] = field(default_factory=dict)
    pending: PendingItems | None = None

    def abandon(self) -> None:
        """It will not be written (any further)."""
        for block in self.keyed.values():
            if isinstance(block, PendingBlock):
                block.discard()
        if self.pending is not None:
            self.pending.close()

    def copied(self) -> OperatorSnapshot:
        """The same, with its cut state copied completely (for tests and tools)."""
        for block in self.keyed.values():
            if isinstance(block, PendingBlock):
                block.copy(lambda: True)
        return self

    def block(self, name: str) -> KeyedBlock:
        """One keyed state, copied."""
        block = self.copied().keyed[name]
        return block.block() if isinstance(block, PendingBlock) else block


@dataclass(slots=True)
class RestoredState:
    """The restored state of one operator of one subtask, already filtered to its key groups (lists dealt
    out; unions whole). ``checkpoint_id``: restored from; ``keyed``: each batch is decoded when it is
    asked for; ``schemas``: of each keyed state the ``KeyedBlock.schema`` of each batch, as it was written:
    the subtasks that wrote them may have had the state in different forms."""

    checkpoint_id: int
    keyed: dict[str, Sequence[pa.RecordBatch]] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    unions: dict[str, list[bytes]] = field(default_factory=dict)
    schemas: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def forms(self, name: str) -> Iterator[tuple[Sequence[pa.RecordBatch], dict[str, Any]]]:
        """(batches, schema) of a keyed state: one for each form in which it was written."""
        batches, schemas = self.keyed[name], self.schemas.get(name, [])
        if len(batches) != len(schemas):
            raise InternalError(
                f"restored rows of state '{name}' without the form of each batch",
                expected=f"{len(batches)} schemas",
                got=str(len(schemas)),
            )
        at = 0
        for schema, same in itertools.groupby(schemas):
            start, at = at, at + len(list(same))
            yield batches[start:at], schema
