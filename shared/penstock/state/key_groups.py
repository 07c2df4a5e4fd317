"""Sets of key groups, and the key groups that a store of keyed state has given to another subtask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.types.column import Column

#: How many key groups an error names.
_NAMED = 8


class KeyGroups:
    """An immutable set of key groups out of 0 … ``max_parallelism`` − 1."""

    __slots__ = ("_has",)

    def __init__(self, groups: Iterable[int], max_parallelism: int) -> None:
        self._has = np.zeros(max_parallelism, np.bool_)
        self._has[list(groups)] = True

    @classmethod
    def range(cls, first: int, last: int, max_parallelism: int) -> KeyGroups:
        """The key groups from ``first`` to ``last``, inclusive; none if ``first`` is above ``last``."""
        return cls(range(first, last + 1), max_parallelism)

    @classmethod
    def all(cls, max_parallelism: int) -> KeyGroups:
        """All key groups."""
        return cls(range(max_parallelism), max_parallelism)

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the job."""
        return len(self._has)

    def __len__(self) -> int:
        return int(self._has.sum())

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._has).tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyGroups) and bool(np.array_equal(self._has, other._has))

    def __hash__(self) -> int:
        return hash(self._has.tobytes())

    def __or__(self, other: KeyGroups) -> KeyGroups:
        return self._made(self._has | other._has)

    def __and__(self, other: KeyGroups) -> KeyGroups:
        return self._made(self._has & other._has)

    def __sub__(self, other: KeyGroups) -> KeyGroups:
        return self._made(self._has & ~other._has)

    def __repr__(self) -> str:
        return f"KeyGroups({list(self)}, {self.max_parallelism})"

    def holds(self, keys: Sequence[Column], n: int) -> np.ndarray:
        """For each row, whether the key group of its key is in the set (bool).

        ``keys``: the columns by which the input is partitioned, in their order; ``n``: the number of rows.
        Without columns all rows are in group 0.
        """
        hashes = hash_columns(keys) if keys else np.zeros(n, np.uint64)
        return self._has[key_groups(hashes, self.max_parallelism)]

    @staticmethod
    def _made(has: np.ndarray) -> KeyGroups:
        return KeyGroups(np.flatnonzero(has).tolist(), len(has))


class GivenAway:
    """The key groups that a store has given away. It refuses requests for their keys, and frees their rows in
    slices.

    ``sweep(groups)`` frees all rows of these groups, in steps of about a millisecond. ``where`` names the
    store in errors.
    """

    __slots__ = ("_sweep", "_where", "_work", "any", "groups")

    def __init__(
        self, max_parallelism: int, sweep: Callable[[KeyGroups], Iterator[None]], *, where: str
    ) -> None:
        self.groups = KeyGroups((), max_parallelism)
        self._sweep, self._where = sweep, where
        #: Whether any group is masked. It is read with every batch.
        self.any = False
        self._work: Iterator[None] | None = None

    def mask(self, groups: KeyGroups) -> None:
        """From now on keys of these groups are refused."""
        self.finish()
        self.groups |= groups
        self.any = len(self.groups) > 0
        self._work = self._sweep(groups)

    def drop(self, more: Callable[[], bool]) -> bool:
        """Frees rows of masked groups while ``more()`` is True. Returns whether none are left."""
        while self._work is not None:
            if not more():
                return False
            if next(self._work, _DONE) is _DONE:
                self._work = None
        return True

    def finish(self) -> None:
        """Frees all rows that are left. A caller that reads by time, or reads everything, calls this first."""
        if self._work is not None:
            self.drop(lambda: True)

    def take_back(self, groups: KeyGroups) -> None:
        """These groups belong to the store from now on."""
        self.finish()
        self.groups -= groups
        self.any = len(self.groups) > 0

    def refuse(self, keys: Sequence[Column], n: int) -> None:
        """Raises InternalError if one of these keys was given away. Costs nothing until a group is masked."""
        if self.any and (gone := self.groups.holds(keys, n)).any():
            raise self._refused(f"{int(gone.sum())} of {n} rows")

    def refuse_groups(self, groups: KeyGroups) -> None:
        """Raises InternalError if one of these groups was given away."""
        if len(gone := self.groups & groups):
            raise self._refused(f"a request for the groups {_some(gone)}")

    def _refused(self, got: str) -> InternalError:
        return InternalError(
            "keyed state was asked for keys that it has given away",
            expected=f"no key of the groups {_some(self.groups)}, which another subtask owns",
            got=got,
            where=self._where,
            remedy="this is a defect of Penstock: rows of these keys were sent to their former owner",
        )


def _some(groups: KeyGroups) -> str:
    named = list(groups)[:_NAMED]
    return ", ".join(map(str, named)) + (", …" if len(groups) > _NAMED else "")


_DONE = object()
