"""The common part of sources that generate their rows: shares of the readers, a pace, and row numbers as
positions."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types import Batch

#: The time between two steps in which paced readers make rows, ms.
_STEP_MS = 20


class SharesEnumerator(SourceEnumerator):
    """Discovers one split for each reader. Each split is a share of ``total`` rows (None: unbounded)."""

    def __init__(self, total: int | None) -> None:
        self._total = total

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        if known:
            return []
        count, total = ctx.parallelism, self._total
        shares = [None if total is None else (total - i + count - 1) // count for i in range(count)]
        return [Split(f"part-{i}", {"index": i, "of": count, "rows": shares[i]}) for i in range(count)]


@dataclass(slots=True)
class Share:
    """The rows of one split. Row i of the split is row i * ``of`` + ``index`` of the table."""

    split: Split
    index: int
    of: int
    #: ``row``: rows made so far; ``rows``: rows of the split, None: unbounded.
    row: int
    rows: int | None
    #: The time at which this attempt made its first row; the next field has that row's number. Both are for
    #: pacing.
    started_ms: int
    first: int

    @property
    def done(self) -> bool:
        """Whether all rows were made."""
        return self.rows is not None and self.row >= self.rows


class PacedReader(SourceReader):
    """Makes the rows of its splits at ``rows_per_second`` of all readers together; 0: no limit."""

    def __init__(self, rows_per_second: int) -> None:
        self._pace = rows_per_second
        self._shares: dict[str, Share] = {}
        self._added = asyncio.Event()

    @abstractmethod
    def make(self, share: Share, most: int) -> Batch:
        """The next rows of a split, at least one and at most ``most``."""

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            row, of = split.position or 0, split.payload["of"]
            self._shares[split.id] = Share(
                split, split.payload["index"], of, row, split.payload["rows"], self.ctx.now_ms(), row
            )
        self._added.set()

    def poll(self) -> Fetched | None:
        for share in list(self._shares.values()):
            count = min(self._due(share), self.ctx.batch_rows)
            if count <= 0:
                continue
            batch = self.make(share, count)
            share.row += len(batch)
            # The next poll begins with another split.
            self._shares[share.split.id] = self._shares.pop(share.split.id)
            return Fetched(share.split.id, batch)
        return None

    def _due(self, share: Share) -> int:
        """Rows that may be made now."""
        left = 1 << 62 if share.rows is None else share.rows - share.row
        if not self._pace:
            return left
        elapsed_ms = self.ctx.now_ms() - share.started_ms + _STEP_MS
        allowed = elapsed_ms * self._pace // (1000 * share.of) - (share.row - share.first)
        return max(0, min(left, allowed))

    async def wait(self) -> None:
        if all(s.done for s in self._shares.values()):
            self._added.clear()
            await self._added.wait()
        elif not any(self._due(s) for s in self._shares.values()):
            await asyncio.sleep(_STEP_MS / 1000)

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._shares.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        return not self._due(self._shares[split_id])

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s.split, position=s.row) for s in self._shares.values()]
