"""Lookup joins: the cache's rules, retries, reloading, and rows end to end."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from penstock.connectors import registry
from penstock.connectors.base import LookupSource
from penstock.connectors.datagen import DatagenConnector
from penstock.connectors.lookup import LOOKUP_OPTIONS, LookupSettings, lookup_settings
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import BrokerError, ConnectorError, PenstockError
from penstock.operators import lookup_join
from penstock.operators.lookup_cache import LookupCache, distinct, whole_table
from penstock.options import OptionSet
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.testing.harness import JobHarness, ManualClock
from penstock.types import Batch
from penstock.types import logical as t

ROWS = t.Schema.of(("id", t.IntType()), ("name", t.VarCharType()))
KEYS = t.Schema.of(("id", t.IntType()))


def keys(*values: int | None) -> Batch:
    return Batch.of(KEYS, [(v,) for v in values])


def rows(*values: tuple) -> Batch:
    return Batch.of(ROWS, list(values))


def found(cache: LookupCache, *asked: int | None) -> dict:
    batch = keys(*asked)
    slots = cache.slots(batch.columns, batch.num_rows)
    of, entries = cache.probe(slots)
    names = cache.take(entries)[1].to_pylist()
    out: dict = {k: [] for k, slot in zip(asked, slots.tolist(), strict=True) if slot >= 0}
    for i, name in zip(of.tolist(), names, strict=True):
        out[asked[i]].append(name)
    return out


class TestCache:
    def test_rows_of_asked_keys_and_keys_without_rows(self):
        cache = LookupCache(ROWS, [0], LookupSettings(cache="PARTIAL"))
        cache.put(keys(1, 2, 3), rows((1, "a"), (1, "b"), (3, "c"), (99, "not asked")), now_ms=0)
        assert found(cache, 1, 2, 3, 99) == {1: ["a", "b"], 2: [], 3: ["c"]}

    def test_missing_keys_are_not_kept_when_told_so(self):
        cache = LookupCache(ROWS, [0], LookupSettings(cache="PARTIAL", cache_missing_key=False))
        cache.put(keys(1, 2), rows((1, "a")), now_ms=0)
        assert found(cache, 1, 2) == {1: ["a"]}

    def test_expire_after_write(self):
        cache = LookupCache(ROWS, [0], LookupSettings(cache="PARTIAL", expire_after_write_ms=10))
        cache.put(keys(1), rows((1, "old")), now_ms=0)
        cache.put(keys(2), rows((2, "b")), now_ms=5)
        assert (cache.find(keys(1, 2).columns, 2, 9) >= 0).tolist() == [True, True]
        assert (cache.find(keys(1, 2).columns, 2, 10) >= 0).tolist() == [False, True]
        cache.put(keys(1), rows((1, "new")), now_ms=10)
        assert found(cache, 1, 2) == {1: ["new"], 2: ["b"]}

    def test_expire_after_access_and_eviction_of_the_longest_unused(self):
        settings = LookupSettings(cache="PARTIAL", expire_after_access_ms=100, max_rows=2)
        cache = LookupCache(ROWS, [0], settings)
        cache.put(keys(1, 2, 3), rows((1, "a"), (2, "b"), (3, "c")), now_ms=0)
        cache.find(keys(3, 1).columns, 2, 50)
        cache.evict()
        assert found(cache, 1, 2, 3) == {1: ["a"], 3: ["c"]}
        assert (cache.find(keys(1).columns, 1, 149) >= 0).all()
        assert (cache.find(keys(3).columns, 1, 150) < 0).all()
        assert len(cache) == 1

    def test_random_use_agrees_with_a_dictionary(self):
        random = np.random.default_rng(7)
        settings = LookupSettings(cache="PARTIAL", expire_after_write_ms=20, max_rows=30)
        cache = LookupCache(ROWS, [0], settings)
        model: dict[int, tuple[int, list[str]]] = {}
        for now in range(0, 400, 3):
            asked = distinct(keys(*random.integers(0, 60, 12).tolist()))
            slots = cache.find(asked.columns, asked.num_rows, now)
            model = {k: v for k, v in model.items() if now - v[0] < 20}
            known = [k for (k,), slot in zip(asked.to_pylist(), slots.tolist(), strict=True) if slot >= 0]
            assert set(known) <= set(model)
            missing = asked.filter(slots < 0)
            answer = [(k, f"{k}-{now}-{i}") for (k,) in missing.to_pylist() for i in range(k % 3)]
            cache.put(missing, Batch.of(ROWS, answer), now)
            for (k,) in missing.to_pylist():
                model[k] = (now, [f"{k}-{now}-{i}" for i in range(k % 3)])
            asked_keys = [k for (k,) in asked.to_pylist()]
            assert found(cache, *asked_keys) == {k: model[k][1] for k in asked_keys}
            cache.evict()
            assert len(cache) <= 30

    def test_a_whole_table_knows_what_is_not_there(self):
        cache = whole_table(ROWS, [0], LookupSettings(cache="FULL"), rows((1, "a"), (1, "b"), (None, "n")))
        assert found(cache, 1, 2) == {1: ["a", "b"]}


class FakeLookup(LookupSource):
    def __init__(self, owner: Fake) -> None:
        self.owner = owner

    async def lookup(self, keys: Batch) -> Batch:
        await asyncio.sleep(0)
        if self.owner.failures:
            self.owner.failures -= 1
            raise BrokerError("down")
        self.owner.asked.append([k for (k,) in keys.to_pylist()])
        table = [
            (k, f"v{k}")
            for (k,) in keys.to_pylist()
            if k < 4 or len(self.owner.asked) > self.owner.late.get(k, 1000)
        ]
        schema = self.ctx.schema.select(self.ctx.projection)
        return Batch.of(schema, [tuple({"id": k, "name": v}[x] for x in schema.names) for k, v in table])

    async def load(self) -> Batch:
        self.owner.loads += 1
        schema = self.ctx.schema.select(self.ctx.projection)
        row = {"id": 1, "name": f"load {self.owner.loads}"}
        return Batch.of(schema, [tuple(row[x] for x in schema.names)])


class Fake(DeclaredConnector):
    name = "fake-lookup"
    lookup_caches = ("NONE", "PARTIAL", "FULL")

    def __init__(self) -> None:
        super().__init__(OptionSet("connector 'fake-lookup'", LOOKUP_OPTIONS))
        self.asked: list[list[int]] = []
        self.failures = self.loads = 0
        #: Key → after how many requests its row is there.
        self.late: dict[int, int] = {}

    def is_bounded(self, table) -> bool:
        return True

    def lookup(self, table) -> FakeLookup:
        return FakeLookup(self)


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(lookup_join, "RETRY_PAUSE_S", 0.0)
    connector = Fake()
    registry.register(connector)
    return connector


def planned(
    options: str = "",
    query: str | None = None,
    source: str = "VALUES (1), (2), (1), (7), (CAST(NULL AS INT))",
):
    session = SqlSession()
    script = f"""
    CREATE TABLE dim (id INT, name STRING) WITH ('connector' = 'fake-lookup' {options});
    CREATE VIEW l AS SELECT x, PROCTIME() AS p FROM ({source}) AS v(x);
    """
    for _ in session.run_script(script):
        pass
    query = query or "SELECT x, name FROM l LEFT JOIN dim FOR SYSTEM_TIME AS OF l.p AS d ON l.x = d.id"
    return session.execute(query).job.job_graph


LEFT = [(1, "v1"), (1, "v1"), (2, "v2"), (7, None), (None, None)]


def by_text(rows):
    return sorted(rows, key=str)


def test_left_join_asks_each_key_once_and_no_null(fake):
    result = run_graph(planned())
    assert by_text(result.rows) == by_text(LEFT)
    assert [sorted(a) for a in fake.asked] == [[1, 2, 7]]


def test_inner_join_with_a_residual_condition(fake):
    query = "SELECT x, d.name FROM l JOIN dim FOR SYSTEM_TIME AS OF l.p AS d ON l.x = d.id AND d.name <> 'v2'"
    assert by_text(run_graph(planned(query=query)).rows) == [(1, "v1"), (1, "v1")]


def test_failures_are_tried_again_up_to_the_option(fake):
    fake.failures = 3
    result = run_graph(planned())
    assert by_text(result.rows) == by_text(LEFT)
    assert result.counters["numLoadFailures"] == 3
    fake.failures = 2
    with pytest.raises(BrokerError, match="down"):
        run_graph(planned(", 'lookup.max-retries' = '1'"))


HINT = "LOOKUP('table' = 'd', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '1 ms', 'max-attempts' = '3')"
HINTED = "SELECT /*+ {} */ x, name FROM l LEFT JOIN dim FOR SYSTEM_TIME AS OF l.p AS d ON l.x = d.id"


@pytest.mark.parametrize(
    "cache", ["NONE", "PARTIAL", "PARTIAL', 'lookup.partial-cache.cache-missing-key' = 'false"]
)
def test_a_key_without_a_row_is_asked_for_again(fake, cache):
    """Only such keys are: 7 comes with the third request, 8 too late, 9 never."""
    fake.late = {7: 2, 8: 4}
    source = "VALUES (1), (7), (8), (9), (7), (CAST(NULL AS INT))"
    graph = planned(f", 'lookup.cache' = '{cache}'", HINTED.format(HINT), source)
    result = run_graph(graph)
    assert by_text(result.rows) == by_text(
        [(1, "v1"), (7, "v7"), (7, "v7"), (8, None), (9, None), (None, None)]
    )
    assert [sorted(a) for a in fake.asked] == [[1, 7, 8, 9], [7, 8, 9], [7, 8, 9], [8, 9]]
    assert result.counters["numLookupRetries"] == 8


def test_a_table_says_by_itself_how_often_keys_are_asked_for(fake):
    fake.late = {7: 1}
    options = ", 'lookup.retry-missing.max-attempts' = '1', 'lookup.retry-missing.fixed-delay' = '1 ms'"
    assert by_text(run_graph(planned(options)).rows) == by_text([*LEFT[:3], (7, "v7"), LEFT[4]])
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("LOOKUP('retry-predicate' = 'lookup_miss')", "names no table"),
        ("LOOKUP('table' = 'x')", "a hint names the table 'x'"),
        ("LOOKUP('table' = 'd', 'retries' = '3')", "unknown option 'retries'"),
        (
            "LOOKUP('table' = 'd', 'max-attempts' = '3')",
            "without retry-predicate, retry-strategy, fixed-delay",
        ),
        (HINT.replace("'3'", "'0'"), "a whole number above 0"),
        (HINT.replace("1 ms", "soon"), "a duration"),
        (HINT.replace("lookup_miss", "miss"), "'lookup_miss'"),
        ("LOOKUP('table' = 'd', 'async' = 'yes')", "'true' or 'false'"),
    ],
)
def test_a_lookup_hint_that_is_wrong_is_refused(fake, hint, words):
    with pytest.raises(PenstockError) as caught:
        planned(query=HINTED.format(hint))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "cache", "words"),
    [
        (HINT, "NONE", []),
        (HINT, "FULL", ["its cache is FULL"]),
        (HINT.replace("'d'", "'l'"), "NONE", ["it is not looked up"]),
        (
            "LOOKUP('table' = 'd', 'async' = 'true', 'capacity' = '9')",
            "NONE",
            ["'async' of LOOKUP", "'capacity' of LOOKUP"],
        ),
    ],
)
def test_a_lookup_hint_without_effect_is_told(fake, hint, cache, words):
    session = SqlSession()
    session.execute(
        f"CREATE TABLE dim (id INT, name STRING) WITH ('connector' = 'fake-lookup', 'lookup.cache' = '{cache}')"
    )
    session.execute("CREATE VIEW l AS SELECT x, PROCTIME() AS p FROM (VALUES (1)) AS v(x)")
    told = session.execute(HINTED.format(hint)).warnings
    assert len(told) == len(words)
    assert all(word in text for word, text in zip(words, told, strict=True))


SLOW = """
CREATE TABLE s (x INT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '0',
  'fields.x.kind' = 'sequence', 'fields.x.start' = '1', 'fields.x.end' = '60000');
"""


def over_datagen(options: str):
    session = SqlSession()
    script = SLOW + f"CREATE TABLE dim (id INT, name STRING) WITH ('connector' = 'fake-lookup' {options});"
    for _ in session.run_script(script):
        pass
    query = "SELECT x / 60000, COUNT(name) FROM s JOIN dim FOR SYSTEM_TIME AS OF s.p AS d ON MOD(s.x, 3) + 1 = d.id "
    return session.execute(query + "GROUP BY x / 60000").job.job_graph


def test_a_partial_cache_asks_once_for_all_batches(fake):
    assert isinstance(registry.get_connector("datagen"), DatagenConnector)
    result = run_graph(over_datagen(", 'lookup.cache' = 'PARTIAL'"))
    assert sum(n for _, n in result.rows) == 60_000
    assert [sorted(a) for a in fake.asked] == [[1, 2, 3]]
    assert result.counters["loadCount"] == 3


def test_without_a_cache_every_batch_asks(fake):
    result = run_graph(over_datagen(""))
    assert sum(n for _, n in result.rows) == 60_000
    assert len(fake.asked) > 1


async def test_the_whole_table_is_read_again_when_its_time_has_come(fake):
    session = SqlSession()
    script = """
    CREATE TABLE s (x INT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', 'fields.x.min' = '1', 'fields.x.max' = '1');
    CREATE TABLE dim (id INT, name STRING) WITH ('connector' = 'fake-lookup', 'lookup.cache' = 'FULL',
      'lookup.full-cache.periodic-reload.interval' = '1 min');
    """
    for _ in session.run_script(script):
        pass
    query = "SELECT DISTINCT name FROM s JOIN dim FOR SYSTEM_TIME AS OF s.p AS d ON s.x = d.id"
    graph = session.execute(query).job.job_graph
    clock = ManualClock()
    async with JobHarness(graph, clock=clock) as job:

        def kept() -> int:
            """Loads that the join has taken: it counts the time to the next one from there."""
            counters = [o.counters for task in job.metrics().values() for o in task.operators]
            return sum(c.get("loadCount", 0) for c in counters)

        await job.until(lambda: kept() == 1)
        for loads in (2, 3):
            job.advance(60_000)
            await job.until(lambda loads=loads: kept() == loads)
    assert fake.loads == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lookup.cache": "PARTIAL"}, "connector 'filesystem' has no lookup cache PARTIAL"),
        (
            {"lookup.partial-cache.max-rows": "3"},
            "option 'lookup.partial-cache.max-rows' belongs to another cache",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ConnectorError, match=message):
        lookup_settings(registry.get_connector("filesystem"), options, where="t")


def test_settings_in_words():
    connector = registry.get_connector("jdbc")
    options = {"lookup.cache": "partial", "lookup.partial-cache.max-rows": "100",
               "lookup.partial-cache.expire-after-write": "1 min"}  # fmt: skip
    assert lookup_settings(connector, options, where="t").describe() == "at most 100 keys, for 1 min"
    assert lookup_settings(connector, {}, where="t").describe() == "nothing: every batch asks the table"


async def test_a_checkpoint_waits_for_the_answer_and_nothing_is_lost_by_a_kill(fake, monkeypatch):
    answer = FakeLookup.lookup

    async def slow(self, keys):
        await asyncio.sleep(0.005)
        return await answer(self, keys)

    monkeypatch.setattr(FakeLookup, "lookup", slow)
    graph = over_datagen("")
    job = JobHarness(graph)
    await job.start()
    await job.until(lambda: fake.asked)
    checkpoint = await job.checkpoint()
    await job.close()
    async with JobHarness(graph, restore=checkpoint, store=job.store) as again:
        result = await again.wait()
    assert sum(n for _, n in result.rows) == 60_000
