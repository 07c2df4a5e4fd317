"""What each source, each sink and each chain guarantees, in EXPLAIN and in the job graph, over all connectors."""

from __future__ import annotations

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import CONNECTORS, get_connector, known_connectors
from penstock.errors import UnsupportedError
from penstock.jobgraph.graph import JobGraph
from penstock.sql.session import SqlSession
from penstock.types import Field, Schema
from penstock.types import logical as t

EXACT, LEAST, MOST = "exactly-once", "at-least-once", "at-most-once"
STILL = "exactly-once while the table does not change"
LOOKED = "exactly-once while nobody takes messages out of the queue"
ANSWERED = "exactly-once while the answers do not change"
ASKED = {"sink.delivery-guarantee": EXACT}
SNAPSHOT = {"scan.startup.mode": "snapshot"}

#: Connector → what its source gives, what its sink gives; None: it has none. With options: for tables with them.
GIVEN = [
    ("blackhole", {}, None, EXACT),
    ("collect", {"bounded": "false"}, None, EXACT),
    ("datagen", {}, EXACT, None),
    ("delta", {}, EXACT, EXACT),
    ("elasticsearch-7", {}, None, LEAST),
    ("elasticsearch-8", {}, None, LEAST),
    ("faker", {}, EXACT, None),
    ("filesystem", {}, EXACT, EXACT),
    ("http", {"listen": "127.0.0.1:9"}, LEAST, LEAST),
    ("http", {"listen": "127.0.0.1:9", "request-id.header": "X-Id"}, EXACT, LEAST),
    ("http", {"listen": "127.0.0.1:9", "answer": "received"}, MOST, LEAST),
    ("http", {"url": "http://h"}, LEAST, LEAST),
    ("http", {"url": "http://h", "scan.bounded.mode": "latest"}, ANSWERED, LEAST),
    ("http-sink", {}, None, LEAST),
    ("http-sink", ASKED, None, EXACT),
    ("iceberg", {}, EXACT, EXACT),
    ("jdbc", {}, STILL, LEAST),
    ("jdbc", ASKED, STILL, EXACT),
    ("kafka", {}, EXACT, LEAST),
    ("kafka", ASKED, EXACT, EXACT),
    ("kafka", {"sink.delivery-guarantee": "none"}, EXACT, MOST),
    ("mysql-cdc", {}, EXACT, None),
    ("mysql-cdc", SNAPSHOT, STILL, None),
    ("nats", {}, EXACT, LEAST),
    ("nats", ASKED, EXACT, EXACT),
    ("nats-core", {}, MOST, MOST),
    ("nexmark", {}, EXACT, None),
    ("opensearch", {}, None, LEAST),
    ("opensearch", {"sink.delivery-guarantee": "none"}, None, MOST),
    ("postgres-cdc", {}, EXACT, None),
    ("print", {}, None, LEAST),
    ("mqtt", {}, LEAST, LEAST),
    ("mqtt", {"qos": "0"}, MOST, MOST),
    ("mqtt", {"use-correlation-data": "true"}, EXACT, LEAST),
    ("rabbitmq", {}, LEAST, LEAST),
    ("rabbitmq", {"use-message-id": "true"}, EXACT, LEAST),
    ("rabbitmq", {"scan.bounded.mode": "latest"}, LOOKED, LEAST),
    ("redis", {}, EXACT, LEAST),
    ("rest-lookup", {}, LEAST, None),
    ("socket", {}, MOST, LEAST),
    ("upsert-kafka", {}, EXACT, LEAST),
]
#: It has what its two parts have.
PARTS = {"hybrid"}


def test_every_connector_is_in_the_table() -> None:
    # Connectors of packages from elsewhere, which other tests of this process declare, are not in the table.
    ours = {
        n for n in known_connectors() if type(CONNECTORS.find(n)).__module__.startswith("penstock.connectors")
    }
    assert ours == {name for name, *_ in GIVEN} | PARTS


@pytest.mark.parametrize(("name", "options", "source", "sink"), GIVEN)
def test_what_a_connector_gives(
    name: str, options: dict[str, str], source: str | None, sink: str | None
) -> None:
    connector = get_connector(name)
    table = TableInfo(Schema((Field("a", t.BigIntType()),)), {"connector": name, **options})
    if source is not None:
        assert connector.source_guarantee(table) == source
    if sink is not None:
        assert connector.sink_guarantee(table) == sink


TABLES = """
CREATE TABLE gen (a BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE few (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE wire (a BIGINT) WITH ('connector' = 'socket', 'hostname' = 'localhost', 'port' = '9', 'format' = 'csv');
CREATE TABLE files (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '/tmp/out', 'format' = 'json');
CREATE TABLE asked (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '/tmp/out', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once');
CREATE TABLE shown (a BIGINT) WITH ('connector' = 'print');
CREATE TABLE doc (a BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'opensearch', 'hosts' = 'http://localhost:9',
  'index' = 'i');
"""
MODE = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
OFF = {"execution.checkpointing.interval": "0"}


def chains(sql: str, **config: str) -> JobGraph:
    session = SqlSession({"parallelism.default": "1", "execution.checkpointing.interval": "5 s", **config})
    [job] = [result.job for result in session.run_script(TABLES + sql) if result.job is not None]
    return job.job_graph


@pytest.mark.parametrize(
    ("sql", "config", "gives", "because", "latency"),
    [
        ("INSERT INTO files SELECT a FROM gen", {}, EXACT, "", "up to 5 s later"),
        ("INSERT INTO files SELECT a FROM few", {}, EXACT, "", "or at the end"),
        ("INSERT INTO files SELECT a FROM few", OFF, EXACT, "", "when the job ends"),
        ("INSERT INTO files SELECT a FROM gen", OFF, LEAST, "starts anew", "at a savepoint"),
        ("INSERT INTO files SELECT a FROM gen", MODE, LEAST, "AT_LEAST_ONCE", "up to 5 s later"),
        (
            "INSERT INTO files SELECT a FROM wire",
            {},
            MOST,
            "'Source: wire' sends while the job is down",
            "up to 5 s later",
        ),
        ("INSERT INTO shown SELECT a FROM gen", {}, LEAST, "", ""),
        ("INSERT INTO shown SELECT a FROM gen UNION ALL SELECT a FROM wire", {}, MOST, "is lost", ""),
        ("INSERT INTO doc SELECT a FROM gen", {}, LEAST, "by key", ""),
    ],
)
def test_what_a_chain_gives(sql: str, config: dict[str, str], gives: str, because: str, latency: str) -> None:
    graph = chains(sql, **config)
    [chain] = graph.guarantees
    assert chain.gives == gives
    assert because in chain.because
    assert latency in chain.latency
    assert bool(because) == bool(chain.because)
    assert bool(latency) == bool(chain.latency)
    assert f"== Guarantees ==\n{chain.sink.name}: {gives}" in graph.plan


def test_exactly_once_of_a_source_that_cannot_go_back_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot go back") as err:
        chains("INSERT INTO asked SELECT a FROM gen UNION ALL SELECT a FROM wire")
    assert "Source: wire" in str(err.value)
    assert "NATS JetStream" in (err.value.remedy or "")
    assert "'at-least-once'" in (err.value.remedy or "")
