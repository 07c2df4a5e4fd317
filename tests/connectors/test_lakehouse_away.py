"""Sinks of ``delta`` and ``iceberg`` whose object store (MinIO) is killed and started again: they wait, say so, and lose nothing."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.delta import DeltaConnector
from penstock.connectors.delta.table import open_delta, storage_options
from penstock.connectors.iceberg import IcebergConnector
from penstock.connectors.iceberg.catalog import load
from penstock.connectors.registry import get_connector
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.servers.object_servers import MinioServer

SCHEMA = Schema.of(("id", t.BigIntType()), ("part", t.BigIntType()))


class Delta:
    connector = DeltaConnector()

    def __init__(self, server: MinioServer, folder: Path) -> None:
        self.options = {
            "connector": "delta", "table-path": f"{server.url}/{uuid.uuid4().hex}", "partition.keys": '["part"]',
            **{f"fs.{key}": value for key, value in server.options.items()},
        }  # fmt: skip

    def ids(self) -> list[int]:
        assert "max_retries" in storage_options(self.options)
        found = open_delta(self.options).to_pyarrow_table(columns=["id"])
        return sorted(found.column("id").to_pylist())


class Iceberg:
    connector = IcebergConnector()

    def __init__(self, server: MinioServer, folder: Path) -> None:
        self.options = {
            "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{server.url}/iceberg", "catalog-table": "t", "partition.keys": '["part"]',
            **server.iceberg_options,
        }  # fmt: skip

    def ids(self) -> list[int]:
        return sorted(load(self.options).scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())


def rows(first: int, last: int) -> Batch:
    return Batch.of(SCHEMA, [(i, i % 3) for i in range(first, last)])


async def until(condition: Any, work: asyncio.Future[Any]) -> None:
    while not condition():
        assert not work.done(), work.result()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", [Delta, Iceberg])
async def test_a_store_that_is_away_is_waited_for(
    own_minio: MinioServer, harness: Any, tmp_path: Path, kind: Any
) -> None:
    table = kind(own_minio, tmp_path)

    def writer() -> Any:
        return table.connector.writer(TableInfo(SCHEMA, table.options))

    async def opened(one: Any, restored: Any = (), attempt: int = 1) -> None:
        await one.open(harness.ctx(SCHEMA, table.options, attempt=attempt), list(restored))

    first = writer()
    await opened(first)
    first.write(rows(0, 10))
    await first.begin_checkpoint(1)
    await first.commit(1)
    assert first.away() is None

    # While files are stored.
    first.write(rows(10, 20))
    own_minio.kill()
    cut = asyncio.ensure_future(first.begin_checkpoint(2))
    await until(lambda: first.away(), cut)
    assert own_minio.options["secret_access_key"] not in first.away()
    own_minio.start()
    state = await cut
    assert first.away() is None

    # In a commit.
    own_minio.kill()
    commit = asyncio.ensure_future(first.commit(2))
    await until(lambda: first.away(), commit)
    own_minio.start()
    await commit
    assert table.ids() == list(range(20))

    # When a writer opens, which repeats the commit.
    own_minio.kill()
    await first.close()
    second = writer()
    opening = asyncio.ensure_future(opened(second, state, 2))
    await until(lambda: second.away(), opening)
    own_minio.start()
    await opening
    second.write(rows(20, 30))
    await second.begin_checkpoint(3)
    await second.commit(3)
    second.write(rows(30, 40))  # rows that no checkpoint will hold
    own_minio.kill()
    await second.close()
    own_minio.start()
    assert table.ids() == list(range(30))


async def test_files_are_shown_when_the_store_is_back(own_minio: MinioServer, harness: Any) -> None:
    options = {
        "connector": "filesystem", "path": f"{own_minio.url}/files", "format": "json",
        **{f"fs.{key}": value for key, value in own_minio.options.items()},
    }  # fmt: skip
    connector = get_connector("filesystem")

    async def opened(one: Any, restored: Any = (), attempt: int = 1) -> None:
        await one.open(harness.ctx(SCHEMA, options, attempt=attempt), list(restored))

    first = connector.writer(TableInfo(SCHEMA, options, "json"))
    await opened(first)
    first.write(rows(0, 10))
    state = await first.begin_checkpoint(1)
    own_minio.kill()
    commit = asyncio.ensure_future(first.commit(1))
    await until(lambda: first.away(), commit)
    own_minio.start()
    await commit
    assert first.away() is None
    own_minio.kill()
    await first.close()
    second = connector.writer(TableInfo(SCHEMA, options, "json"))
    opening = asyncio.ensure_future(opened(second, state, 2))
    await until(lambda: second.away(), opening)
    own_minio.start()
    await opening
    assert sorted(await harness.read_all(SCHEMA, options)) == [(i, i % 3) for i in range(10)]
    await second.close()
