"""The keys of a batch while an operator works on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from penstock.state.key_space import KeySpace
    from penstock.types.column import Column

_NONE = np.empty(0, np.int64)


class Touched:
    """``with space.touch(key columns, rows) as keys``: inside the block all rows of these keys are in memory
    and stay there.

    ``slots``: int64, the key slot of each row. ``new``: slots of keys that had no row anywhere.
    ``written``: slots whose time to live begins again; set it if these are not all. ``free`` removes keys
    with their rows at the end of the block; after an error nothing is removed. Collect outputs inside and
    yield them after the block: a generator that is suspended inside would leave the keys half changed.
    """

    __slots__ = ("_came", "_columns", "_gone", "_n", "_space", "new", "slots", "written")

    def __init__(self, space: KeySpace, columns: Sequence[Column], n: int) -> None:
        self._space, self._columns, self._n = space, columns, n
        self.slots = self.new = self._gone = _NONE
        self._came = 0
        self.written: np.ndarray | None = None

    def __enter__(self) -> Self:
        space = self._space
        if space.given.any:
            space.given.refuse(space.stored_keys(self._columns)[0], self._n)
        self.slots, made = space.upsert(self._columns, self._n)
        self._came = len(made)
        self.new = space.fetch(made)
        return self

    @property
    def came_back(self) -> bool:
        """Whether rows of some of these keys were on disk."""
        return len(self.new) < self._came

    def free(self, slots: np.ndarray) -> None:
        """Removes these keys (each listed once) at the end of the block."""
        self._gone = np.concatenate((self._gone, slots)) if len(self._gone) else slots

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        space, pinned = self._space, self._pinned()
        space.ttl.touch(pinned if self.written is None else self.written, space.high)
        if len(self._gone):
            space.free(self._gone)
        if space.counted:
            space.free_unused(self.slots)
        space.tier.used(pinned)
        space.tier.make_room(self._came)

    def _pinned(self) -> np.ndarray:
        """The slots, with repeats."""
        return self.slots
