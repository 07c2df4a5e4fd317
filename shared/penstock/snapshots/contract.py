"""What an operator hands to a checkpoint, and what it receives when it is restored."""

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


#: A key of the schema of restored state that functions declare. Its value: the names of all keyed states that
#: the operator had in the object that holds the rows.
BESIDE = "beside"


@dataclass(slots=True)
class KeyedBlock:
    """Rows of keyed state for a snapshot. The arrays belong to the snapshot: the operator never writes to
    them again.

    ``batch``: an Arrow record batch, sorted by key group. ``key_groups``: int32, one for each row,
    ascending. None: the rows are in no order; a reader of some key groups finds them with ``hashed_by``
    (the types of the leading columns, max parallelism). ``schema``: what a reader without the engine needs
    (names → SQL type text, descriptor parameters).

    ``identity``: how a later delta recognises a row. ``slot``: by its last column. ``key``: by key and
    namespace; the last column of a delta marks removed rows. Empty: not at all, so the block is always
    whole. ``delta``: the block holds what changed since the snapshot before it in the chain. ``touched``:
    for a delta by slot, the slot numbers whose older rows no longer count (int64, ascending).
    """

    batch: pa.RecordBatch
    key_groups: np.ndarray | None
    schema: dict[str, Any] = field(default_factory=dict)
    identity: str = ""
    delta: bool = False
    touched: np.ndarray | None = None
    hashed_by: tuple[tuple[LogicalType, ...], int] | None = None


class PendingBlock(ABC):
    """Keyed state that has been cut and is not copied yet. The operator continues meanwhile: before it
    changes a row, it copies that row."""

    @abstractmethod
    def copy(self, more: Callable[[], bool]) -> bool:
        """Copies in pieces of less than a millisecond while ``more()`` is True. Returns whether everything is
        copied. Runs on the data thread."""

    @abstractmethod
    def block(self) -> KeyedBlock:
        """The rows, once everything is copied. May be called on the helper thread."""

    def pieces(self) -> Iterator[KeyedBlock]:
        """The rows of ``block`` in pieces, each in key-group order, so that they are not in memory twice: a
        piece is freed once the next one is taken. There is at least one piece. May be called once."""
        yield self.block()

    @abstractmethod
    def discard(self) -> None:
        """The snapshot is no longer needed: frees what was kept for it."""


class PendingItems(Protocol):
    """List items that are not known yet. They are either awaited once or closed. A coroutine is one."""

    def __await__(self) -> Generator[Any, Any, dict[str, list[bytes]]]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class OperatorSnapshot:
    """What one operator adds to a checkpoint.

    ``keyed``: by state name. ``lists``: items that are dealt out again when the job is rescaled.
    ``unions``: items that every subtask receives from all subtasks. ``pending``: list items that are known
    only when asynchronous work is durable (a sink's pre-commit); they are awaited before the checkpoint is
    acknowledged.
    """

    keyed: Mapping[str, KeyedBlock | PendingBlock] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    unions: dict[str, list[bytes]] = field(default_factory=dict)
    pending: PendingItems | None = None

    def abandon(self) -> None:
        """The snapshot will not be written: discards what is pending."""
        for block in self.keyed.values():
            if isinstance(block, PendingBlock):
                block.discard()
        if self.pending is not None:
            self.pending.close()

    def copied(self) -> OperatorSnapshot:
        """This snapshot with all pending state copied (for tests and tools)."""
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
    """The restored state of one operator of one subtask: the rows of its key groups, its share of the lists,
    and whole unions.

    ``checkpoint_id``: the checkpoint from which it is restored. ``keyed``: state name → batches, each
    decoded when it is used. ``schemas``: state name → the ``KeyedBlock.schema`` of each batch as it was
    written, because the subtasks that wrote the batches may have had the state in different forms.
    """

    checkpoint_id: int
    keyed: dict[str, Sequence[pa.RecordBatch]] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    unions: dict[str, list[bytes]] = field(default_factory=dict)
    schemas: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def forms(self, name: str) -> Iterator[tuple[Sequence[pa.RecordBatch], dict[str, Any]]]:
        """(batches, schema) of a keyed state, for each form in which it was written. Raises InternalError if
        the number of schemas differs from the number of batches."""
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
