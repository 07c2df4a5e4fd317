"""The job's slots: how many it needs, which it holds, and which subtasks run in each. Pure.

``SlotPool`` keeps the allocations that task managers offered; ``place`` puts subtask i of every vertex of a
slot group (``regions.Layout``) into that group's slot i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.messages.slot import SlotAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.job_master import OfferSlots
    from penstock_services.jobmanager.regions import Layout, Place


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot that the job holds, with the address for its data connections."""

    address: SlotAddress
    slot_index: int

    @property
    def allocation_id(self) -> str:
        """The id of the allocation."""
        return self.address.allocation_id

    @property
    def taskmanager_id(self) -> str:
        """The id of the slot's task manager."""
        return self.address.taskmanager_id


class SlotPool:
    """The allocations that this job holds, at most ``needed``."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self._held: dict[str, HeldSlot] = {}
        #: Allocation id → its last place, so that a restart finds its local files.
        self._last_place: dict[str, Place] = {}

    def offer(self, offer: OfferSlots) -> tuple[str, ...]:
        """Takes the allocations that are needed, and returns the accepted ids. A repeated offer is accepted
        again. The task manager frees those that are not accepted."""
        accepted = []
        for slot in offer.slots:
            if slot.allocation_id not in self._held:
                if len(self._held) >= self.needed:
                    continue
                address = SlotAddress(
                    allocation_id=slot.allocation_id,
                    taskmanager_id=offer.taskmanager_id,
                    host=offer.host,
                    port=offer.data_port,
                    unix_path=offer.unix_path,
                )
                self._held[slot.allocation_id] = HeldSlot(address, slot.slot_index)
            accepted.append(slot.allocation_id)
        return tuple(accepted)

    def remove(self, allocation_id: str) -> HeldSlot | None:
        """Removes and returns an allocation; None if the job does not hold it."""
        self._last_place.pop(allocation_id, None)
        return self._held.pop(allocation_id, None)

    def of_taskmanager(self, taskmanager_id: str) -> list[HeldSlot]:
        """The slots on a task manager."""
        return [held for held in self._held.values() if held.taskmanager_id == taskmanager_id]

    def get(self, allocation_id: str) -> HeldSlot | None:
        """The slot with this allocation, or None."""
        return self._held.get(allocation_id)

    def all(self) -> list[HeldSlot]:
        """All held slots."""
        return list(self._held.values())

    def addresses(self) -> dict[str, SlotAddress]:
        """Allocation id → address of the slot."""
        return {allocation_id: held.address for allocation_id, held in self._held.items()}

    @property
    def missing(self) -> int:
        """How many slots are missing."""
        return self.needed - len(self._held)

    def took(self, allocation_id: str, place: Place) -> None:
        """Records the place of a slot that an earlier master deployed."""
        self._last_place[allocation_id] = place

    def surplus(self) -> list[HeldSlot]:
        """Held slots beyond ``needed``; those with a place are the last to be given up."""
        extra = -self.missing
        if extra <= 0:
            return []
        order = sorted(self._held.values(), key=lambda held: held.allocation_id in self._last_place)
        return order[:extra]

    def forget_places(self) -> None:
        """Forgets which place each slot had."""
        self._last_place.clear()

    def place(self, layout: Layout) -> dict[Place, HeldSlot]:
        """Assigns a held slot to every place of the layout. Call it when ``missing`` is 0.

        Slots return to the place that they had. The others are assigned by task manager and index, so that
        neighbours of one group are on the same host.
        """
        places = layout.places()
        known = set(places)
        chosen: dict[Place, HeldSlot] = {}
        for allocation_id, place in self._last_place.items():
            if place in known and allocation_id in self._held:
                chosen.setdefault(place, self._held[allocation_id])
        used = {held.allocation_id for held in chosen.values()}
        free = iter(
            sorted(
                (held for held in self._held.values() if held.allocation_id not in used),
                key=lambda held: (held.taskmanager_id, held.slot_index),
            )
        )
        for place in places:
            if place not in chosen:
                chosen[place] = next(free)
        self._last_place = {held.allocation_id: place for place, held in chosen.items()}
        return {place: chosen[place] for place in places}


def locations(graph: JobGraph, layout: Layout, placed: Mapping[Place, HeldSlot]) -> dict[str, str]:
    """``"vertex:subtask"`` → allocation id, for every subtask."""
    return {
        f"{vertex.id}:{index}": placed[layout.place(vertex.id, index)].allocation_id
        for vertex in graph.vertices
        for index in range(vertex.parallelism)
    }


def waiting_for(layout: Layout, missing: int, *, total: int | None, free: int | None) -> str:
    """A sentence that says what the job waits for, and what would help."""
    groups = layout.groups
    needed = sum(groups.values())
    of_groups = ""
    if len(groups) > 1:
        of_groups = " (" + ", ".join(f"{n} of group '{g}'" for g, n in groups.items()) + ")"
    have = "" if total is None else f"; the cluster has {total}, {free} of them free"
    noun = "slot is" if missing == 1 else "slots are"
    return (
        f"{missing} of {needed} {noun} missing{of_groups}{have}. "
        "Add a task manager or slots (taskmanager.numberOfTaskSlots), lower the parallelism, "
        "or wait for another job to end."
    )
