"""The checkpoints of a job that have begun and not ended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.jobmanager.checkpoints import SAVEPOINTS, Pending, Phase

if TYPE_CHECKING:
    from penstock.messages.slot import StateHandle
    from penstock_services.jobmanager.execution_graph import Execution


class InFlight(dict[int, Pending]):
    """Checkpoint id → checkpoint in flight, oldest first."""

    @property
    def settled(self) -> bool:
        """Whether no CheckpointCompleted entry is being appended to the log."""
        return all(pending.phase is not Phase.LOGGING for pending in self.values())

    def acknowledging(self, checkpoint_id: int) -> Pending | None:
        """The checkpoint, if it waits for acknowledgements."""
        return self.in_phase(checkpoint_id, Phase.ACKNOWLEDGING)

    def in_phase(self, checkpoint_id: int, phase: Phase) -> Pending | None:
        """The checkpoint, if it is in this phase."""
        pending = self.get(checkpoint_id)
        return None if pending is None or pending.phase is not phase else pending

    def finished(self, execution: Execution) -> None:
        """A task has finished. Its final snapshot replaces the acknowledgement, which will not come."""
        for pending in self.values():
            if pending.phase is Phase.ACKNOWLEDGING:
                pending.look_for_orphans = True
                if execution.execution_id in pending.expected:
                    pending.handles.setdefault(execution.execution_id, execution.final)

    def replaced_by(self, pending: Pending) -> list[Pending]:
        """The unfinished checkpoints that ``pending``, which every subtask has acknowledged, replaces."""
        return [
            older
            for n, older in self.items()
            if n < pending.checkpoint_id and not older.whole and older.kind not in SAVEPOINTS
        ]

    def to_store(self) -> Pending | None:
        """The oldest checkpoint, if every subtask has acknowledged it and it is not being stored."""
        pending = next(iter(self.values()), None)
        if pending is None or pending.phase is not Phase.ACKNOWLEDGING or not pending.whole:
            return None
        return pending

    def floors(self) -> list[int]:
        """The checkpoints on which their deltas build (``Retention.floor``)."""
        return [pending.floor for pending in self.values()]

    def handles(self) -> list[StateHandle | None]:
        """The handles of all acknowledged snapshots."""
        return [handle for pending in self.values() for handle in pending.handles.values()]

    def problems(self, next_id: int, counted: int) -> list[str]:
        """The invariants that are broken, in words.

        ``next_id``: the first id that was not given yet; ``counted``: how many are shown to be in progress.
        """
        problems = []
        if counted != len(self):
            problems.append(f"{counted} are counted, {len(self)} in flight")
        if list(self) != sorted(self):
            problems.append(f"checkpoints in flight are out of order: {list(self)}")
        for n, pending in enumerate(self.values()):
            if pending.checkpoint_id >= next_id:
                problems.append("a checkpoint in flight has an id not yet given")
            if not set(pending.handles) <= set(pending.expected):
                problems.append("a snapshot of an execution that does not take part")
            if pending.phase is not Phase.ACKNOWLEDGING and not pending.whole:
                problems.append("stored before every subtask acknowledged")
            if pending.phase is not Phase.ACKNOWLEDGING and n > 0:
                problems.append("stored while an older one is in flight")
        return problems
