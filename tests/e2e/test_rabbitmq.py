"""From a queue of RabbitMQ to files, exactly once, and to another queue, at least once: slots and the broker are killed."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.servers.rabbitmq_server import RabbitMqServer

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (id BIGINT, cents BIGINT) WITH ('connector' = 'rabbitmq', 'url' = '{url}', 'queue' = '{queue}',
  'use-message-id' = 'true', 'format' = 'json');
CREATE TABLE files (id BIGINT, cents BIGINT) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');
CREATE TABLE copies (id BIGINT, cents BIGINT) WITH ('connector' = 'rabbitmq', 'url' = '{url}', 'routing-key' = '{queue}-out',
  'format' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO files SELECT id, cents FROM orders;
INSERT INTO copies SELECT id, cents FROM orders;
END
"""


def send(rabbit: RabbitMqServer, queue: str, first: int, last: int) -> None:
    """Publishes orders; the broker has confirmed them when this returns."""

    async def work(channel: Any) -> None:
        from aiormq import spec

        for name in (queue, f"{queue}-out"):
            await channel.queue_declare(name, durable=True)
        for i in range(first, last):
            properties = spec.Basic.Properties(delivery_mode=2, message_id=f"order-{i}")
            body = json.dumps({"id": i, "cents": i % 100}).encode()
            await channel.basic_publish(body, routing_key=queue, properties=properties)

    rabbit.do(work)


def taken(rabbit: RabbitMqServer, queue: str) -> list[dict[str, int]]:
    """What the queue holds; it is taken out."""

    async def work(channel: Any) -> list[dict[str, int]]:
        found = []
        while (message := await channel.basic_get(queue)).delivery_tag is not None:
            found.append(json.loads(message.body))
        if found:
            await channel.basic_ack(0, multiple=True)  # all
        return found

    found: list[dict[str, int]] = rabbit.do(work)
    return found


def shown(folder: Path) -> list[int]:
    lines = [line for path in folder.glob("[!._]*") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def run(
    make_cluster: Any, until: Any, rabbit: RabbitMqServer, folder: Path, seed: int, faults: int, rows: int,
    kinds: tuple[str, ...] = FEW,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    queue = f"orders-{seed}"
    folder.mkdir()
    send(rabbit, queue, 0, 1)
    cluster = cluster_for(make_cluster, kinds)
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "orders", "sql": JOB.format(url=rabbit.url, queue=queue, folder=folder), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        struck = Faults(cluster, client, lambda: (rabbit.kill(), rabbit.start()), kinds, chance)
        for step in range(faults + 1):
            send(rabbit, queue, step * rows + 1, (step + 1) * rows + 1)
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(0, 2)
            until(
                lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal,
                "checkpoints",
                lambda: client.exceptions(job_id),
            )
            if step == faults:
                break
            struck.strike()
        want = list(range((faults + 1) * rows + 1))
        until(
            lambda: len(shown(folder)) >= len(want), "all rows",
            lambda: (Counter(want) - Counter(shown(folder)), client.exceptions(job_id)),
        )  # fmt: skip
        # Whatever came twice shows with the checkpoint behind the last row.
        goal = client.checkpoints(job_id)["counts"]["completed"] + 2
        until(lambda: client.checkpoints(job_id)["counts"]["completed"] >= goal, "two more checkpoints")
        client.cancel(job_id)
    assert shown(folder) == want
    copies = {(row["id"], row["cents"]) for row in taken(rabbit, f"{queue}-out")}
    assert copies == {(i, i % 100) for i in want}


def test_killed_slots_and_a_killed_broker_leave_each_message_once(
    make_cluster: Any, until: Any, shared_rabbitmq: RabbitMqServer, tmp_path: Path
) -> None:
    run(make_cluster, until, shared_rabbitmq, tmp_path / "out", seed=1, faults=3, rows=500)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_thirty_faults(
    make_cluster: Any, until: Any, shared_rabbitmq: RabbitMqServer, tmp_path: Path, seed: int
) -> None:
    run(make_cluster, until, shared_rabbitmq, tmp_path / "out", seed, faults=32, rows=200, kinds=ALL)
