"""Joins by event time whose one input has no rows for a while: a folder that is watched, beside a file that ends."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.sql.session import SqlSession
from penstock.testing import JobHarness
from penstock.testing.harness import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

RATES = [("a", 2, "2024-01-01 00:00:00"), ("a", 3, "2024-01-01 01:00:00")]
TABLES = """
CREATE TABLE orders (id INT, item STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'filesystem', 'path' = '{folder}/orders', 'format' = 'json', 'source.monitor-interval' = '10 ms');
CREATE TABLE rates (item STRING, rate INT, rts TIMESTAMP(3), PRIMARY KEY (item) NOT ENFORCED, WATERMARK FOR rts AS rts)
WITH ('connector' = 'filesystem', 'path' = '{folder}/rates', 'format' = 'json');
"""
TEMPORAL = (
    "SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.item = r.item"
)
INTERVAL = """SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates AS r
ON o.item = r.item AND r.rts BETWEEN o.ts - INTERVAL '1' HOUR AND o.ts"""


def written(path: Path, rows: list[dict[str, Any]]) -> None:
    """The file as a whole, so that no reader sees a part of it."""
    path.with_name(f".{path.name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path.with_name(f".{path.name}").rename(path)


async def fed(folder: Path, query: str, config: dict[str, str]) -> tuple[list[tuple], list[tuple]]:
    """The rows before and after the end, where a file of orders, an hour later, comes when the one before has been read."""
    for name in ("orders", "rates"):
        (folder / name).mkdir()
    written(folder / "rates" / "r.json", [dict(zip(("item", "rate", "rts"), r, strict=True)) for r in RATES])
    session = SqlSession({"parallelism.default": "1", "execution.runtime-mode": "STREAMING", **config})
    for _ in session.run_script(TABLES.format(folder=folder)):
        pass
    async with JobHarness(session.execute(query).job.job_graph) as job:
        names = {name: task.vertex.name for name, task in job.deployment.tasks.items()}
        source = next(name for name, vertex in names.items() if vertex == "Source: orders")
        await job.until(lambda: "Source: rates: FINISHED" in job.describe())
        for hour in range(3):
            written(
                folder / "orders" / f"{hour}.json",
                [{"id": hour, "item": "a", "ts": f"2024-01-01 0{hour}:10:00"}],
            )
            await job.until(lambda read=hour + 1: job.metrics()[source].records_out == read)
        async with asyncio.timeout(PATIENCE_S):
            while len(rows := (await job.result()).rows) < 2:  # noqa: ASYNC110 (the store tells nobody)
                await asyncio.sleep(0.01)
        await job.stop(drain=True)
        return sorted(rows), sorted((await job.result()).rows)


@pytest.mark.parametrize(
    "config", [{}, {"table.exec.source.idle-timeout": "0"}], ids=["default", "never-idle"]
)
@pytest.mark.parametrize("query", [TEMPORAL, INTERVAL], ids=["temporal", "interval"])
async def test_a_join_waits_for_the_first_file_of_a_folder(tmp_path, query, config):
    """The file of rates ends before the first order has come: no order is late, and each comes out with the next one."""
    before, after = await fed(tmp_path, query, config)
    expected = [(0, 2), (1, 3), (2, 3 if query == TEMPORAL else None)]
    assert before[:2] == expected[:2]
    assert after == expected
