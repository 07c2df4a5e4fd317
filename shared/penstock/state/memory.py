"""The memory that the state of one slot may take, and who holds how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ExternalError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Above the limit by this factor the slot fails: it was to be evicted and could not.
HARD = 2.0
#: Above the limit by this factor whoever can evict does, not only the largest.
_ALL = 1.25
#: Holders that an error names.
_NAMED = 3


@dataclass(slots=True, eq=False)
class Holder:
    name: str
    nbytes: Callable[[], int]
    evicts: bool


class StateMemory:
    """``limit_bytes``: 0 = none. Shared by the operators of a slot."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._holders: list[Holder] = []

    def add(self, name: str, nbytes: Callable[[], int], *, evicts: bool = False) -> Holder:
        """``nbytes``: of what is in use; it is asked with every batch. ``evicts``: it asks
        ``excess`` again and again, and gives up as much."""
        holder = Holder(name, nbytes, evicts)
        self._holders.append(holder)
        return holder

    def remove(self, holder: Holder) -> None:
        if holder in self._holders:
            self._holders.remove(holder)

    def excess(self, holder: Holder) -> int:
        """Bytes that this holder should evict now: all that is too much, when it is the
        largest that can; what is far too much, whoever it is: the largest may be idle."""
        if not self.limit_bytes:
            return 0
        sizes = {h: h.nbytes() for h in self._holders}
        total = sum(sizes.values())
        if total <= self.limit_bytes:
            return 0
        largest = max((h for h in self._holders if h.evicts), key=lambda h: sizes[h])
        return max(0, total - int(self.limit_bytes * (1.0 if largest is holder else _ALL)))

    def check(self) -> None:
        """ExternalError when far too much is held: asked after what could be evicted was."""
        if not self.limit_bytes:
            return
        sizes = {h: h.nbytes() for h in self._holders}
        total = sum(sizes.values())
        if total > HARD * self.limit_bytes:
            raise self._too_much(sizes, total)

    def _too_much(self, sizes: dict[Holder, int], total: int) -> ExternalError:
        largest = sorted(sizes, key=lambda h: -sizes[h])[:_NAMED]
        held = ", ".join(f"{h.name}: {sizes[h] / 1e6:.1f} MB" for h in largest)
        return ExternalError(
            "the state of a slot takes too much memory",
            expected=f"about {self.limit_bytes / 1e6:.1f} MB, at most {HARD:g} times as much",
            got=f"{total / 1e6:.1f} MB; the largest holders are {held}",
            where="state.backend.memory.per-slot",
            remedy="raise the limit, use more slots, or give the state a time to live",
        )
