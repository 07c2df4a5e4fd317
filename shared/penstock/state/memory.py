"""The memory that the state of one slot may use, and how much each operator uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ExternalError
from penstock.state.allocators import release_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.process_memory import ProcessMemory

#: Above this multiple of the limit the slot fails, because eviction did not help.
HARD = 2.0
#: Above this multiple of the limit every holder that can evict does so, not only the largest.
_ALL = 1.25
#: Free memory goes back to the system when one part in so many of the limit was moved to the disk or back: what is
#: moved is in memory several times meanwhile, and allocators keep that.
_MOVED_SHARE = 16
#: … but not before so many bytes were moved.
_LEAST_MOVED = 1 << 20
#: The share, if nobody looks at what the process takes.
_MOVED_SHARE_UNSEEN = 2
#: How many holders an error names.
_NAMED = 3


@dataclass(slots=True, eq=False)
class Holder:
    """One user of the memory. ``nbytes()``: bytes that it uses; ``evicts``: whether it can move state to the
    disk."""

    name: str
    nbytes: Callable[[], int]
    evicts: bool


class StateMemory:
    """The memory account of a slot, shared by its operators.

    Args:
        limit_bytes: Bytes that may be counted; 0: no limit.
        process: Holds what the process takes near the limit as well; None: only what is counted is limited.
    """

    def __init__(self, limit_bytes: int = 0, process: ProcessMemory | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._process = process if limit_bytes else None
        self._holders: list[Holder] = []
        #: Bytes moved since free memory was last given back, and at how many that is done.
        self._moved = 0
        self._most_moved = (
            limit_bytes // _MOVED_SHARE_UNSEEN
            if self._process is None
            else max(limit_bytes // _MOVED_SHARE, _LEAST_MOVED)
        )

    def add(self, name: str, nbytes: Callable[[], int], *, evicts: bool = False) -> Holder:
        """Adds a holder. ``nbytes()``: bytes in use, called with every batch. ``evicts``: the holder calls
        ``excess`` regularly and evicts as much."""
        holder = Holder(name, nbytes, evicts)
        self._holders.append(holder)
        return holder

    def remove(self, holder: Holder) -> None:
        """Removes a holder, if it is there."""
        if holder in self._holders:
            self._holders.remove(holder)

    def counted(self) -> int:
        """Bytes that all holders say they hold."""
        return sum(holder.nbytes() for holder in self._holders)

    def excess(self, holder: Holder) -> int:
        """How many bytes this holder should evict now.

        The largest holder that can evict should evict all bytes above the limit. The others evict only if
        the limit is exceeded by far, because the largest one may be idle.
        """
        if not self.limit_bytes:
            return 0
        sizes = {h: h.nbytes() for h in self._holders}
        total = sum(sizes.values())
        allowed = self.limit_bytes if self._process is None else self._process.allowed(total)
        if total <= allowed:
            return 0
        largest = max((h for h in self._holders if h.evicts), key=lambda h: sizes[h], default=holder)
        return max(0, total - int(allowed * (1.0 if largest is holder else _ALL)))

    def moved(self, nbytes: int) -> None:
        """Records that ``nbytes`` of rows were moved to the disk or came back. Gives free memory back to the system
        when that is much, if the process takes too much."""
        self._moved += nbytes
        if self.limit_bytes and self._moved > self._most_moved:
            self._moved = 0
            if self._process is None:
                release_memory()
            else:
                self._process.relieve()

    def check(self) -> None:
        """Raises ExternalError if far too much memory is used. Called after eviction."""
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
