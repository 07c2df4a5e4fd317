"""Passwords in plain text are named when a job is planned or submitted."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api import execution
from penstock.jobgraph.plain_secrets import plain_secrets
from penstock.sql.session import SqlSession

SQL = """
CREATE TABLE n (v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE t (v BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', {options});
INSERT INTO t SELECT v FROM n
"""
SERVERS = "'properties.bootstrap.servers' = 'host:9092'"
JAAS = "'properties.sasl.jaas.config' = 'x.PlainLoginModule required username=\"me\" password=\"{word}\";'"
SASL = "'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = 'PLAIN'"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            f"{SERVERS}, {SASL}, {JAAS.format(word='a-plain-word')}",
            ["'properties.sasl.jaas.config' of a kafka table"],
        ),
        (f"{SERVERS}, {SASL}, {JAAS.format(word='${secret:DB}')}", []),
        (SERVERS, []),
    ],
)
def test_options_of_tables(options: str, named: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_DB", "what-is-looked-up")
    *_, result = SqlSession({"execution.engine": "streaming"}).run_script(SQL.format(options=options))
    assert [words.partition(" is ")[0] for words in result.warnings] == named
    assert result.job is not None
    assert plain_secrets(result.job.job_graph) == result.warnings
    assert "a-plain-word" not in str(result.warnings)
    assert all("secret:NAME" in words for words in result.warnings)


def test_the_configuration() -> None:
    session = SqlSession({"user.api-key": "a-plain-word", "execution.engine": "streaming"})
    *_, result = session.run_script(SQL.format(options=SERVERS))
    assert [words.partition(" is ")[0] for words in result.warnings] == [
        "'user.api-key' of the configuration"
    ]


@pytest.mark.parametrize("warned", [False, True])
def test_a_program_that_submits_is_warned_once(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, warned: bool
) -> None:
    options = f"{SERVERS}, {SASL}, {JAAS.format(word='a-plain-word')}"
    *_, result = SqlSession({"execution.engine": "streaming"}).run_script(SQL.format(options=options))
    assert result.job is not None
    sent: list[Any] = []

    class Client:
        def __init__(self, address: str) -> None: ...

        submit = staticmethod(sent.append)

    monkeypatch.setattr(execution, "ClusterClient", Client)
    monkeypatch.setattr(execution, "_submitted", 0)
    monkeypatch.setattr(execution, "_detached", None)
    execution.submit(result.job.job_graph, {"rest.address": "http://cluster"}, warned=warned)
    said = [str(found.message).partition(" is ")[0] for found in recwarn]
    assert said == ([] if warned else ["'properties.sasl.jaas.config' of a kafka table"])
    assert len(sent) == 1
