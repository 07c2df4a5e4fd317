"""Decides when to start a checkpoint. Pure: a function of the facts and the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import config as keys
from penstock.messages.states import ExecutionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_services.jobmanager.execution_graph import ExecutionGraph

#: Time before a failed final checkpoint is tried again.
FINAL_RETRY_MS = 200


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """The configuration of checkpoints. ``interval_ms`` 0: no periodic checkpoints; those that sinks need
    remain."""

    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    tolerable_failures: int
    num_retained: int
    mode: str = "EXACTLY_ONCE"
    savepoint_dir: str = "savepoints"
    #: How long barriers of a plain checkpoint stay behind the rows before them. None: always.
    unaligned_patience_ms: int | None = None
    #: How many checkpoints may be in flight at the same time.
    max_concurrent: int = 1

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> CheckpointConfig:
        """The values of a job's configuration."""
        return cls(
            interval_ms=keys.CHECKPOINT_INTERVAL_MS.read(config),
            timeout_ms=keys.CHECKPOINT_TIMEOUT_MS.read(config),
            min_pause_ms=keys.CHECKPOINT_MIN_PAUSE_MS.read(config),
            tolerable_failures=keys.CHECKPOINT_TOLERABLE_FAILURES.read(config),
            num_retained=keys.CHECKPOINT_RETAINED.read(config),
            mode=keys.CHECKPOINT_MODE.read(config),
            savepoint_dir=keys.SAVEPOINT_DIR.read(config),
            unaligned_patience_ms=keys.unaligned_patience_ms(config),
            max_concurrent=keys.max_concurrent_checkpoints(config),
        )


@dataclass(slots=True)
class Schedule:
    """The facts on which the decision depends, besides the configuration. Times are in ms."""

    #: Since when all tasks have been running or finished. None: they are not.
    ready_since_ms: int | None = None
    last_trigger_ms: int | None = None
    #: When the last checkpoint ended, completed or not.
    last_end_ms: int | None = None
    last_failed: bool = False
    in_flight: int = 0
    final_wanted: bool = False
    requested: bool = False
    any_running: bool = False

    def look(self, graph: ExecutionGraph, now_ms: int, *, stopping: bool) -> None:
        """Updates the facts that the tasks decide. ``stopping``: a savepoint stops the job, nothing follows it."""
        ready = len(graph) > 0 and graph.all_running_or_finished and not stopping
        if not ready:
            self.ready_since_ms = None
        elif self.ready_since_ms is None:
            self.ready_since_ms = now_ms
        self.any_running = graph.count(ExecutionState.RUNNING) > 0


class Tolerance:
    """How many checkpoints in a row have failed. ``tolerated``: so many do not fail the job."""

    def __init__(self, tolerated: int) -> None:
        self._tolerated = tolerated
        self._in_row = 0
        self._failure: str | None = None

    def take_failure(self) -> str | None:
        """Why the job must fail, said once: more checkpoints failed in a row than are tolerated. None otherwise."""
        failure, self._failure = self._failure, None
        return failure

    def completed(self) -> None:
        """A checkpoint is complete: counting starts again."""
        self._in_row = 0

    def failed(self, checkpoint_id: int, reason: str) -> None:
        """The checkpoint has failed. ``reason``: why, in words that follow its number."""
        self._in_row += 1
        if self._in_row > self._tolerated:
            self._failure = (
                f"checkpoint {checkpoint_id} {reason} "
                f"({self._in_row} in a row failed, {self._tolerated} are tolerated)"
            )


@dataclass(frozen=True, slots=True)
class Now:
    """Start a checkpoint. ``reason``: periodic, requested or final."""

    reason: str


@dataclass(frozen=True, slots=True)
class At:
    """Do not start a checkpoint before this time."""

    ms: int


def decide(config: CheckpointConfig, schedule: Schedule, now_ms: int) -> Now | At | None:
    """Start a checkpoint now, decide again at a time, or (None) after the next event."""
    if schedule.in_flight >= config.max_concurrent:
        return None
    if schedule.ready_since_ms is None or not schedule.any_running:
        return None
    if schedule.requested:
        return Now("requested")
    if schedule.final_wanted:
        again = (schedule.last_end_ms or 0) + FINAL_RETRY_MS if schedule.last_failed else now_ms
        return Now("final") if again <= now_ms else At(again)
    if config.interval_ms <= 0:
        return None
    since = schedule.last_trigger_ms
    since = schedule.ready_since_ms if since is None else max(since, schedule.ready_since_ms)
    due = since + config.interval_ms
    if schedule.last_end_ms is not None:
        due = max(due, schedule.last_end_ms + config.min_pause_ms)
    return Now("periodic") if due <= now_ms else At(due)
