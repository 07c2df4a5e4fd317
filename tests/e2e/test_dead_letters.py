"""Dead letters on a real cluster: they go to a table, and are sent again, each once, though slots are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import nats
import pytest

from penstock.api.client import ClusterClient
from penstock.cli.dead_letters import replay_dead_letters
from penstock.cli.savepoint import stop_job
from penstock.errors import SpecError
from tests.e2e.support import slot_pid

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (a INT, b STRING, at BIGINT METADATA FROM 'sequence', c AS {cast}(b AS INT)) WITH (
  'connector' = 'nats', 'stream' = 'ORDERS', 'format' = 'json', 'on-error' = 'dead-letter', {more}
);
CREATE TABLE seen (a INT, c INT, at BIGINT) WITH (
  'connector' = 'nats', 'stream' = 'SEEN', 'subject' = 'seen', 'format' = 'json', 'stream.create' = 'true',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'seen-{name}'
);
CREATE TABLE letters (`position` STRING, reason STRING, `bytes` BYTES, operator STRING, `time` TIMESTAMP_LTZ(3)) WITH (
  'connector' = 'nats', 'stream' = 'LETTERS', 'subject' = 'letters', 'format' = 'json', 'stream.create' = 'true',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'letters-{name}'
);
SET 'table.exec.dead-letter.table' = 'letters';
INSERT INTO seen SELECT a, c, at FROM orders;
"""
ORDERS = ['{"a": 1, "b": "10"}', '{"a": "one", "b": "20"}', '{"a": 3, "b": "thirty"}', '{"a": 4, "b": "40"}']


def on_nats(url: str, work: Any) -> Any:
    async def run() -> Any:
        connection = await nats.connect(url)
        try:
            return await work(connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(run())


async def streams(js: Any) -> None:
    for name in ("orders", "seen", "letters"):
        await js.add_stream(name=name.upper(), subjects=[name])


def publish(url: str, texts: list[str]) -> None:
    async def work(js: Any) -> None:
        for text in texts:
            await js.publish("orders", text.encode())

    on_nats(url, work)


def rows(url: str, subject: str) -> list[dict[str, Any]]:
    async def work(js: Any) -> list[dict[str, Any]]:
        info = await js.stream_info(subject.upper())
        found = []
        for sequence in range(1, info.state.last_seq + 1):
            message = await js.get_msg(subject.upper(), sequence)
            if "Penstock-Transaction" not in (message.headers or {}):
                found.append(json.loads(message.data))
        return found

    return on_nats(url, work)  # type: ignore[no-any-return]


def submit(client: ClusterClient, name: str, cast: str, more: str, savepoint: str = "") -> str:
    return client.submit({
        "name": name, "sql": JOB.format(name=name, cast=cast, more=more),
        "config": {
            "execution.checkpointing.interval": "300 ms",
            "table.exec.dead-letter.replay-interval": "100 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
            **({"execution.state-recovery.path": savepoint} if savepoint else {}),
        },
    })  # fmt: skip


def test_letters_reach_their_table_and_are_sent_again_once(
    make_cluster: Any, until: Any, tmp_path: Path, capsys: Any
) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    url = cluster.nats_url
    on_nats(url, streams)
    with ClusterClient(cluster.rest_url) as client:
        job = submit(client, "first", "CAST", "'json.fail-on-missing-field' = 'true'")

        def story() -> Any:
            return client.exceptions(job), client.dead_letters(job), client.checkpoints(job)["counts"]

        def states(of: str) -> list[str]:
            return sorted(x["state"] for x in client.dead_letters(of)["dead-letters"])

        publish(url, ORDERS)
        until(
            lambda: len(rows(url, "letters")) == 2 and states(job) == ["kept", "kept"], "two letters", story
        )
        os.kill(slot_pid(client), signal.SIGKILL)
        publish(url, ORDERS[:2])
        until(
            lambda: len(rows(url, "letters")) == 3 and states(job).count("kept") == 3, "three letters", story
        )
        told = sorted((x["position"], x["bytes"] is not None) for x in rows(url, "letters"))
        assert [p for p, _ in told[1:]] == [
            "stream sequence 2, subject 'orders'",
            "stream sequence 6, subject 'orders'",
        ]
        assert rows(url, "letters")[0]["operator"] == "Source: orders"

        # The job still cannot read them: each is a letter again.
        replay_dead_letters(cluster.rest_url, job, None, "table")
        assert "3 dead letters are sent again" in capsys.readouterr().out
        until(lambda: states(job) == ["kept"] * 3 + ["replayed"] * 3, "letters again", story)
        assert len(rows(url, "letters")) == 6

        # The corrected job goes on from a savepoint, and gets those that are kept.
        capsys.readouterr()
        stop_job(cluster.rest_url, job, str(tmp_path), drain=False)
        savepoint = capsys.readouterr().out.strip()
        until(lambda: client.job(job)["state"] == "FINISHED", "the stop", story)
        with pytest.raises(SpecError, match="--into"):
            replay_dead_letters(cluster.rest_url, job, None, "table")
        second = submit(client, "second", "TRY_CAST", "'json.ignore-parse-errors' = 'true'", savepoint)
        until(
            lambda: client.job(second)["state"] == "RUNNING",
            "the corrected job",
            lambda: client.exceptions(second),
        )
        capsys.readouterr()
        replay_dead_letters(cluster.rest_url, job, second, "table")
        replay_dead_letters(cluster.rest_url, job, second, "table")
        said = capsys.readouterr().out
        assert f"3 dead letters are sent again by job {second}" in said
        assert "0 dead letters are sent again" in said
        until(lambda: states(job) == ["replayed"] * 6, "all are sent", lambda: client.exceptions(second))
        os.kill(slot_pid(client), signal.SIGKILL)
        publish(url, ORDERS[3:])
        until(
            lambda: len(rows(url, "seen")) == 7,
            "all rows",
            lambda: (client.exceptions(second), rows(url, "seen")),
        )
        assert client.dead_letters(second)["dead-letters"] == []
        stop_job(cluster.rest_url, second, str(tmp_path), drain=False)
        assert sorted(((x["at"], x.get("a"), x.get("c")) for x in rows(url, "seen")), key=lambda x: x[0]) == [
            (1, 1, 10), (2, None, 20), (3, 3, None), (4, 4, 40), (5, 1, 10), (6, None, 20), (7, 4, 40),
        ]  # fmt: skip
