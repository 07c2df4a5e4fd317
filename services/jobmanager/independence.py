"""Chooses one older checkpoint to keep: it shares no object with the newest, so damage to the newest cannot
reach it. Pure.

Incremental checkpoints share objects: the base of a subtask's chain is in all checkpoints until the
subtask begins a new chain. So one damaged object may damage every retained checkpoint. Therefore one more
checkpoint is kept that shares nothing with the newest. Subtasks begin new chains at different times: a
second checkpoint is held until all subtasks have done so, and then replaces the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.slot import StateHandle
    from penstock_services.jobmanager.checkpoints import Completed

_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Fallback:
    """The checkpoints kept against damage, as ids (0: none). ``kept`` shared no object with the newest
    checkpoint when it was chosen; ``held`` is kept next."""

    kept: int = 0
    held: int = 0

    def after(self, newest: Completed, held: Completed | None) -> Fallback:
        """The fallback after ``newest`` has completed. ``held``: the checkpoint with the id ``held``; None if
        it does not exist."""
        if held is None:
            return Fallback(self.kept, newest.checkpoint_id)
        if independent(held, newest):
            return Fallback(held.checkpoint_id, newest.checkpoint_id)
        if _all_go_on(held, newest):
            return Fallback(self.kept, newest.checkpoint_id)
        return self

    def __contains__(self, checkpoint_id: int) -> bool:
        return checkpoint_id in (self.kept, self.held)


def independent(older: Completed, newer: Completed) -> bool:
    """Whether no object belongs to both. Last snapshots of subtasks that had finished before either
    checkpoint are not counted, because they exist only once."""
    first, second = _handles(older), _handles(newer)
    finished = {p for p, h in first.items() if p in second and second[p].checkpoint_id == h.checkpoint_id}
    mine, others = (
        {key for place, handle in handles.items() if place not in finished for key in handle.keys}
        for handles in (first, second)
    )
    return mine.isdisjoint(others)


def _all_go_on(older: Completed, newer: Completed) -> bool:
    """Whether no subtask has begun a new chain in between, so that the newer one serves as well."""
    first, second = _handles(older), _handles(newer)
    return first.keys() == second.keys() and all(
        _base(first[place]) == _base(second[place]) or not (first[place].chain or second[place].chain)
        for place in first
    )


def _handles(completed: Completed) -> dict[_Place, StateHandle]:
    return dict(_places(completed))


def _places(completed: Completed) -> Iterator[tuple[_Place, StateHandle]]:
    for vertex in completed.manifest.vertices:
        for handle in vertex.handles:
            yield (handle.vertex_id, handle.subtask_index), handle


def _base(handle: StateHandle) -> str | None:
    """The key of the object with which a chain begins."""
    return handle.chain[-1].key if handle.chain else handle.key
