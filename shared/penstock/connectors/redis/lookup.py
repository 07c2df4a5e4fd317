"""Looks up the rows of keys for lookup joins, with one pipeline for the keys of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.base import LookupSource, TableInfo
from penstock.connectors.redis.client import address, client, errors, failure
from penstock.connectors.redis.settings import OWNER
from penstock.connectors.redis.shape import Answers, Shape
from penstock.errors import ConnectorError
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Redis

    from penstock.connectors.base import SourceContext

#: Keys of one pipeline, and of one page of a scan.
_MOST_KEYS = 2000


class RedisLookup(LookupSource):
    """Looks keys up; a missing key gives no row."""

    def __init__(self, table: TableInfo) -> None:
        self._shape = Shape(table)
        self._url: str = self._shape.options["url"]
        self._where = f"{OWNER}, {address(self._url)}"
        self._client: Redis | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._answers = Answers(self._shape, ctx)
        self._client = client(self._url)

    async def lookup(self, keys: Batch) -> Batch:
        names = keys.schema.names
        in_key = [self._shape.schema.names[i] for i in self._shape.template.columns]
        if missing := [name for name in in_key if name not in names]:
            raise ConnectorError(
                "the join does not compare the columns of the key",
                expected=f"= for each of {', '.join(in_key)}, which are in 'key' = '{self._shape.template.text}'",
                got="no comparison of " + ", ".join(missing),
                where=OWNER,
                remedy="add the comparison to ON",
            )
        asked = list(dict.fromkeys(key for key in self._shape.template.keys(keys) if key is not None))
        rows = await self._rows(asked)
        return self._of_keys(keys, rows)

    def _of_keys(self, keys: Batch, rows: list[tuple[Any, ...]]) -> Batch:
        """Only rows that equal one of ``keys`` in every column of it."""
        batch = Batch.of(self._answers.schema, rows)
        wanted = set(keys.to_pylist())
        at = [batch.schema.index(name) for name in keys.schema.names]
        kept = [i for i, row in enumerate(batch.to_pylist()) if tuple(row[j] for j in at) in wanted]
        if len(kept) == len(batch):
            return batch
        import numpy as np

        return batch.take(np.array(kept, np.int64))

    async def load(self) -> Batch:
        rows: list[tuple[Any, ...]] = []
        seen: set[bytes] = set()
        cursor = 0
        while True:
            try:
                found: Any = await self._connected.scan(
                    cursor, match=self._shape.template.pattern(), count=_MOST_KEYS
                )
            except errors() as err:
                raise failure(err, self._where) from err
            cursor, page = int(found[0]), found[1]
            # A scan may return a key twice, and keys that only look like those of the table.
            fresh = [k for k in page if k not in seen and self._shape.template.values(k) is not None]
            seen.update(fresh)
            rows += await self._rows(fresh)
            if not cursor:
                return Batch.of(self._answers.schema, rows)

    @property
    def _connected(self) -> Redis:
        assert self._client is not None, "the lookup was used before open()"
        return self._client

    async def _rows(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        for start in range(0, len(keys), _MOST_KEYS):
            part = keys[start : start + _MOST_KEYS]
            try:
                found = await self._ask(part)
            except errors() as err:
                raise failure(err, self._where) from err
            for key, value in zip(part, found, strict=True):
                out += self._answers.rows(key, value)
        return out

    async def _ask(self, keys: Sequence[bytes]) -> Sequence[Any]:
        if self._shape.type == "string":
            found: Sequence[Any] = await self._connected.mget(keys)
            return found
        async with self._connected.pipeline(transaction=False) as pipeline:
            for key in keys:
                match self._shape.type:
                    case "hash":
                        pipeline.hgetall(key)
                    case "list":
                        pipeline.lrange(key, 0, -1)
                    case "set":
                        pipeline.smembers(key)
                    case "zset":
                        pipeline.zrange(key, 0, -1, withscores=True)
                    case kind:
                        raise ConnectorError(f"'data-type' = '{kind}' cannot be looked up", where=OWNER)
            answered: Sequence[Any] = await pipeline.execute()
            return answered

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
