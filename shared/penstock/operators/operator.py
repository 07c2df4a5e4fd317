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

from penstock.operators.idleness import Idleness
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.epochs import Epochs
from penstock.state.keyed_state import KeyedState, KeyedStates
from penstock.state.memory import StateMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.messages.slot import StorageSettings
    from penstock.metrics import MetricGroup
    from penstock.operators.letters import Letters
    from penstock.ports import Store
    from penstock.snapshots.contract import RestoredState
    from penstock.state.key_groups import KeyGroups
    from penstock.types import Batch, Schema

#: "No watermark yet" and "event time has ended" (int64 µs).
MIN_WATERMARK = -(2**63)
MAX_WATERMARK = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SideBatch:
    """Rows of the side output ``tag``."""

    tag: str
    batch: Batch


Output = Union["Batch", SideBatch]


@dataclass(slots=True)
class OperatorContext:
    """What an operator may know and use. A task makes its context; a test may make one.

    Args:
        job_id: Id of the job.
        job_name: Name of the job.
        vertex_id: Id of the vertex, 32 hexadecimal digits.
        uid: The uid by which the operator's state is found.
        name: The name that the dashboard shows.
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
        now_ms: Processing time, ms since the epoch, read once per step.
        wake_at: Asks for ``on_processing_time`` at, or soon after, this time (ms).
        function: Loads an entry of the job's function table.
        store: The job's object store, for sources, sinks and results.
        storage: How other processes reach that store.
        report_error: ``report_error(error, record)`` counts and keeps a record for the policies skip and dead-letter.
        letters: The operator's dead letters, if its policy is dead-letter.
        run: ``await run(f)`` calls ``f`` in the slot's one helper thread; only for calls that release the GIL.
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
    #: Processing time, ms since the epoch, read once per step.
    now_ms: Callable[[], int]
    #: Ask for ``on_processing_time`` at (or soon after) this time.
    wake_at: Callable[[int], None]
    #: Loads an entry of the job's function table.
    function: Callable[[str], Any]
    #: The job's object store, for sources, sinks and results.
    store: Store | None = None
    #: How other processes reach that store.
    storage: StorageSettings | None = None
    #: ``report_error(error, record)`` counts and keeps a record for the policies skip and dead-letter.
    report_error: Callable[[BaseException, Any], None] | None = None
    #: The operator's dead letters; None unless its policy is dead-letter and there is an object store.
    letters: Letters | None = None
    #: ``await run(f)`` calls ``f`` in the slot's one helper thread; only for calls that release the GIL.
    run: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
    #: How much memory the state of the slot may take.
    memory: StateMemory = field(default_factory=StateMemory)
    #: True if rows come ordered by event time, from a bounded input.
    rows_in_order: bool = False
    #: The task's epochs of change, for its operators' state tables.
    epochs: Epochs = field(default_factory=Epochs)


class Closeable(Protocol):
    """An object with resources to release."""

    def close(self) -> None:
        """Release all resources."""


_C = TypeVar("_C", bound=Closeable)
_S = TypeVar("_S", bound=KeyedState)


class Operator(ABC):
    """Base class of operators. By default it has no state and emits nothing; ``process`` must be overridden."""

    ctx: OperatorContext
    _resources: tuple[Closeable, ...] = ()
    _stores: tuple[KeyedState, ...] = ()

    def hold(self, resource: _C) -> _C:
        """Let ``close`` close ``resource``; return it. The resource that was held last is closed first."""
        self._resources = (resource, *self._resources)
        return resource

    def keep(self, store: _S) -> _S:
        """Make the keyed state ``store`` part of this operator's snapshots and rescaling; ``close`` closes it.
        Returns it."""
        self._stores = (*self._stores, store)
        return self.hold(store)

    @property
    def state(self) -> KeyedStates:
        """All keyed state that was given to ``keep``."""
        return KeyedStates(self._stores)

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """Take over key groups with all their rows from another subtask (see ``KeyedState.absorb``).

        An operator that derives data from its state in ``open`` derives it again here.
        """
        self.state.absorb(groups, rows)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        """Called once, before all other methods, with the context ``ctx`` and the ``restored`` state (None: a
        new start)."""
        self.ctx = ctx

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        """Process ``batch`` (at least one row) from the input ``input_index`` and yield any number of outputs."""
        raise NotImplementedError

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        """The lowest watermark of all inputs rose to ``watermark`` (µs): fire all timers up to it.

        The task then forwards ``output_watermark(watermark)``.
        """
        return iter(())

    def output_watermark(self, watermark: int) -> int:
        """The watermark (µs) of the output after ``on_watermark(watermark)``; by default the same."""
        return watermark

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        """A time that ``ctx.wake_at`` asked for has come (ms). The default drops state whose time to live has
        passed."""
        self.state.expire(now_ms)
        return iter(())

    def on_idle(self) -> Iterator[Output]:
        """All inputs are idle: emit all rows that are held back.

        Operators downstream do not wait for an idle input, so rows that are emitted later may be late for them.
        """
        return iter(())

    @property
    def idle_as(self) -> Idleness:
        """What the output is while the operator, a source or a maker of watermarks, says that it has no rows."""
        return Idleness.IDLE

    def end_input(self, input_index: int) -> Iterator[Output]:
        """The input ``input_index`` has ended; other inputs may continue."""
        return iter(())

    def finish(self) -> Iterator[Output]:
        """All inputs have ended, and a watermark of ``MAX_WATERMARK`` was handled: emit the last outputs."""
        return iter(())

    def prepare_checkpoint(self, checkpoint_id: int) -> Iterator[Output]:
        """Outputs that must be sent before the barrier, such as the partial results of a local aggregate."""
        return iter(())

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """The state at the barrier. It returns at once; ``OperatorSnapshot.pending`` completes later."""
        return self._cut()

    def _cut(self, unions: Mapping[str, list[bytes]] | None = None) -> OperatorSnapshot:
        """A snapshot of all keyed state and the given union state."""
        return OperatorSnapshot(keyed=self.state.cut(), unions=dict(unions or {}))

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete and in the decision log. The call may be repeated."""

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted: its pre-committed output belongs to the next checkpoint."""

    def close(self) -> None:
        """Release all resources. Called once, also after a failure or cancellation."""
        with ExitStack() as stack:
            for resource in reversed(self._resources):
                stack.callback(resource.close)


class WatermarkHolder(Operator):
    """An operator that holds watermarks back behind its rows. The chain reads what it lets go after each
    ``on_processing_time``."""

    @abstractmethod
    def released_watermark(self) -> int:
        """The watermark (µs) that its output may have by now."""


class WatermarkMaker(Operator):
    """An operator that makes the watermark of its output itself. The chain reads it after each
    ``on_processing_time``, and after each output of ``process`` if it is ``per_record``."""

    @property
    def per_record(self) -> bool:
        """Whether the watermark may rise between two outputs."""
        return False

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark (µs) of the rows that were emitted."""

    @abstractmethod
    def idle(self) -> bool:
        """Whether the output is without rows: ``idle_as`` says what that means."""
