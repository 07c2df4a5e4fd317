"""``redis`` on a real Valkey: the kits, and what they do not ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError, UnsupportedError
from penstock.testing.conformance import BadTable, LookupConformance, SinkConformance, SourceConformance
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
A, V, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def fresh():
    return f"k{uuid.uuid4().hex[:12]}"


def table(server, key, kind="hash", **more):
    return {"connector": "redis", "url": server.url, "key": key, "data-type": kind, **more}


class _Redis:
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, shared_redis):
        self.redis = shared_redis
        self.client = shared_redis.client()
        yield
        self.client.close()

    def connector(self):
        return get_connector("redis")


class TestStreamSource(_Redis, SourceConformance):
    def options(self):
        keys = [fresh(), fresh()]
        for i, name in made(0, 60):
            self.client.xadd(keys[i % 2], {"id": i, "name": name})
        return table(self.redis, ";".join(keys), "stream", **{"scan.bounded.mode": "latest"})

    def expected(self):
        return made(0, 60)

    def bad(self):
        key = fresh()
        for fields in ({"id": 1, "name": "name 1"}, {"id": "seven"}, {"id": 2, "name": "name 2"}):
            self.client.xadd(key, fields)
        return BadTable(table(self.redis, key, "stream", **{"scan.bounded.mode": "latest"}), made(1, 2), 1)

    many_splits = True

    def live_options(self):
        return table(self.redis, f"{fresh()};{fresh()}", "stream")

    async def publish(self, options, rows):
        keys = options["key"].split(";")
        for i, name in rows:
            self.client.xadd(keys[i % 2], {"id": i, "name": name})


class _Sink(_Redis, SinkConformance):
    kind = "hash"
    more = {}

    def options(self):
        return table(self.redis, self.key_of(fresh()), self.kind, **self.more)

    def key_of(self, word):
        return word + ":{id}"

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    def _keys(self, options):
        return list(self.client.scan_iter(options["key"].replace("{id}", "*"), count=1000))


class TestHashSink(_Sink):
    key = (0,)

    def changes(self):
        first = [(A, row) for row in made(0, 5)]
        second = [(V, (1, "again")), (D, (2, "name 2")), (A, (7, None))]
        return [first, second, [(A, (2, "back")), (D, (1, "again"))]]

    async def visible(self, options):
        found = [self.client.hgetall(key) for key in self._keys(options)]
        return [(int(f["id"]), f.get("name")) for f in found]


class TestStringSink(_Sink):
    kind, more, key = "string", {"format": "json"}, (0,)

    def changes(self):
        return TestHashSink.changes(self)

    async def visible(self, options):
        found = [(key, json.loads(self.client.get(key))) for key in self._keys(options)]
        return [(int(key.rpartition(":")[2]), value["name"]) for key, value in found]


class TestListSink(_Sink):
    kind, more = "list", {"format": "json"}

    def key_of(self, word):
        return word

    async def visible(self, options):
        found = map(json.loads, self.client.lrange(options["key"], 0, -1))
        return [(f["id"], f["name"]) for f in found]


class TestSetSink(TestListSink):
    kind, key = "set", (0, 1)

    def changes(self):
        return [[(A, r) for r in made(0, 5)], [(D, (1, "name 1")), (A, (9, "name 9"))], [(A, (1, "name 1"))]]

    async def visible(self, options):
        found = map(json.loads, self.client.smembers(options["key"]))
        return [(f["id"], f["name"]) for f in found]


class TestSortedSetSink(TestListSink):
    kind, more, key = "zset", {"format": "json", "zset.score": "id"}, (1,)

    def changes(self):
        return [[(A, (1, "a")), (A, (2, "b"))], [(V, (5, "a")), (D, (2, "b"))], [(A, (3, "c"))]]

    async def visible(self, options):
        found = self.client.zrange(options["key"], 0, -1, withscores=True)
        return [(int(score), json.loads(member)["name"]) for member, score in found]


class TestStreamSink(TestListSink):
    kind, more = "stream", {}

    async def visible(self, options):
        found = [fields for _, fields in self.client.xrange(options["key"])]
        return [(int(f["id"]), f["name"]) for f in found]


class _Lookup(_Redis, LookupConformance):
    def rows(self):
        return [(1, "a"), (1, "b"), (2, "c"), (3, None)]

    def absent(self):
        return [(0,), (99,)]

    @contextlib.asynccontextmanager
    async def _away(self):
        yield

    def options(self):
        word = fresh()
        for i, name in self.rows():
            self.put(f"{word}:{i}", name)
        return table(self.redis, word + ":{id}", self.kind, format="json", **self.more)

    more = {}


class TestSetLookup(_Lookup):
    kind = "set"

    def put(self, key, name):
        self.client.sadd(key, json.dumps({"name": name}))


class TestListLookup(_Lookup):
    kind = "list"

    def put(self, key, name):
        self.client.rpush(key, json.dumps({"name": name}))


def ask(harness, schema, options, keys, load=False):
    async def main():
        source = get_connector("redis").lookup(TableInfo(schema, options))
        await source.open(harness.ctx(schema, options))
        try:
            if load:
                return (await source.load()).to_pylist()
            return (await source.lookup(Batch.of(schema.select([0]), keys))).to_pylist()
        finally:
            await source.close()

    return asyncio.run(main())


def test_lookups_of_hashes_and_strings_and_sorted_sets(harness, shared_redis):
    client, word = shared_redis.client(), fresh()
    client.hset(f"{word}:1", mapping={"name": "one"})  # the key's column comes from the key
    client.hset(f"{word}:2", mapping={"other": "x"})
    options = table(shared_redis, word + ":{id}")
    keys = [(i,) for i in range(2500)]  # more than a pipeline
    assert sorted(ask(harness, SCHEMA, options, keys)) == [(1, "one"), (2, None)]
    assert sorted(ask(harness, SCHEMA, options, [], load=True)) == [(1, "one"), (2, None)]
    client.set(f"{word}s:1", '{"name": "text"}')
    assert ask(
        harness, SCHEMA, table(shared_redis, word + "s:{id}", "string", format="json"), [(1,), (2,)]
    ) == [(1, "text")]
    scores = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType()))
    client.zadd(f"{word}z:1", {'{"name": "low"}': 1, '{"name": "high"}': 7})
    options = table(shared_redis, word + "z:{id}", "zset", format="json", **{"zset.score": "n"})
    assert sorted(ask(harness, scores, options, [(1,)])) == [(1, "high", 7), (1, "low", 1)]


def test_another_type_at_the_key_is_refused_by_name(harness, shared_redis):
    client, word = shared_redis.client(), fresh()
    client.set(f"{word}:1", "x")
    with pytest.raises(ConnectorError, match=r"(?s)Redis refuses.*WRONGTYPE.*data-type"):
        ask(harness, SCHEMA, table(shared_redis, word + ":{id}"), [(1,)])


def test_entries_that_are_gone_before_they_were_read_are_an_error(harness, shared_redis):
    client, key = shared_redis.client(), fresh()
    ids = [client.xadd(key, {"id": i, "name": "x"}) for i in range(5)]
    options = table(shared_redis, key, "stream", **{"scan.bounded.mode": "latest"})

    async def main():
        [split] = await harness.splits(SCHEMA, options)
        reader = await harness.reader(SCHEMA, options, splits=[split], batch_rows=1)
        await harness.read(reader, rows=2)
        [left] = reader.snapshot()
        await reader.close()
        assert left.position == {"id": ids[1], "count": 2, "done": False}
        client.xtrim(key, minid=ids[4], approximate=False)
        reader = await harness.reader(SCHEMA, options, splits=[left])
        with pytest.raises(ConnectorError, match="no longer has the entries"):
            await harness.read(reader)
        await reader.close()

    asyncio.run(main())


def test_metadata_and_keys_that_expire(harness, shared_redis):
    client, key = shared_redis.client(), fresh()
    entry = client.xadd(key, {"id": 1, "name": "x"}, id="1700000000000-3")
    options = table(shared_redis, key, "stream", **{"scan.bounded.mode": "latest"})
    [(*_, name, stream)] = asyncio.run(harness.read_all(SCHEMA, options, metadata=("id", "key")))
    assert (name, stream) == (entry, key)

    async def write():
        word = fresh()
        writer = await harness.writer(
            SCHEMA, table(shared_redis, word + ":{id}", **{"sink.key.ttl": "1 h"}), pushed={"keys": [0]}
        )
        writer.write(Batch.of(SCHEMA, made(1, 1)))
        await writer.begin_checkpoint(1)
        await writer.close()
        return word

    assert 3000 < client.ttl(asyncio.run(write()) + ":1") <= 3600


def test_a_server_that_is_killed_is_waited_for_and_nothing_is_lost(harness, own_redis):
    async def main():
        options = table(own_redis, "h:{id}")
        writer = await harness.writer(SCHEMA, options, pushed={"keys": [0]})
        writer.write(Batch.of(SCHEMA, made(0, 5)))
        await writer.begin_checkpoint(1)
        own_redis.kill()
        writer.write(Batch.of(SCHEMA, made(5, 5)))
        cut = asyncio.ensure_future(writer.begin_checkpoint(2))
        await asyncio.sleep(0.05)
        assert not cut.done()
        own_redis.start()
        await cut
        await writer.close()

    asyncio.run(main())
    assert len(own_redis.client().keys("h:*")) == 10


def test_wrong_credentials_are_refused_at_planning_and_never_shown(tmp_path):
    from tests.servers.redis_server import RedisServer

    server = RedisServer(tmp_path, password="rightpassword")
    server.start()
    try:
        url = server.url.replace("redis://", "redis://:wrongpassword@")
        with pytest.raises(ConnectorError, match="Redis refuses") as caught:
            validate_table(SCHEMA, {**table(server, "a:{id}"), "url": url}, role="sink")
        assert "wrongpassword" not in str(caught.value)
        with pytest.raises(ConnectorError, match="Redis refuses"):
            validate_table(SCHEMA, table(server, "a:{id}"), role="sink")
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"key": "a"}, "need a key with columns"),
        ({"key": "a:{nam}"}, "names no column"),
        ({"data-type": "zset", "format": "json"}, "belongs to 'data-type' = 'zset'"),
        ({"data-type": "string"}, "option 'format' is missing"),
        ({"data-type": "hash", "format": "json"}, "takes no 'format'"),
        ({"scan.startup.mode": "id"}, "scan.startup.id"),
        ({"url": "http://x"}, "no address of Redis"),
    ],
)
def test_wrong_options_are_refused_by_name(more, said):
    options = {"connector": "redis", "url": "redis://127.0.0.1:1/0", "key": "a:{id}", **more}
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, options, role="source")


def test_a_primary_key_must_be_what_tells_rows_apart():
    options = {"connector": "redis", "url": "redis://127.0.0.1:1/0", "key": "a:{id}"}
    with pytest.raises(ConnectorError, match="primary key"):
        validate_table(SCHEMA, options, role="sink", primary_key=["name"])
    with pytest.raises(UnsupportedError, match="reading all keys"):
        get_connector("redis").reader(TableInfo(SCHEMA, options))
