"""Rows that ``jdbc`` has staged for a server: who writes them after a restore, and until when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.jdbc import server_sink
from penstock.connectors.jdbc.servers import server_of
from penstock.errors import ConnectorError
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
SCHEMA = Schema.of(("id", t.IntType()), ("n", t.IntType()))
OPTIONS = {"connector": "jdbc", "url": "jdbc:postgresql://h/db", "table-name": "t"}


class Statements:
    """A table that remembers its transactions."""

    table = "t"
    connection = None

    def __init__(self, table: TableInfo) -> None:
        self.server = server_of(table.options)
        self.done: list[tuple[list[Any], str | None]] = []

    def prepare(self, ctx: Any) -> list[int]:
        return [0]

    def reach(self) -> None: ...
    def make_markers(self) -> None: ...
    def close(self) -> None: ...
    def transaction(self, rows: list[Any], marker: str | None = None, *, skips: bool) -> list[Any]:
        assert not skips
        self.done.append((list(rows), marker))
        return []


def context(now_ms: int = NOW_MS) -> Any:
    async def run(call: Any) -> Any:
        return call()

    return SimpleNamespace(
        schema=SCHEMA, pushed={"keys": [0]}, now_ms=lambda: now_ms, run=run, on_error="fail"
    )


async def staged(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The committables of an epoch with an insertion and a deletion."""
    monkeypatch.setattr(server_sink, "_Statements", Statements)
    writer = server_sink.ExactlyOnceWriter(TableInfo(SCHEMA, OPTIONS))
    await writer.open(context(), [])
    writer.write(Batch.of(SCHEMA, [(1, 10), (2, 20)], kinds=[RowKind.INSERT, RowKind.DELETE]))
    items = await writer.begin_checkpoint(1)
    assert writer._statements.done == []
    return items


ROWS = [(False, (1, 10)), (True, (2,))]


async def test_a_restored_writer_writes_them_with_their_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    items = await staged(monkeypatch)
    writer = server_sink.ExactlyOnceWriter(TableInfo(SCHEMA, OPTIONS))
    await writer.open(context(NOW_MS + 28 * DAY_MS), items)
    assert writer._statements.done == [(ROWS, items[0][:32].decode())]


async def test_they_are_not_lost_if_the_job_writes_at_least_once_from_now_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = await staged(monkeypatch)
    writer = server_sink.ServerWriter(TableInfo(SCHEMA, OPTIONS))
    await writer.open(context(), items)
    assert writer._statements.done == [(ROWS, None)]


async def test_they_are_refused_once_their_marker_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were written a second time."""
    items = await staged(monkeypatch)
    writer = server_sink.ExactlyOnceWriter(TableInfo(SCHEMA, OPTIONS))
    with pytest.raises(ConnectorError, match="staged too long ago"):
        await writer.open(context(NOW_MS + 31 * DAY_MS), items)
    assert writer._statements.done == []
