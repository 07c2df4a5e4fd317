"""A random sample of fixed size from a stream of unknown length (Li's algorithm L). Pure but for its random numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

#: Bounds within which logarithms of random numbers are finite.
_LEAST, _HEAVIEST = 1e-300, 1 - 2**-53


class Reservoir:
    """Chooses which rows stay in a sample of at most ``size``. Every row of the stream is in the sample with the same
    probability. The work grows with the logarithm of the stream's length, because rows between two chosen ones are
    skipped without being looked at."""

    def __init__(self, size: int, random: Random) -> None:
        self._size = size
        self._random = random
        self.seen = 0
        #: The position of the next row that is taken.
        self._next = 0
        self._weight = 1.0

    def offer(self, rows: int) -> list[tuple[int, int]]:
        """(place in the sample, row) for the rows of a batch that are taken. Of two with the same place the later one
        counts."""
        start, self.seen = self.seen, self.seen + rows
        taken = []
        while self._next < self.seen:
            place = self._next if self._next < self._size else self._random.randrange(self._size)
            taken.append((place, self._next - start))
            self._next += 1
            if self._next >= self._size:
                self._skip()
        return taken

    def _skip(self) -> None:
        self._weight = min(self._weight * math.exp(self._log() / self._size), _HEAVIEST)
        self._next += math.floor(self._log() / math.log1p(-self._weight))

    def _log(self) -> float:
        return math.log(max(self._random.random(), _LEAST))
