"""How often lookup joins ask: once for the keys of a batch that the cache lacks. The servers count."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.jobgraph.graph import JobGraph
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.testing.memory import MemoryTable
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.connectors.web.test_search import LOOKED_UP, MAPPING, fill
from tests.servers import mariadb_server, postgres_server
from tests.servers.web_server import WebServer

pytestmark = pytest.mark.cluster

_names = itertools.count()
#: The second batch has keys that the first has not; the third has none that are new.
DISTINCT = (300, 500, 400)
BATCHES = [[i % n for i in range(900)] for n in DISTINCT]
ROWS = [(i, f"name {i}") for i in range(600)]


def planned(options: dict[str, str], batches: Sequence[Sequence[int]] = BATCHES) -> JobGraph:
    """A lookup join whose left side comes in these batches, of one size."""
    schema, name = Schema.of(("x", t.BigIntType())), f"asked-{next(_names)}"
    MemoryTable(
        name,
        schema,
        [[Batch.of(schema, [(x,) for x in batch]) for batch in batches]],
        batch_rows=len(batches[0]),
    )
    words = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    session = SqlSession({"parallelism.default": "1"})
    for statement in (
        f"CREATE TABLE l (x BIGINT, p AS PROCTIME()) WITH ('connector' = 'memory', 'name' = '{name}')",
        f"CREATE TABLE dim (id BIGINT, name STRING) WITH ({words})",
    ):
        session.execute(statement)
    job = session.execute("SELECT x, name FROM l JOIN dim FOR SYSTEM_TIME AS OF l.p AS d ON l.x = d.id").job
    assert job is not None
    return job.job_graph


def counted(options: dict[str, str], cache: str, asked: Callable[[], int]) -> int:
    """The questions of a join with this cache, whose rows are compared."""
    graph = planned({**options, "lookup.cache": cache})  # planning looks at the table, too
    before = asked()
    rows = sorted(run_graph(graph).rows)
    assert rows == sorted((i, f"name {i}") for batch in BATCHES for i in batch)
    return asked() - before


CACHES = pytest.mark.parametrize(("cache", "questions"), [("NONE", 3), ("PARTIAL", 2), ("FULL", 1)])


@CACHES
def test_mariadb(shared_mariadb: Any, cache: str, questions: int) -> None:
    database = shared_mariadb.database()
    shared_mariadb.execute("CREATE TABLE dim (id BIGINT PRIMARY KEY, name VARCHAR(100))", database=database)
    shared_mariadb.execute(
        "INSERT INTO dim SELECT seq, CONCAT('name ', seq) FROM seq_0_to_599", database=database
    )
    options = {
        "connector": "jdbc", "url": f"jdbc:mysql://127.0.0.1:{shared_mariadb.port}/{database}", "table-name": "dim",
        "username": mariadb_server.USER, "password": mariadb_server.PASSWORD,
    }  # fmt: skip

    def asked() -> int:
        """Queries of all connections: the test is alone with the server, and this one is no SELECT."""
        return int(shared_mariadb.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1])

    assert counted(options, cache, asked) == questions


@CACHES
def test_postgresql(shared_postgres: Any, postgres_database: str, cache: str, questions: int) -> None:
    shared_postgres.execute(
        "CREATE TABLE dim AS SELECT i::bigint AS id, 'name ' || i AS name FROM generate_series(0, 599) AS i",
        database=postgres_database,
    )
    options = {
        "connector": "jdbc", "url": f"jdbc:postgresql://127.0.0.1:{shared_postgres.port}/{postgres_database}", "table-name": "dim",
        "username": postgres_server.USER, "password": postgres_server.PASSWORD,
    }  # fmt: skip

    def asked() -> int:
        """Scans of the table, which has no index. A connection has told of its own when it has ended."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        while shared_postgres.execute(others, postgres_database, database=postgres_database) != [(0,)]:
            continue
        scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'dim'"
        return int(shared_postgres.execute(scans, database=postgres_database)[0][0])

    assert counted(options, cache, asked) == questions


@CACHES
def test_redis(shared_redis: Any, cache: str, questions: int) -> None:
    word = f"k{uuid.uuid4().hex[:12]}"
    with shared_redis.client() as client:
        for i, name in ROWS:
            client.set(f"{word}:{i}", f'{{"name": "{name}"}}')
        options = {
            "connector": "redis", "url": shared_redis.url, "key": word + ":{id}", "data-type": "string", "format": "json",
        }  # fmt: skip
        count = lambda: int(client.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"])  # noqa: E731
        found = counted(options, cache, count)
    # The whole table comes page by page, and a page that a scan gives may be empty.
    assert found == questions or (cache == "FULL" and 1 <= found < 10)


@CACHES
def test_search(shared_opensearch: Any, cache: str, questions: int) -> None:
    index = fill(shared_opensearch, [(i, name, None) for i, name in ROWS], MAPPING)
    options = {"connector": "opensearch", "hosts": shared_opensearch.url, "index": index}

    def asked() -> int:
        stats = shared_opensearch.request("GET", f"{index}/_stats/search")["_all"]["primaries"]["search"]
        return int(stats["query_total"])

    assert len(LOOKED_UP) == 3
    assert counted(options, cache, asked) == questions


@pytest.mark.parametrize(("cache", "questions"), [("NONE", sum(DISTINCT)), ("PARTIAL", max(DISTINCT))])
def test_http_asks_for_each_key_once(cache: str, questions: int) -> None:
    web = WebServer()
    web.rows["names"] = [{"id": i, "name": name} for i, name in ROWS]
    web.start()
    try:
        options = {"connector": "rest-lookup", "url": f"{web.url}/one/names/{{id}}", "format": "json"}
        assert counted(options, cache, lambda: len(web.asked)) == questions
    finally:
        web.stop()
