"""A changelog applied to a table row by row: a gap, a double or a wrong order is an error at the row where it shows."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec

from penstock.connectors.base import SourceContext, Split, TableInfo
from penstock.metrics import MetricGroup
from penstock.types import Schema
from penstock.types.batch import RowKind


class Replayed:
    """The table that a changelog of kinds says there is. ``key``: index of the key's column."""

    def __init__(self, key: int = 0) -> None:
        self.key = key
        self.rows: dict[Any, tuple[Any, ...]] = {}

    def apply(self, kind: RowKind, row: tuple[Any, ...]) -> None:
        key = row[self.key]
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            assert key not in self.rows, f"{kind.short} {row}, but there is {self.rows[key]}"
            self.rows[key] = row
        else:
            assert self.rows.pop(key, None) == row, f"{kind.short} {row} is not the row that is there"

    def copy(self) -> Replayed:
        made = Replayed(self.key)
        made.rows = dict(self.rows)
        return made


def context(schema: Schema, given: dict[str, str], **more: Any) -> SourceContext:
    def bad_record(error: Exception, raw: bytes | None, where: str) -> None:
        raise error

    async def run(f: Any) -> Any:
        return f()

    words: dict[str, Any] = {
        "job_id": "job", "uid": "source", "subtask_index": 0, "parallelism": 1, "attempt": 1, "options": given,
        "schema": schema, "projection": range(len(schema)), "metadata": (), "pushed": {}, "config": {},
        "metrics": MetricGroup(), "on_error": "fail", "run": run, "now_ms": lambda: int(time.time() * 1000),
        "bad_record": bad_record,
    }  # fmt: skip
    return SourceContext(**(words | more))


class Reading:
    """A reader of a table in this process, without a helper, and what it has given."""

    def __init__(self, connector: Any, schema: Schema, given: dict[str, str], **more: Any) -> None:
        self.connector = connector
        self.table = TableInfo(schema, given)
        self.more = more
        self.schema, self.options = schema, given
        self.splits: list[Split] = []
        self.reader: Any = None

    async def start(self) -> None:
        """From the beginning, or from ``splits``."""
        connector, ctx = self.connector, context(self.schema, self.options, **self.more)
        if not self.splits:
            enumerator = connector.enumerator(self.table)
            self.splits = list(await enumerator.discover(ctx, set()))
        self.reader = connector.reader(self.table)
        await self.reader.open(ctx)
        self.reader.add_splits(self.splits)

    def position(self) -> list[Split]:
        """As a checkpoint would keep it: through JSON."""
        return [msgspec.convert(json.loads(msgspec.json.encode(s)), Split) for s in self.reader.snapshot()]

    async def rows(
        self, most: int | None = None, *, patience: int = 200
    ) -> list[tuple[RowKind, tuple[Any, ...]]]:
        """``most`` rows or more; None: until the reader has caught up."""
        found: list[tuple[RowKind, tuple[Any, ...]]] = []
        while most is None or len(found) < most:
            fetched = self.reader.poll()
            if fetched is not None:
                found += fetched.batch.rows()
            elif most is None and (self.reader.caught_up("changes") or self.reader.finished_splits()):
                return found
            else:
                await asyncio.wait_for(self.reader.wait(), 60)
        return found

    async def until(self, done: Any) -> list[tuple[RowKind, tuple[Any, ...]]]:
        """Rows until ``done(rows)``."""
        found: list[tuple[RowKind, tuple[Any, ...]]] = []
        while not done(found):
            found += await self.rows(1)
        return found

    async def stop(self) -> None:
        await self.reader.close()
