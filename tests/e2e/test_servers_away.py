"""Servers outside that are stopped under a running job: it waits for them, says so, and goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.api.client import ClusterClient
from tests.connectors.nats_server import NatsServer
from tests.e2e.support import slot_pid
from tests.servers.kafka_server import KafkaServer
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE kin (a INT) WITH ('connector' = 'kafka', 'topic' = '{kin}', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE kout (a INT) WITH ('connector' = 'kafka', 'topic' = '{kout}', 'properties.bootstrap.servers' = '{servers}',
  'format' = 'json');
CREATE TABLE nin (a INT) WITH ('connector' = 'nats', 'url' = '{url}', 'stream' = 'NIN', 'format' = 'json');
CREATE TABLE nout (a INT) WITH ('connector' = 'nats', 'url' = '{url}', 'stream' = 'NOUT', 'subject' = 'nout',
  'format' = 'json');
CREATE TABLE pin (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres-cdc', 'hostname' = '127.0.0.1',
  'port' = '{port}', 'username' = '{user}', 'password' = '{password}', 'database-name' = '{database}',
  'schema-name' = 'public', 'table-name' = 'orders', 'slot.name' = 'away');
CREATE TABLE pout (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '{pout}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
BEGIN STATEMENT SET;
INSERT INTO kout SELECT a FROM kin;
INSERT INTO nout SELECT a FROM nin;
INSERT INTO pout SELECT id FROM pin;
END;
"""


def test_a_job_waits_for_servers_that_are_stopped_and_says_so(
    make_cluster: Any, until: Any, own_kafka: KafkaServer, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    server = NatsServer(tmp_path / "nats")
    server.start()
    kin, kout, pout = (own_kafka.topic() for _ in range(3))
    database = own_postgres.database()
    own_postgres.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY); ALTER TABLE orders REPLICA IDENTITY FULL",
        database=database,
    )

    async def on_nats(*rows: int) -> int:
        connection = await server.client()
        try:
            js = connection.jetstream()
            if not rows:
                for name in ("nin", "nout"):
                    await js.add_stream(name=name.upper(), subjects=[name])
            for row in rows:
                await js.publish("nin", b'{"a": %d}' % row)
            return int((await js.stream_info("NOUT")).state.messages)
        finally:
            await connection.close()

    def put(row: int) -> None:
        own_kafka.produce(kin, [b'{"a": %d}' % row])
        asyncio.run(on_nats(row))
        own_postgres.execute(f"INSERT INTO orders VALUES ({row})", database=database)

    def got() -> tuple[int, int, int]:
        return len(own_kafka.read(kout)), asyncio.run(on_nats_count()), len(own_kafka.read(pout))

    async def on_nats_count() -> int:
        connection = await server.client()
        try:
            return int((await connection.jetstream().stream_info("NOUT")).state.messages)
        finally:
            await connection.close()

    asyncio.run(on_nats())
    try:
        cluster = make_cluster(taskmanagers=1, slots=1)
        with ClusterClient(cluster.rest_url) as client:
            job_id = client.submit({
                "name": "away",
                "sql": JOB.format(
                    kin=kin, kout=kout, pout=pout, servers=own_kafka.bootstrap, url=server.url, port=own_postgres.port,
                    user=USER, password=PASSWORD, database=database,
                ),
                "config": {"execution.checkpointing.interval": "1 s", "execution.checkpointing.timeout": "600 s"},
            })  # fmt: skip

            def why() -> Any:
                return httpx.get(f"{cluster.rest_url}/jobs/{job_id}/why", timeout=60).json()

            def told() -> list[str]:
                found = why()["findings"]
                return sorted(str(x["causes"]) for x in found if x["code"] == "server-away")

            def story() -> Any:
                return why(), client.exceptions(job_id)

            put(1)
            until(lambda: got() == (1, 1, 1), "the first rows", story)
            assert told() == []
            server.kill()
            own_postgres.kill()
            own_kafka.kill()
            away = (own_kafka.bootstrap, server.url, f"127.0.0.1:{own_postgres.port}")
            until(lambda: all(name in " ".join(told()) for name in away), "the servers that are away", story)
            assert PASSWORD not in " ".join(told())
            for one in (own_kafka, server, own_postgres):
                one.start()
            put(2)
            until(lambda: got() == (2, 2, 2), "the rows after", story)
            until(lambda: told() == [], "nothing that is waited for", story)
            job = client.job(job_id)
            assert (job["state"], job["attempt"]) == ("RUNNING", 1)
    finally:
        server.stop()


INTO_POSTGRES = """
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '300',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{rows}');
CREATE TABLE by_key (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ({at}, 'table-name' = 'by_key');
CREATE TABLE once (id BIGINT) WITH ({at}, 'table-name' = 'once', 'sink.delivery-guarantee' = 'exactly-once');
BEGIN STATEMENT SET;
INSERT INTO by_key SELECT id FROM numbers;
INSERT INTO once SELECT id FROM numbers;
END;
"""


def test_a_job_that_writes_by_jdbc_waits_for_its_database_also_when_it_starts_again(
    make_cluster: Any, until: Any, own_postgres: PostgresServer
) -> None:
    rows = 3_000
    database = own_postgres.database()
    own_postgres.execute(
        "CREATE TABLE by_key (id bigint PRIMARY KEY); CREATE TABLE once (id bigint)", database=database
    )
    address = f"127.0.0.1:{own_postgres.port}/{database}"
    at = f"'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{address}', 'username' = '{USER}', 'password' = '{PASSWORD}'"
    cluster = make_cluster(taskmanagers=1, slots=1)
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "jdbc", "sql": INTO_POSTGRES.format(rows=rows, at=at),
            "config": {
                "execution.checkpointing.interval": "500 ms", "execution.checkpointing.timeout": "600 s",
                "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip

        def told() -> list[str]:
            found = httpx.get(f"{cluster.rest_url}/jobs/{job_id}/why", timeout=60).json()["findings"]
            return [cause for x in found if x["code"] == "server-away" for cause in x["causes"]]

        def story() -> Any:
            return told(), client.job(job_id)["state"], client.exceptions(job_id)

        until(lambda: client.checkpoints(job_id)["counts"]["completed"] >= 2, "checkpoints", story)
        own_postgres.kill()
        until(lambda: any(f"connector 'jdbc', PostgreSQL at {address}" in said for said in told()),
              "the database that is away", story)  # fmt: skip
        assert client.job(job_id)["attempt"] == 1
        # What starts now cannot open its tables. It waits, where it failed until its restarts were used up.
        os.kill(slot_pid(client), signal.SIGKILL)
        until(lambda: client.job(job_id)["attempt"] == 2 and told(), "the database, after the restart", story)
        assert PASSWORD not in " ".join(told())
        own_postgres.start()
        client.raise_if_failed(job_id, client.wait(job_id))
        assert client.job(job_id)["attempt"] == 2
    want = [(i,) for i in range(1, rows + 1)]
    for table in ("by_key", "once"):
        assert sorted(own_postgres.execute(f"SELECT id FROM {table}", database=database)) == want
