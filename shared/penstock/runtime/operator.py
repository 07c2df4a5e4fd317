"""The operator contract.

A task drives a chain of operators on one thread. Nothing in an operator may block,
sleep or run longer than a few milliseconds at a time: long results are *yielded* in
pieces, and the task stops pulling when an output lacks credit. Between two pulls the
task may serve barriers, cancellation and timers of *other* operators, never of this one.

Order of calls::

    open → (process | on_watermark | on_processing_time | prepare_checkpoint + snapshot
            | on_checkpoint_complete | on_checkpoint_aborted)* → finish → snapshot → close

``finish`` is called once, when every input has ended and after a watermark of
``MAX_WATERMARK`` was handled; it is not called when a task is cancelled.
"""

# ruff: noqa: B027 (an operator overrides only where it differs)
from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Union

from penstock.runtime.state.epochs import Epochs
from penstock.runtime.state.memory import StateMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import pyarrow as pa

    from penstock.messages.slot import StorageSettings
    from penstock.ports import Store
    from penstock.types import Batch, Schema
    from penstock.types.logical import LogicalType

#: "No watermark yet" and "event time has ended" (int64 µs).
MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SideBatch:
    """Rows for the side output ``tag`` instead of the main one."""

    tag: str
    batch: Batch


Output = Union["Batch", SideBatch]


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
    """Keyed state that is cut and not yet copied. The operator goes on meanwhile: what it
    changes first, it copies out first."""

    @abstractmethod
    def copy(self, more: Callable[[], bool]) -> bool:
        """On the data thread: copy piece by piece (of less than a millisecond) as long as
        ``more()``. True when everything is copied."""

    @abstractmethod
    def block(self) -> KeyedBlock:
        """The rows, once everything is copied; may be called in the helper thread."""

    def pieces(self) -> Iterator[KeyedBlock]:
        """``block`` a piece at a time, each in key-group order, so that the whole is never
        in memory a second time; what was passed is given up. Once; at least one piece."""
        yield self.block()

    @abstractmethod
    def discard(self) -> None:
        """Nobody wants it any more."""


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
        """The same, its cut state copied to the end at once (for tests and tools)."""
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
    """What a snapshot gives back to one operator of one subtask (already filtered to its
    key groups; lists dealt out; unions whole). ``checkpoint_id``: restored from;
    ``keyed``: each batch is decoded when it is asked for; ``schemas``: ``KeyedBlock.schema``
    of each keyed state, as it was written."""

    checkpoint_id: int
    keyed: dict[str, Sequence[pa.RecordBatch]] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)
    unions: dict[str, list[bytes]] = field(default_factory=dict)
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)


class MetricGroup:
    """Counters and gauges of one operator; read by the task's reporter.

    Names are Flink's (``numRecordsIn``, ``numLateRecordsDropped`` …).
    """

    __slots__ = ("counters", "gauges")

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], float | int | None]] = {}

    def inc(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def gauge(self, name: str, read: Callable[[], float | int | None]) -> None:
        self.gauges[name] = read


@dataclass(slots=True)
class OperatorContext:
    """What an operator may know and use. Made by the task; a test makes its own."""

    job_id: str
    job_name: str
    vertex_id: str
    uid: str
    name: str
    subtask_index: int
    parallelism: int
    max_parallelism: int
    attempt: int
    input_schemas: Sequence[Schema]
    output_schema: Schema
    config: Mapping[str, str]
    metrics: MetricGroup
    #: Inclusive range of this subtask's key groups.
    key_groups: tuple[int, int]
    #: A private, empty folder on local disk (LevelDB, spill files).
    local_dir: Path
    #: Processing time, ms since the epoch, read once a step.
    now_ms: Callable[[], int]
    #: Ask for ``on_processing_time`` at (or soon after) this time.
    wake_at: Callable[[int], None]
    #: Loads an entry of the job's function table.
    function: Callable[[str], Any]
    #: The job's object store, for sources, sinks and results.
    store: Store | None = None
    #: How other processes reach it.
    storage: StorageSettings | None = None
    #: ``record_error(error, record)`` for skip / dead-letter policies: counts and keeps.
    report_error: Callable[[BaseException, Any], None] | None = None
    #: ``run(f)`` in the slot's one helper thread; only for calls that release the lock.
    run: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
    #: What the state of the slot may take.
    memory: StateMemory = field(default_factory=StateMemory)
    #: Rows come by event time already, from a bounded input.
    rows_in_order: bool = False
    #: The task's epochs of change, for its operators' state tables.
    epochs: Epochs = field(default_factory=Epochs)


class Operator(ABC):
    """Base class: a stateless pass-through, overridden where an operator differs."""

    ctx: OperatorContext

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        """Called once, before anything else, with restored state or None."""
        self.ctx = ctx

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        """Handle ≥ 1 rows of an input; yield any number of outputs."""
        raise NotImplementedError

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        """The lowest watermark of all inputs rose to ``watermark``; fire timers ≤ it.

        Afterwards the task forwards ``output_watermark(watermark)``.
        """
        return iter(())

    def output_watermark(self, watermark: int) -> int:
        """What is true of the output after ``on_watermark`` (default: the same)."""
        return watermark

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        """A time asked for with ``ctx.wake_at`` has come."""
        return iter(())

    def on_idle(self) -> Iterator[Output]:
        """All inputs have become idle. What is held back must go out now: those behind do
        not wait for an idle input, and what comes later may be late for them."""
        return iter(())

    def end_input(self, input_index: int) -> Iterator[Output]:
        """One input has ended (others may go on)."""
        return iter(())

    def finish(self) -> Iterator[Output]:
        """All inputs have ended."""
        return iter(())

    def prepare_checkpoint(self, checkpoint_id: int) -> Iterator[Output]:
        """Outputs that must go out before the barrier (a local aggregate's partials)."""
        return iter(())

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """The state at the barrier; returns at once (see ``OperatorSnapshot.pending``)."""
        return OperatorSnapshot()

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is in the log. May be repeated."""

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Its pre-committed work now belongs to the next checkpoint."""

    def close(self) -> None:
        """Release everything; called once also after a failure or cancellation."""
