"""``simulated``: the systems outside of the cluster, as source and as two-phase sink.

A source's splits hold rows made from the workload's declaration; row i of a split is there
from ``i * every_ms`` after the world began, and can be read again at any time. A sink stages
rows under the name of a transaction when a checkpoint is taken and shows them when it is
committed; committing a name again does nothing. Requests take time, and their answers may
be lost with the process that asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal

import msgspec

from penstock.connectors.base import (
    Connector,
    Fetched,
    SinkWriter,
    SourceContext,
    SourceEnumerator,
    SourceReader,
    Split,
    TableInfo,
)
from penstock.connectors.registry import register
from penstock.errors import ConnectorError, ExternalError
from penstock.testing.simulation import World
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

Row = tuple[Any, ...]
#: One way to the outside, and what a request costs there (seconds).
DELAY_S = (0.001, 0.01)
_FIRST_TIME = datetime(2025, 1, 1)
_WITH_ZONE = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Committed:
    """Rows of one transaction, shown at ``at_s``."""

    sink: str
    transaction: str
    at_s: float
    rows: tuple[tuple[RowKind, Row], ...]


@dataclass
class Outside:
    """What lies outside of the cluster in one world. ``on_commit`` is told before rows
    are shown. ``fail``: probability that a request fails."""

    world: World
    sources: Mapping[str, Any]
    staged: dict[str, tuple[tuple[RowKind, Row], ...]] = field(default_factory=dict)
    committed: list[Committed] = field(default_factory=list)
    on_commit: list[Callable[[Committed], None]] = field(default_factory=list)
    fail: float = 0.0
    _done: set[str] = field(default_factory=set)

    now: ClassVar[Outside]

    def rows_of(self, sink: str) -> list[tuple[RowKind, Row]]:
        return [row for c in self.committed if c.sink == sink for row in c.rows]

    def rows_in_time(self, source: str) -> list[tuple[float, int, dict[str, Any]]]:
        """(when it is there, split, row) of all rows, in that order."""
        table = self.sources[source]
        every_s, columns = float(table["every_ms"]) / 1000, table["columns"]
        return [
            (every_s * (i + 1), split, {name: _value(how, split, i) for name, how in columns.items()})
            for i in range(int(table["rows"]))
            for split in range(int(table["splits"]))
        ]

    async def request(self, apply: Callable[[], None]) -> None:
        """There and back; the asking process may die meanwhile."""
        world = self.world
        process = world.current
        assert process is not None
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def back() -> None:
            if not answer.done():
                answer.set_result(None)

        def there() -> None:
            if world.random.random() < self.fail:
                error = ExternalError("the simulated outside failed", remedy="try again")
                process.loop.call_soon(lambda: answer.done() or answer.set_exception(error))
                return
            apply()
            world.after(world.random.uniform(*DELAY_S), lambda: process.loop.call_soon(back))

        world.after(world.random.uniform(*DELAY_S), there)
        await answer

    def stage(self, transaction: str, rows: tuple[tuple[RowKind, Row], ...]) -> None:
        self.world.trace("outside", "staged", f"{transaction} {len(rows)}")
        self.staged[transaction] = rows

    def commit(self, transaction: str) -> None:
        if transaction in self._done:
            return
        if transaction not in self.staged:
            self.world.violated(f"commit of a transaction that was never staged: {transaction}")
            return
        self._done.add(transaction)
        sink = transaction.split("/", 1)[0]
        done = Committed(sink, transaction, self.world.now_s, self.staged.pop(transaction))
        self.world.trace("outside", "committed", f"{transaction} {len(done.rows)}")
        for listener in self.on_commit:
            listener(done)
        self.committed.append(done)


# -- the source ----------------------------------------------------------------------------


def make_rows(table: Mapping[str, Any], schema: Schema, split: int) -> Batch:
    """All rows of a split. ``columns``: name → how its values come, see the page."""
    n = int(table["rows"])
    columns = [[_value(table["columns"][f.name], split, i) for i in range(n)] for f in schema.fields]
    return Batch.of(schema, list(zip(*columns, strict=True)))


def _value(how: Mapping[str, Any], split: int, i: int) -> Any:
    match how:
        case {"serial": start}:
            return start + split * 1_000_000 + i
        case {"cycle": n, **more}:
            return (i * int(more.get("step", 7)) + split * int(more.get("split", 1))) % n
        case {"time_ms": step, **more}:
            first = _WITH_ZONE if more.get("zone") else _FIRST_TIME
            jitter = (i * 37) % int(more.get("jitter_ms", 1) or 1)
            return first + timedelta(milliseconds=i * step + int(more.get("offset_ms", 0)) - jitter)
        case {"text": n}:
            return f"k{(i * 5 + split) % n}"
        case _:
            raise ConnectorError("unknown kind of column", got=json.dumps(how))


class Enumerator(SourceEnumerator):
    def __init__(self, name: str) -> None:
        self._name = name

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        table = Outside.now.sources[self._name]
        await Outside.now.request(lambda: None)
        splits = [Split(f"{self._name}-{i}", {"index": i}) for i in range(int(table["splits"]))]
        return [split for split in splits if split.id not in known]


_made: dict[tuple[str, int, Any], Batch] = {}


class Reader(SourceReader):
    def __init__(self, table: TableInfo) -> None:
        self._name = table.options["name"]
        self._schema = table.schema
        self._declared = Outside.now.sources[self._name]
        self._rows: dict[str, Batch] = {}
        self._splits: dict[str, Split] = {}
        self._at: dict[str, int] = {}
        self._every_s = float(self._declared.get("every_ms", 0)) / 1000
        self._changed = asyncio.Event()

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            index = split.payload["index"]
            key = (self._name, index, json.dumps(self._declared, sort_keys=True))
            if key not in _made:
                _made[key] = make_rows(self._declared, self._schema, index)
            self._rows[split.id] = _made[key]
            self._splits[split.id] = split
            self._at[split.id] = int(split.position or 0)
        self._changed.set()

    def _there(self, split_id: str) -> int:
        """Rows that have been written so far."""
        total = self._rows[split_id].num_rows
        if not self._every_s:
            return total
        return min(total, int(Outside.now.world.now_s / self._every_s))

    def poll(self) -> Fetched | None:
        for split_id in sorted(self._splits):
            at, there = self._at[split_id], self._there(split_id)
            if at < there:
                n = min(there - at, int(self._declared.get("batch", 16)))
                self._at[split_id] = at + n
                batch = self._rows[split_id].slice(at, n).select(list(self.ctx.projection))
                return Fetched(split_id, batch)
        return None

    async def wait(self) -> None:
        self._changed.clear()
        pause_s = 0.05
        if self._every_s:
            pause_s = max(pause_s, self._every_s)
        try:
            async with asyncio.timeout(pause_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def finished_splits(self) -> set[str]:
        return {i for i, at in self._at.items() if at >= self._rows[i].num_rows}

    def caught_up(self, split_id: str) -> bool:
        return self._at[split_id] >= self._there(split_id)

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s, position=self._at[i]) for i, s in self._splits.items()]


# -- the sink ------------------------------------------------------------------------------


class Writer(SinkWriter):
    """A committable is a list of names of transactions: sink/job/subtask/attempt/checkpoint."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._epoch: list[tuple[RowKind, Row]] = []
        self._pending: dict[int, list[str]] = {}

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        for item in restored:
            for name in json.loads(item):
                await self._commit(name)

    def write(self, batch: Batch) -> None:
        self._epoch.extend(batch.rows())

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        rows, self._epoch = tuple(self._epoch), []
        ctx = self.ctx
        name = f"{self._name}/{ctx.job_id}/{ctx.subtask_index}/{ctx.attempt}/{checkpoint_id}"
        if rows:
            self._pending.setdefault(checkpoint_id, []).append(name)
        # What an aborted checkpoint staged belongs to this one too.
        names = [name for names in self._pending.values() for name in names]

        async def durable() -> list[bytes]:
            if rows:
                await Outside.now.request(lambda: Outside.now.stage(name, rows))
            # As one entry: in their order, by whoever restores them.
            return [json.dumps(names).encode()] if names else []

        return durable()

    async def commit(self, checkpoint_id: int) -> None:
        for done in sorted(i for i in self._pending if i <= checkpoint_id):
            for name in self._pending[done]:
                await self._commit(name)
            del self._pending[done]

    async def _commit(self, name: str) -> None:
        await Outside.now.request(lambda: Outside.now.commit(name))

    def needs_commit(self) -> bool:
        return bool(self._epoch or self._pending)


class SimulatedConnector(Connector):
    name = "simulated"
    options = {
        "connector": ("'simulated'", None, True),
        "name": ("A source or sink of the workload.", None, True),
    }

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None: ...

    def is_bounded(self, table: TableInfo) -> bool:
        return True

    def sink_guarantee(self, table: TableInfo) -> str:
        return "exactly-once"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert", "retract")

    def enumerator(self, table: TableInfo) -> Enumerator:
        return Enumerator(table.options["name"])

    def reader(self, table: TableInfo) -> Reader:
        return Reader(table)

    def writer(self, table: TableInfo) -> Writer:
        return Writer(table.options["name"])


register(SimulatedConnector())
