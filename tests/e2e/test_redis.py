"""From a stream of Redis to hashes on a real cluster: slots and the server are killed, and every sum is right."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (id BIGINT, customer INT, cents BIGINT, proc AS PROCTIME()) WITH ('connector' = 'redis',
  'url' = '{url}', 'data-type' = 'stream', 'key' = 'orders-0;orders-1');
CREATE TABLE customers (id INT, country STRING) WITH ('connector' = 'redis', 'url' = '{url}', 'key' = 'customer:{{id}}');
CREATE TABLE spent (country STRING, orders BIGINT, cents BIGINT, PRIMARY KEY (country) NOT ENFORCED) WITH
  ('connector' = 'redis', 'url' = '{url}', 'key' = 'spent:{{country}}');
INSERT INTO spent SELECT c.country, COUNT(*), SUM(o.cents)
  FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.proc AS c ON o.customer = c.id GROUP BY c.country
"""
CUSTOMERS = 50


def order(i: int) -> dict[str, int]:
    return {"id": i, "customer": i * 7919 % CUSTOMERS, "cents": i % 100}


def put(redis: RedisServer, first: int, last: int) -> None:
    with redis.client() as client:
        pipeline = client.pipeline()
        for i in range(first, last):
            pipeline.xadd(f"orders-{i % 2}", order(i))
        pipeline.execute()


def wanted(last: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for o in map(order, range(last)):
        sums = found.setdefault(f"land {o['customer'] % 7}", [0, 0])
        sums[0] += 1
        sums[1] += o["cents"]
    return found


def kept(redis: RedisServer) -> dict[str, list[int]]:
    with redis.client() as client:
        rows = [client.hgetall(key) for key in client.scan_iter("spent:*")]
    return {row["country"]: [int(row["orders"]), int(row["cents"])] for row in rows}


def run(
    make_cluster: Any,
    until: Any,
    redis: RedisServer,
    seed: int,
    faults: int,
    rows: int,
    kinds: tuple[str, ...] = FEW,
) -> None:
    chance = random.Random(seed)
    cluster = cluster_for(make_cluster, kinds)
    with redis.client() as client:
        for i in range(CUSTOMERS):
            client.hset(f"customer:{i}", mapping={"country": f"land {i % 7}"})
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "spent", "sql": JOB.format(url=redis.url), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        struck = Faults(cluster, client, lambda: (redis.kill(), redis.start()), kinds, chance)
        for step in range(faults + 1):
            put(redis, step * rows, (step + 1) * rows)
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(0, 2)
            until(
                lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal,
                "checkpoints",
                lambda: client.exceptions(job_id),
            )
            if step == faults:
                break
            struck.strike()
        want = wanted((faults + 1) * rows)
        until(lambda: kept(redis) == want, "the sums", lambda: (kept(redis), want, client.exceptions(job_id)))
        client.cancel(job_id)
    assert kept(redis) == want


def test_killed_slots_and_a_killed_server_leave_every_sum_right(
    make_cluster: Any, until: Any, own_redis: RedisServer
) -> None:
    run(make_cluster, until, own_redis, seed=1, faults=3, rows=1_000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_thirty_faults(make_cluster: Any, until: Any, own_redis: RedisServer, seed: int) -> None:
    run(make_cluster, until, own_redis, seed, faults=32, rows=300, kinds=ALL)
