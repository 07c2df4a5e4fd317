"""The slots of a job: how many it declares, holds, lacks and gives back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.jobmanager.effects import Command, Declare, Effect, FindAllocations
from penstock_services.jobmanager.slots import SlotPool, waiting_for

if TYPE_CHECKING:
    from penstock_services.jobmanager.effects import Declared
    from penstock_services.jobmanager.orders import Orders
    from penstock_services.jobmanager.regions import Layout

#: How often the need for slots is declared again. The declaration is also the job's heartbeat.
DECLARE_MS = 2_000
DECLARE_WAITING_MS = 500
#: If the resource manager counts more slots for the job than the master holds, for this long, the master
#: looks for them.
SURPLUS_MS = 1_500


class SlotClaim:
    """The claim of one job. ``declare_ms``: when the need is declared next."""

    def __init__(self, layout: Layout, orders: Orders) -> None:
        self._layout = layout
        self._orders = orders
        self.pool = SlotPool(layout.slots_needed)
        self.declare_ms = 0
        #: Since when the cluster has had too few slots to keep the regions apart.
        self._scarce_ms: int | None = None
        self._total: int | None = None
        self._free: int | None = None
        self._surplus_ms: int | None = None
        #: Ids of commands that give slots back and are not answered yet. None: not sent yet.
        self._giving_back: set[str] | None = None

    def declare(self, now_ms: int) -> list[Effect]:
        """Declares the need for slots, and sets the time of the next declaration."""
        pause = DECLARE_WAITING_MS if self.pool.missing else DECLARE_MS
        self.declare_ms = now_ms + pause
        return [Declare(self.pool.needed, self._layout.together)]

    def cluster_has(self, total: int, free: int) -> None:
        """Records how many slots the cluster has, and how many of them are free."""
        self._total, self._free = total, free

    def declared(self, answer: Declared, now_ms: int) -> list[Effect]:
        """The resource manager's answer to the declaration."""
        self.cluster_has(answer.total, answer.free)
        if answer.allocated <= len(self.pool.all()):
            self._surplus_ms = None
        elif self._surplus_ms is None:
            self._surplus_ms = now_ms
        elif now_ms - self._surplus_ms >= SURPLUS_MS:
            self._surplus_ms = None
            return [FindAllocations()]
        return []

    def too_few_to_keep_apart(self, answer: Declared, now_ms: int, patience_ms: int) -> bool:
        """Whether slots have been missing for ``patience_ms`` only because the regions are kept apart."""
        if not (self._layout.can_join and answer.missing):
            self._scarce_ms = None
            return False
        self._scarce_ms = now_ms if self._scarce_ms is None else self._scarce_ms
        return now_ms - self._scarce_ms >= patience_ms

    def join(self) -> list[Effect]:
        """From now on the regions share slots: surplus slots are given back."""
        self._layout.join()
        self._scarce_ms = None
        self.pool.needed = self._layout.slots_needed
        self.pool.forget_places()
        extra = self.pool.surplus()
        for held in extra:
            self.pool.remove(held.allocation_id)
        return [
            Declare(self.pool.needed, self._layout.together),
            *(self._orders.free(held.taskmanager_id, held.allocation_id) for held in extra),
        ]

    def found(self, allocations: tuple[tuple[str, str], ...]) -> list[Effect]:
        """Gives back slots that count as the job's and that this master does not hold (those of an earlier
        master, or of a lost offer). Otherwise the resource manager would not allocate others."""
        return [
            self._orders.free(taskmanager_id, allocation_id)
            for taskmanager_id, allocation_id in allocations
            if self.pool.get(allocation_id) is None
        ]

    def waiting_for(self) -> str | None:
        """A sentence about the missing slots; None if there are none."""
        if not self.pool.missing:
            return None
        return waiting_for(self._layout, self.pool.missing, total=self._total, free=self._free)

    # -- the end -------------------------------------------------------------------------

    def give_back(self) -> list[Effect]:
        """Gives back all slots, once."""
        if self._giving_back is not None:
            return []
        frees = [self._orders.free(held.taskmanager_id, held.allocation_id) for held in self.pool.all()]
        self._giving_back = {free.message.command_id for free in frees}
        return list(frees)

    def answered(self, command: Command) -> None:
        """A command has been answered; it may have given a slot back."""
        if self._giving_back is not None:
            self._giving_back.discard(command.message.command_id)

    @property
    def given_back(self) -> bool:
        """Whether all slots have been given back."""
        return self._giving_back is not None and not self._giving_back
