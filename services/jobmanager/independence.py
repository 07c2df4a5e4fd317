"""Which older checkpoint is kept because a damaged object of the newest one is none of its own. Pure.

Incremental checkpoints share objects: what one subtask's chain begins with is in all of them
until it begins anew, so that one damaged object may take every checkpoint that is retained. One
more is kept therefore, that shares nothing with the newest. Subtasks begin their chains anew at
different times, so another one is held until all of them have done so, and is that one then.
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
    """``kept`` shared no object with the newest checkpoint when it was chosen; ``held`` is the
    next to be kept. Both are checkpoint ids, 0: none."""

    kept: int = 0
    held: int = 0

    def after(self, newest: Completed, held: Completed | None) -> Fallback:
        """When ``newest`` has completed. ``held``: that of this id, None: it is not there."""
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
    """No object is read for both, but for the last snapshots of subtasks that had finished
    before either: these are there once."""
    first, second = _handles(older), _handles(newer)
    finished = {p for p, h in first.items() if p in second and second[p].checkpoint_id == h.checkpoint_id}
    mine, others = (
        {key for place, handle in handles.items() if place not in finished for key in handle.keys}
        for handles in (first, second)
    )
    return mine.isdisjoint(others)


def _all_go_on(older: Completed, newer: Completed) -> bool:
    """No subtask has begun a new chain in between: for what comes, the newer is as good."""
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
    """The object that a chain begins with."""
    return handle.chain[-1].key if handle.chain else handle.key
