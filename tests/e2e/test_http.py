"""From a web hook, by ids of requests, through a look-up to requests with keys: slots and the receiver are killed, and each
row arrives once."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.servers.web_server import WebServer, free_port

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (id BIGINT, name BIGINT, p AS PROCTIME()) WITH ('connector' = 'http', 'listen' = '127.0.0.1:{port}', 'path' = '/orders',
  'token' = 'a-token-of-ours', 'request-id.header' = 'X-Request-Id', 'format' = 'json');
CREATE TABLE names (id BIGINT, name STRING) WITH ('connector' = 'rest-lookup', 'url' = '{url}/one/names/{{id}}', 'format' = 'json');
CREATE TABLE billing (id BIGINT, name STRING) WITH ('connector' = 'http-sink', 'url' = '{url}/take/rows', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'http.sink.request.batch.size' = '7');
INSERT INTO billing SELECT o.id, n.name FROM orders AS o JOIN names FOR SYSTEM_TIME AS OF o.p AS n ON o.name = n.id;
"""


def order(port: int, i: int, deadline: float) -> None:
    """Sends an order until it is answered 200, as a sender must."""
    headers = {"Authorization": "Bearer a-token-of-ours", "X-Request-Id": f"order-{i}"}
    while time.monotonic() < deadline:
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{port}/orders", json={"id": i, "name": i % 3}, headers=headers, timeout=20,
                trust_env=False,
            )  # fmt: skip
        except httpx.TransportError:
            time.sleep(0.1)
            continue
        if answer.status_code == 200:
            return
        assert answer.status_code == 503, answer.text
        time.sleep(0.2)
    raise AssertionError(f"order {i} was never answered 200")


def run(
    make_cluster: Any, until: Any, seed: int, faults: int, rows: int, kinds: tuple[str, ...] = FEW
) -> None:
    chance = random.Random(seed)
    web, port = WebServer(), free_port()
    web.rows["names"] = [{"id": i, "name": f"name {i}"} for i in range(3)]
    web.start()
    cluster = cluster_for(make_cluster, kinds)
    with ClusterClient(cluster.rest_url) as client, ThreadPoolExecutor(16) as senders:
        job_id = client.submit({
            "name": "orders", "sql": JOB.format(port=port, url=web.url), "parallelism": 1,
            "config": {
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        deadline = time.monotonic() + 60 * (faults + 3)
        struck = Faults(cluster, client, lambda: (web.stop(), web.start()), kinds, chance)
        for step in range(faults + 1):
            sent = [senders.submit(order, port, i, deadline) for i in range(step * rows, (step + 1) * rows)]
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(1, 2)
            until(
                lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal,
                "checkpoints",
                lambda: client.exceptions(job_id),
            )
            if step < faults:
                struck.strike()
            for answer in sent:
                answer.result()
        want = [(i, f"name {i % 3}") for i in range((faults + 1) * rows)]

        def taken() -> list[tuple[int, str]]:
            return sorted((row["id"], row["name"]) for *_, body in web.taken for row in json.loads(body))

        until(
            lambda: len(taken()) >= len(want), "all rows", lambda: (len(taken()), client.exceptions(job_id))
        )
        # Whatever came twice shows with the checkpoint behind the last row.
        goal = client.checkpoints(job_id)["counts"]["completed"] + 2
        until(lambda: client.checkpoints(job_id)["counts"]["completed"] >= goal, "two more checkpoints")
        client.cancel(job_id)
    web.stop()
    assert taken() == want


def test_killed_slots_and_a_stopped_receiver_leave_each_row_once(make_cluster: Any, until: Any) -> None:
    run(make_cluster, until, seed=1, faults=2, rows=40)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_thirty_faults(make_cluster: Any, until: Any, seed: int) -> None:
    run(make_cluster, until, seed, faults=32, rows=40, kinds=ALL)
