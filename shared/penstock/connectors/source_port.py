"""What a source implements: splits, their enumerator and reader, and look-ups by key.

A source is split into *splits*. An enumerator (a task of parallelism 1) discovers them
and assigns each to a reader; a reader reads its splits in order, never blocks, and tells its positions. Both
run on the slot's event loop, so network clients may use asyncio.
Blocking work that releases the interpreter's lock goes through ``SourceContext.run``.
"""

# Methods that do nothing by default may be overridden.
# ruff: noqa: B027

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.context import SourceContext
    from penstock.types import Batch


class Split(msgspec.Struct, frozen=True):
    """A part of a source that one reader reads in order.

    Args:
        id: Stable over restarts: a path, a stream and subject.
        payload: Whatever the reader needs to read the split, of JSON types.
        position: None at the start, later the position from ``SourceReader.snapshot``.
    """

    id: str
    payload: dict[str, Any] = {}
    position: Any = None


class SourceEnumerator(ABC):
    """Discovers the splits of a source. The ids of assigned splits are part of checkpoints."""

    @abstractmethod
    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        """The splits whose ids are not in ``known``. ``ctx``: the table and the subtask.

        Called at the start and, if the source is unbounded, every ``discovery_interval_ms``.
        """

    #: Time between two discoveries, ms; None: discover once.
    discovery_interval_ms: int | None = None
    #: Set before ``discover`` if the splits are read much later. Their start is fixed now, so that rows
    #: which expire meanwhile are an error, not a gap.
    pinned: bool = False

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows of one split, in the split's order.

    Args:
        split_id: Id of the split.
        batch: Columns of the projection, then metadata columns. Its ``times`` (int64 µs) are the records' own
            timestamps, where the source has them.
    """

    split_id: str
    batch: Batch


class SourceReader(ABC):
    """Reads assigned splits. All methods run on the data thread and return quickly."""

    async def open(self, ctx: SourceContext) -> None:
        """Connect. ``ctx``: the table and the subtask.

        May raise BrokerError or ConnectorError with what to do.
        """
        self.ctx = ctx

    @abstractmethod
    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read these splits, too, from their positions."""

    @abstractmethod
    def poll(self) -> Fetched | None:
        """The rows that are available now (at most ``batch_rows``), or None. Never waits."""

    @abstractmethod
    async def wait(self) -> None:
        """Wait until ``poll`` may return rows, or a split has finished or caught up."""

    @abstractmethod
    def finished_splits(self) -> set[str]:
        """Ids of the splits that were read to their end; only bounded splits end."""

    def caught_up(self, split_id: str) -> bool:
        """True if the split has nothing left to read at this moment: only then may it be declared idle."""
        return False

    def dormant(self, split_id: str) -> bool:
        """True while the split waits until others are read to their end: it holds no watermark yet."""
        return False

    @abstractmethod
    def snapshot(self) -> list[Split]:
        """Every assigned split, also a finished one, with its position after the last row that ``poll``
        returned."""

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        """The checkpoint ``checkpoint_id`` is complete; ``positions``: the result of ``snapshot`` for it.

        No restore goes back before these positions, so the reader may release earlier rows, or commit the
        positions to a broker.
        """

    async def replay(self, messages: Sequence[Mapping[str, Any]]) -> Batch:
        """The rows of messages that could not be read before, as ``poll`` gives them.

        ``messages``: what the reader gave to ``SourceContext.bad_message`` with them. One that fails again is reported
        again. Only readers that report messages override it.
        """
        raise NotImplementedError

    def away(self) -> str | None:
        """The server that does not answer, and what it said last, without credentials; None: nothing is waited for."""
        return None

    def pending_records(self) -> int | None:
        """The number of records not read yet (lag), for metrics; None: unknown."""
        return None

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""


class LookupSource:
    """Rows of an external table by key, for lookup joins. Runs on the slot's event loop.

    A failure that may pass is raised as ``ExternalError``; the join then retries up to ``lookup.max-retries``
    times. The join caches rows, so the source need not.
    """

    async def open(self, ctx: SourceContext) -> None:
        """Connect. ``ctx.projection``: columns to deliver, the key columns among them."""
        self.ctx = ctx

    async def lookup(self, keys: Batch) -> Batch:
        """All rows whose key columns equal one of ``keys`` (distinct, without NULL; its
        schema names the key columns), in any order."""
        raise NotImplementedError

    async def load(self) -> Batch:
        """The whole table (``lookup.cache`` = ``FULL``)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""
