"""Sums by key in a search server on a real cluster: slots and the server are killed, and every document is right."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.e2e.test_redis import order, put, wanted
from tests.servers.opensearch_server import OpenSearchServer
from tests.servers.redis_server import RedisServer

__all__ = ["order"]

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'redis', 'url' = '{redis}',
  'data-type' = 'stream', 'key' = 'orders-0;orders-1');
CREATE TABLE spent (country STRING, orders BIGINT, cents BIGINT, PRIMARY KEY (country) NOT ENFORCED) WITH
  ('connector' = 'opensearch', 'hosts' = '{search}', 'index' = 'spent');
INSERT INTO spent SELECT 'land ' || CAST(MOD(customer, 7) AS STRING), COUNT(*), SUM(cents) FROM orders
  GROUP BY 'land ' || CAST(MOD(customer, 7) AS STRING)
"""


def kept(search: OpenSearchServer) -> dict[str, list[int]]:
    return {key: [row["orders"], row["cents"]] for key, row in search.documents("spent").items()}


def run(
    make_cluster: Any,
    until: Any,
    redis: RedisServer,
    search: OpenSearchServer,
    *,
    seed: int,
    faults: int,
    rows: int,
    kinds: tuple[str, ...] = FEW,
) -> None:
    chance = random.Random(seed)
    cluster = cluster_for(make_cluster, kinds)
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "spent", "sql": JOB.format(redis=redis.url, search=search.url), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        struck = Faults(cluster, client, lambda: (search.kill(), search.start()), kinds, chance)
        for step in range(faults + 1):
            put(redis, step * rows, (step + 1) * rows)
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(0, 2)
            until(
                lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal,
                "checkpoints",
                lambda: client.exceptions(job_id),
            )
            if step < faults:
                struck.strike()
        want = wanted((faults + 1) * rows)
        until(
            lambda: kept(search) == want, "the sums", lambda: (kept(search), want, client.exceptions(job_id))
        )
        client.cancel(job_id)
    assert kept(search) == want


def test_a_killed_slot_and_a_killed_server_leave_every_document_right(
    make_cluster: Any, until: Any, own_redis: RedisServer, own_opensearch: OpenSearchServer
) -> None:
    run(make_cluster, until, own_redis, own_opensearch, seed=1, faults=2, rows=1_000)


@pytest.mark.soak
def test_thirty_faults(
    make_cluster: Any, until: Any, own_redis: RedisServer, own_opensearch: OpenSearchServer
) -> None:
    run(make_cluster, until, own_redis, own_opensearch, seed=2, faults=32, rows=300, kinds=ALL)
