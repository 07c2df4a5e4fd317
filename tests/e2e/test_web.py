"""Streams and the web on a real cluster: sockets and made-up rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.connectors.web.tcp import TcpServer

pytestmark = pytest.mark.cluster

SOCKETS = """
CREATE TABLE words (word STRING) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{source}',
  'format' = 'raw');
CREATE TABLE loud (word STRING) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{sink}',
  'format' = 'json');
INSERT INTO loud SELECT UPPER(word) FROM words
"""
FAKED = """
CREATE TABLE people (name STRING, age INT) WITH ('connector' = 'faker', 'number-of-rows' = '500',
  'rows-per-second' = '0', 'fields.name.expression' = '#{{name.fullName}}',
  'fields.age.expression' = '#{{number.numberBetween ''18'',''99''}}');
CREATE TABLE sent (age INT, name STRING) WITH ('connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{sink}',
  'format' = 'json');
INSERT INTO sent SELECT age, name FROM people
"""


def rows(server: TcpServer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.text().splitlines()]


def test_words_go_from_socket_to_socket_and_people_are_made_up(make_cluster: Any, until: Any) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    with ClusterClient(cluster.rest_url) as client, TcpServer() as source, TcpServer() as sink:
        ports = {"source": source.port, "sink": sink.port}
        job_id = client.submit({"name": "loud", "sql": SOCKETS.format(**ports)})
        until(lambda: source.connections, "a connection", lambda: client.exceptions(job_id))
        source.send(b"one\ntwo\nthree\n")
        until(lambda: len(rows(sink)) == 3, "three rows", lambda: client.exceptions(job_id))
        assert [row["word"] for row in rows(sink)] == ["ONE", "TWO", "THREE"]
        client.cancel(job_id)
        with TcpServer() as faked:
            job_id = client.submit({"name": "faked", "sql": FAKED.format(sink=faked.port)})
            until(
                lambda: client.job(job_id)["state"] == "FINISHED",
                "the end",
                lambda: client.exceptions(job_id),
            )
            made = rows(faked)
        assert len(made) == 500
        assert all(18 <= row["age"] < 99 and row["name"] for row in made)
