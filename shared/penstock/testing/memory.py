"""The connector ``memory``: tables in the test's process, as source and as exactly-once sink.

Register rows with ``MemoryTable(name, schema, splits)`` and use ``'connector' = 'memory',
'name' = name``. A source waits at ``pause_at`` until ``release`` and, unless bounded,
stays open at its end. A sink's rows become visible in ``committed`` when a checkpoint
completes, once per (subtask, checkpoint): commits are repeatable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from penstock.connectors.base import (
    Connector,
    Fetched,
    SinkWriter,
    SourceEnumerator,
    SourceReader,
    Split,
    TableInfo,
)
from penstock.connectors.cutting import first_rows
from penstock.connectors.registry import register
from penstock.errors import ConnectorError, nearest
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from penstock.connectors.base import SourceContext, SourceMode
    from penstock.types.logical import Schema


class MemoryTable:
    """A table in this process, as source or sink: ``'connector' = 'memory', 'name' = …``.

    Args:
        name: Its name in the option ``name``.
        schema: Its columns.
        splits: ``splits[i]``: the batches of split i, read in order.
        bounded: Whether the source ends.
        batch_rows: Rows that a reader gives at a time; None: all.
        changelog: The changelog of the source (``Connector.source_mode``); the batches must have kinds
            accordingly.
    """

    tables: ClassVar[dict[str, MemoryTable]] = {}

    def __init__(
        self,
        name: str,
        schema: Schema,
        splits: Sequence[Sequence[Batch]] = (),
        *,
        bounded: bool = True,
        batch_rows: int | None = None,
        changelog: SourceMode = "append",
    ) -> None:
        self.name = name
        self.schema = schema
        self.changelog = changelog
        self.splits = [Batch.concat(list(s)) if s else Batch.empty(schema) for s in splits]
        self.bounded = bounded
        self.batch_rows = batch_rows
        #: Rows of each split that may be read now (None = all).
        self.limit: int | None = None
        #: Rows that readers took so far, those read again after a restore included.
        self.rows_read = 0
        #: (subtask, checkpoint id) → rows.
        self.commits: dict[tuple[int, int, int], list[tuple[Any, tuple[Any, ...]]]] = {}
        self._readers: list[MemoryReader] = []
        self.tables[name] = self
        register(_CONNECTOR)

    def release(self, limit: int | None = None) -> None:
        """Let readers continue up to row ``limit`` of each split."""
        self.limit = limit
        for reader in self._readers:
            reader.changed.set()

    def read_to_limit(self) -> bool:
        """Whether readers have reached the limit, or the end, of every split."""
        at = {split_id: p for reader in self._readers for split_id, p in reader._at.items()}
        ends = {split_id: reader._end(split_id) for reader in self._readers for split_id in reader._at}
        return len(at) == len(self.splits) and all(at[split_id] >= end for split_id, end in ends.items())

    @property
    def committed(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """(kind, row) of everything visible, in order of commit."""
        return [row for rows in self.commits.values() for row in rows]

    def committed_rows(self) -> list[tuple[Any, ...]]:
        """The rows of everything visible, without their kinds."""
        return [row for _, row in self.committed]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> MemoryTable:
        """The table that ``options`` name.

        Raises:
            ConnectorError: There is none in this process.
        """
        name = options.get("name", "")
        if name not in cls.tables:
            raise ConnectorError(
                f"no memory table '{name}' in this process",
                expected="a MemoryTable made before",
                got=repr(name),
                remedy=nearest(name, cls.tables),
            )
        return cls.tables[name]


class MemoryEnumerator(SourceEnumerator):
    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        splits = [Split(f"{self._table.name}-{i:04d}", {"index": i}) for i in range(len(self._table.splits))]
        return [s for s in splits if s.id not in known]


class MemoryReader(SourceReader):
    def __init__(self, table: MemoryTable) -> None:
        self._table = table
        self._splits: dict[str, Split] = {}
        self._at: dict[str, int] = {}
        self._turn = 0
        self.changed = asyncio.Event()
        table._readers.append(self)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._splits[split.id] = split
            self._at[split.id] = int(split.position or 0)
        self.changed.set()

    def _end(self, split_id: str) -> int:
        n: int = self._table.splits[self._splits[split_id].payload["index"]].num_rows
        return n if self._table.limit is None else min(n, self._table.limit)

    def poll(self) -> Fetched | None:
        ids = sorted(self._splits)
        for step in range(len(ids)):
            split_id = ids[(self._turn + step) % len(ids)]
            at, end = self._at[split_id], self._end(split_id)
            if at < end:
                self._turn += step + 1
                rows = self._table.splits[self._splits[split_id].payload["index"]]
                batch = first_rows(rows.slice(at, end - at), self._table.batch_rows or self.ctx.batch_rows)
                self._at[split_id] = at + batch.num_rows
                self._table.rows_read += batch.num_rows
                return Fetched(split_id, batch.select(list(self.ctx.projection)))
        self.changed.clear()
        return None

    async def wait(self) -> None:
        await self.changed.wait()

    def finished_splits(self) -> set[str]:
        if not self._table.bounded:
            return set()
        sizes = {i: self._table.splits[s.payload["index"]].num_rows for i, s in self._splits.items()}
        return {i for i, at in self._at.items() if at >= sizes[i]}

    def caught_up(self, split_id: str) -> bool:
        return self._at[split_id] >= self._end(split_id)

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s, position=self._at[i]) for i, s in self._splits.items()]

    async def close(self) -> None:
        self._table._readers.remove(self)


class MemoryWriter(SinkWriter):
    """Writes into a ``MemoryTable``. A committable only names its rows, which stay in the table's process,
    because JSON would not keep their types."""

    _staged: ClassVar[dict[bytes, list[tuple[Any, tuple[Any, ...]]]]] = {}

    def __init__(self, table: MemoryTable) -> None:
        self._table = table
        self._epoch: list[tuple[Any, tuple[Any, ...]]] = []
        self._pending: dict[int, bytes] = {}

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        for item in restored:
            self._make_visible(item)

    def write(self, batch: Batch) -> None:
        self._epoch.extend(batch.rows())

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        name = f"{self._table.name}:{self.ctx.attempt}:{self.ctx.subtask_index}:{checkpoint_id}".encode()
        self._staged[name] = self._epoch
        self._epoch = []
        self._pending[checkpoint_id] = name

        async def durable() -> list[bytes]:
            # Epochs of checkpoints that never completed belong to this checkpoint, too.
            return list(self._pending.values())

        return durable()

    async def commit(self, checkpoint_id: int) -> None:
        for done in sorted(i for i in self._pending if i <= checkpoint_id):
            self._make_visible(self._pending.pop(done))

    def _make_visible(self, name: bytes) -> None:
        _, attempt, subtask, checkpoint = name.decode().rsplit(":", 3)
        key = (int(attempt), int(subtask), int(checkpoint))
        self._table.commits.setdefault(key, self._staged[name])


class MemoryConnector(Connector):
    name = "memory"
    #: The rows are in this process, so Spark's driver reads and writes them itself.
    in_process = True
    options = {
        "connector": ("'memory'", None, True),
        "name": ("A MemoryTable of this process.", None, True),
    }

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        MemoryTable.of(table.options)

    def is_bounded(self, table: TableInfo) -> bool:
        return MemoryTable.of(table.options).bounded

    def source_mode(self, table: TableInfo) -> SourceMode:
        return MemoryTable.of(table.options).changelog

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert", "retract")

    def enumerator(self, table: TableInfo) -> MemoryEnumerator:
        return MemoryEnumerator(MemoryTable.of(table.options))

    def reader(self, table: TableInfo) -> MemoryReader:
        return MemoryReader(MemoryTable.of(table.options))

    def writer(self, table: TableInfo) -> MemoryWriter:
        return MemoryWriter(MemoryTable.of(table.options))


_CONNECTOR = MemoryConnector()
register(_CONNECTOR)
