"""Writes keys: sends a pipeline for each batch, in order; checkpoints wait for the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.redis.client import address, client, errors, failure
from penstock.connectors.redis.settings import OWNER
from penstock.connectors.redis.shape import Shape
from penstock.errors import RecordError
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Redis

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch

#: (key, value to write or None to delete, member to delete)
_Item = tuple[bytes, Any, Any]


class RedisWriter(BufferedWriter):
    """Writes at least once. Hashes, strings, sets and sorted sets are written by key, so writing again
    changes nothing; lists and streams may get rows twice after a failure."""

    def __init__(self, table: TableInfo) -> None:
        self._shape = Shape(table)
        options = self._shape.options
        self._url: str = options["url"]
        self._where = f"{OWNER}, {address(self._url)}"
        super().__init__(
            self._where,
            max_items=options["sink.buffer-flush.max-rows"],
            interval_ms=options["sink.buffer-flush.interval"],
        )
        self._ttl_ms: int | None = options["sink.key.ttl"]
        self._length: int | None = options["sink.stream.max-length"]
        self._client: Redis | None = None
        self._encoder = None if self._shape.type_has_fields else self._shape.encoder()

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        self._client = client(self._url)
        if self._encoder is not None:
            await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[_Item]:
        shape, keys = self._shape, self._shape.template.keys(batch)
        signs = batch.signs()
        removed = [False] * len(batch) if signs is None else (signs < 0).tolist()
        values: Sequence[Any]
        scores: Sequence[Any] = ()
        plain = batch.with_kinds(None)
        if shape.type_has_fields:
            values = shape.fields(plain)
        else:
            assert self._encoder is not None
            values = self._encoder.encode(plain.select(shape.value))
            if shape.score is not None:
                scores = batch.columns[shape.score].to_pylist()
        kinds = None if batch.kinds is None else batch.kinds.tolist()
        out: list[_Item] = []
        for i, key in enumerate(keys):
            if kinds is not None and kinds[i] == RowKind.UPDATE_BEFORE:
                continue
            if key is None or (scores and scores[i] is None and not removed[i]):
                self._reject(batch, i)
            elif removed[i]:
                out.append((key, None, values[i]))
            else:
                out.append((key, (values[i], scores[i]) if scores else values[i], None))
        return out

    def _reject(self, batch: Batch, i: int) -> None:
        error = RecordError(
            "a row has NULL in its key or score",
            expected="a value in each column of " + repr(self._shape.template.text),
            got="NULL",
            where=self._where,
            remedy="filter such rows, or declare the columns NOT NULL",
        )
        self.ctx.bad_record(error, repr(batch.slice(i, 1).to_pylist()[0]).encode(), f"sink {self.ctx.uid}")

    async def send(self, items: Sequence[_Item]) -> Sequence[_Item]:
        assert self._client is not None, "the writer was used before open()"
        try:
            async with self._client.pipeline(transaction=self._shape.type == "hash") as pipeline:
                for key, value, member in items:
                    self._put(pipeline, key, value, member)
                await pipeline.execute()
        except errors() as err:
            raise failure(err, self._where) from err
        return ()

    def _put(self, pipeline: Any, key: bytes, value: Any, member: Any) -> None:
        match self._shape.type, value is None:
            case "hash", False:
                # Fields that are NULL now must be removed. The transaction keeps others from seeing the key
                # without its fields.
                pipeline.delete(key)
                pipeline.hset(key, mapping=value)
            case "string", False:
                pipeline.set(key, value)
            case "list", False:
                pipeline.rpush(key, value)
            case "set", False:
                pipeline.sadd(key, value)
            case "set", True:
                pipeline.srem(key, member)
            case "zset", False:
                data, score = value
                pipeline.zadd(key, {data: score})
            case "zset", True:
                pipeline.zrem(key, member)
            case "stream", False:
                pipeline.xadd(key, value, maxlen=self._length, approximate=True)
            case _:
                pipeline.delete(key)
        if self._ttl_ms is not None and value is not None:
            pipeline.pexpire(key, self._ttl_ms)

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.aclose()
