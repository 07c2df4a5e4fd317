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
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.epochs import Epochs
from penstock.state.keyed_state import KeyedState, KeyedStates
from penstock.state.memory import StateMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.messages.slot import StorageSettings
    from penstock.metrics import MetricGroup
    from penstock.ports import Store
    from penstock.snapshots.contract import RestoredState
    from penstock.state.key_groups import KeyGroups
    from penstock.types import Batch, Schema

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
class OperatorContext:
    """What an operator may know and use. The task makes it; a test makes its own.

    Args:
        job_id: Id of the job.
        job_name: Name of the job.
        vertex_id: Id of the vertex, 32 hexadecimal digits.
        uid: By which the operator's state is found.
        name: As the dashboard shows it.
        subtask_index: Index of the subtask, from 0.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
        attempt: Number of this run of the task, from 1.
        input_schemas: Columns of each input.
        output_schema: Columns of the main output.
        config: The job's configuration.
        metrics: The operator's metrics.
        key_groups: First and last key group of this subtask, both included.
        local_dir: A private, empty folder on the local disk.
        now_ms: Processing time, ms since the epoch, read once a step.
        wake_at: Asks for ``on_processing_time`` at, or soon after, this time (ms).
        function: Loads an entry of the job's function table.
        store: The job's object store, for sources, sinks and results.
        storage: How other processes reach that store.
        report_error: ``report_error(error, record)`` counts and keeps a record for the policies skip and dead-letter.
        run: ``await run(f)`` calls ``f`` in the slot's one helper thread; only for calls that release the lock.
        memory: How much memory the state of the slot may take.
        rows_in_order: Rows come ordered by event time, from a bounded input.
        epochs: The task's epochs of change, for its operators' state tables.
    """

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


class Closeable(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=Closeable)
_S = TypeVar("_S", bound=KeyedState)


class Operator(ABC):
    """Base class: a stateless pass-through, overridden where an operator differs."""

    ctx: OperatorContext
    _resources: tuple[Closeable, ...] = ()
    _stores: tuple[KeyedState, ...] = ()

    def hold(self, resource: _C) -> _C:
        """``resource``, which ``close`` will close: those held last come first."""
        self._resources = (resource, *self._resources)
        return resource

    def keep(self, store: _S) -> _S:
        """``store`` of keyed state, which belongs to this operator's snapshots from now on, moves with its
        key groups, and is closed by ``close``."""
        self._stores = (*self._stores, store)
        return self.hold(store)

    @property
    def state(self) -> KeyedStates:
        """All keyed state."""
        return KeyedStates(self._stores)

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """These key groups come from another subtask, with all their rows (see ``KeyedState.absorb``). An
        operator that derives something from its state at ``open`` does so again."""
        self.state.absorb(groups, rows)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        """Called once, before anything else. ``ctx``: see ``OperatorContext``; ``restored``: the restored state, or None."""
        self.ctx = ctx

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        """Handle the rows of ``batch``, at least one, from the input ``input_index``; yield any number of outputs."""
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
        """A time asked for with ``ctx.wake_at`` has come: that of a time to live, if of nothing else."""
        self.state.expire(now_ms)
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
        return self._cut()

    def _cut(self, unions: Mapping[str, list[bytes]] | None = None) -> OperatorSnapshot:
        """All keyed state, and union state."""
        return OperatorSnapshot(keyed=self.state.cut(), unions=dict(unions or {}))

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is in the log. May be repeated."""

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Its pre-committed work now belongs to the next checkpoint."""

    def close(self) -> None:
        """Release everything; called once also after a failure or cancellation."""
        with ExitStack() as stack:
            for resource in reversed(self._resources):
                stack.callback(resource.close)


class WatermarkMaker(Operator):
    """An operator whose output's watermark comes from itself, not from its inputs. The chain asks it after
    every ``on_processing_time``."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Of the rows that it has given, µs."""

    @abstractmethod
    def idle(self) -> bool:
        """Whether its output is idle."""
