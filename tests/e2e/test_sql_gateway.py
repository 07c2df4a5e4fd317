"""The SQL gateway as a process of its own in front of a real cluster; Flink's SQL client where its jars are."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.e2e.support import sql_gateway, until_true

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
#: Class path of Flink's SQL client: the jars of Flink's lib folder, flink-sql-client, flink-sql-gateway and
#: flink-sql-gateway-api.
CLIENT_PATH = os.environ.get("PENSTOCK_FLINK_SQL_CLIENT")
NUMBERS = (
    "CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
    "'fields.n.start' = '1', 'fields.n.end' = '12000')"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(taskmanagers=1, slots=4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gateway(cluster: EmbeddedCluster) -> Iterator[str]:
    """The gateway's URL."""
    options = {
        "rest.address": cluster.rest_url,
        "sql-gateway.endpoint.rest.port": "0",
        "execution.engine": "streaming",
    }
    with sql_gateway(options) as url:
        yield url


class Session:
    """A session of the gateway."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)
        self.path = "/v2/sessions/" + self.http.post("/v2/sessions", json={}).json()["sessionHandle"]

    def start(self, statement: str) -> str:
        answer = self.http.post(f"{self.path}/statements", json={"statement": statement}).json()
        return f"{self.path}/operations/{answer['operationHandle']}"

    def pages(self, operation: str) -> Iterator[dict[str, Any]]:
        uri: str | None = f"{operation}/result/0"
        while uri is not None:
            answer = self.http.get(uri)
            assert answer.is_success, answer.text
            page = answer.json()
            uri = page.get("nextResultUri")
            if page["resultType"] != "NOT_READY":
                yield page

    def rows(self, statement: str) -> list[tuple[str, list[Any]]]:
        pages = self.pages(self.start(statement))
        return [(row["kind"], row["fields"]) for page in pages for row in page["results"]["data"]]


@pytest.fixture
def session(gateway: str) -> Iterator[Session]:
    opened = Session(gateway)
    yield opened
    opened.http.delete(opened.path)
    opened.http.close()


def test_a_query_of_many_pages(session: Session) -> None:
    session.rows(NUMBERS)
    rows = session.rows("SELECT n, CAST(n AS DECIMAL(10, 2)) AS d FROM numbers")
    assert rows == [("INSERT", [n, n]) for n in range(1, 12_001)]


def test_a_changelog_has_its_kinds(session: Session) -> None:
    session.rows(NUMBERS.replace("12000", "3"))
    rows = session.rows("SELECT COUNT(*) AS c FROM (VALUES (1), (2)) AS t (x)")
    assert rows[-1] in [("INSERT", [2]), ("UPDATE_AFTER", [2])]


def test_an_insert_answers_with_its_job(session: Session, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    session.rows(NUMBERS.replace("12000", "5"))
    session.rows(
        f"CREATE TABLE out (n INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv')"
    )
    [page, *_] = session.pages(session.start("INSERT INTO out SELECT n FROM numbers"))
    assert page["isQueryResult"] is False
    [[job_id]] = [row["fields"] for row in page["results"]["data"]]
    assert job_id == page["jobID"]
    with ClusterClient(cluster.rest_url) as client:
        assert client.wait(job_id)["state"] == "FINISHED"
    written = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert sorted(written.split()) == list("12345")


def test_rows_are_changed_and_a_procedure_is_called(session: Session, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, i) for i in range(10)])
    session.rows("SET 'table.dml-sync' = 'true'")
    session.rows(
        f"CREATE TABLE t (id INT, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc', "
        f"'url' = 'jdbc:sqlite:{tmp_path}/x.db', 'table-name' = 't')"
    )
    session.rows(
        f"CREATE TABLE lake (id INT, n INT) WITH ('connector' = 'delta', 'table-path' = '{tmp_path}/lake')"
    )
    session.rows("UPDATE t SET n = n * 10 WHERE id >= 5")
    session.rows("DELETE FROM t WHERE n < 5")
    for _ in range(2):
        session.rows("INSERT INTO lake SELECT * FROM t")
    session.rows("DELETE FROM lake WHERE id > 5")
    left = [row for _, row in session.rows("SELECT * FROM lake")]
    assert left == [[5, 50]] * 2
    assert connection.execute("SELECT * FROM t").fetchall() == [(i, i * 10) for i in range(5, 10)]
    assert session.rows("CALL system.compact('lake')") == [
        ("INSERT", ["0", "0"])
    ]  # DELETE has written one file


def test_a_job_is_shown_and_stopped_with_a_savepoint(session: Session, cluster: EmbeddedCluster) -> None:
    session.rows("CREATE TABLE ticks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '20')")
    session.rows("CREATE TABLE nothing (n INT) WITH ('connector' = 'blackhole')")
    [page, *_] = session.pages(session.start("INSERT INTO nothing SELECT n FROM ticks"))
    job_id = page["jobID"]

    def state() -> str:
        [(_, [shown, name, state, _])] = session.rows(f"DESCRIBE JOB '{job_id}'")
        assert (shown, name) == (job_id, "insert-into_nothing")
        return str(state)

    until_true(lambda: state() == "RUNNING", "the job runs")
    assert job_id in [fields[0] for _, fields in session.rows("SHOW JOBS")]
    [(_, [path])] = session.rows(f"STOP JOB '{job_id}' WITH SAVEPOINT")
    assert "savepoint" in path
    until_true(lambda: state() == "FINISHED", "the job has stopped")


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_an_endless_query_ends_with_its_operation(
    session: Session, cluster: EmbeddedCluster, end: str
) -> None:
    session.rows("CREATE TABLE ticks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '20')")
    operation = session.start("SELECT n FROM ticks")
    page = next(page for page in session.pages(operation) if page["results"]["data"])
    session.http.request("POST" if end == "cancel" else "DELETE", f"{operation}/{end}").raise_for_status()
    with ClusterClient(cluster.rest_url) as client:
        assert client.wait(page["jobID"])["state"] == "CANCELED"


def test_the_query_of_a_closed_session_ends(gateway: str, cluster: EmbeddedCluster) -> None:
    session = Session(gateway)
    session.rows("CREATE TABLE ticks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '20')")
    page = next(p for p in session.pages(session.start("SELECT n FROM ticks")) if p["results"]["data"])
    session.http.delete(session.path).raise_for_status()
    session.http.close()
    with ClusterClient(cluster.rest_url) as client:
        assert client.wait(page["jobID"])["state"] == "CANCELED"


def test_the_error_of_a_job_is_the_statements(session: Session) -> None:
    operation = session.start("SELECT 1 / (n - n) AS x FROM (VALUES (1)) AS t (n)")
    until_true(
        lambda: session.http.get(f"{operation}/status").json()["status"] == "ERROR", "the statement fails"
    )
    answer = session.http.get(f"{operation}/result/0")
    assert list(answer.json()) == ["errors"]
    assert "division by zero" in answer.text.lower()


def test_a_password_as_plain_text_is_shown_nowhere(session: Session, cluster: EmbeddedCluster) -> None:
    """In none of the answers about its job, and in no log."""
    session.rows(
        "CREATE TABLE documents (n INT) WITH ('connector' = 'opensearch', 'hosts' = 'http://127.0.0.1:1', "
        "'index' = 'i', 'username' = 'me', 'password' = 'plain-and-long')"
    )
    [(_, [shown])] = session.rows("SHOW CREATE TABLE documents")
    assert "'password' = '******'" in shown
    [page, *_] = session.pages(session.start("INSERT INTO documents VALUES (1)"))
    said = [shown]
    with (
        ClusterClient(cluster.rest_url) as client,
        httpx.Client(base_url=cluster.rest_url, timeout=60) as http,
    ):
        until_true(lambda: client.job(page["jobID"])["state"] in ("RUNNING", "FAILED"), "the job runs")
        paths = [p for p, verbs in http.get("/openapi.json").json()["paths"].items() if "get" in verbs]
        asked = [p.replace("{job}", page["jobID"]) for p in paths if "{" not in p.replace("{job}", "")]
        assert len(asked) > 20
        for path in asked:
            with http.stream("GET", path) as answer:
                if "event-stream" not in answer.headers.get("content-type", ""):
                    said.append(answer.read().decode(errors="replace"))
        client.cancel(page["jobID"])
    said += [p.read_text(errors="replace") for p in cluster.log_dir.rglob("*") if p.is_file()]
    assert not [text for text in said if "plain-and-long" in text]


SCRIPT = """
SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE g (a INT) WITH ('connector' = 'datagen', 'fields.a.kind' = 'sequence', 'fields.a.start' = '1',
  'fields.a.end' = '3');
SHOW TABLES;
SELECT a, CAST(a AS DECIMAL(5, 2)) AS d, DATE '2020-02-03' AS dt, ARRAY[a, 2] AS l, MAP['k', a] AS m FROM g;
CREATE TABLE o (a INT) WITH ('connector' = 'blackhole');
BEGIN STATEMENT SET;
INSERT INTO o SELECT a FROM g;
INSERT INTO o SELECT a + 1 FROM g;
END;
SELECT nope FROM g;
"""


@pytest.mark.skipif(
    not CLIENT_PATH or shutil.which("java") is None,
    reason="PENSTOCK_FLINK_SQL_CLIENT does not name the jars of Flink's SQL client, or there is no Java",
)
def test_flinks_own_sql_client(gateway: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT)
    (tmp_path / "config.yaml").write_text("rest:\n  address: elsewhere\n")
    address = gateway.removeprefix("http://")
    done = subprocess.run(
        ["java", "-cp", str(CLIENT_PATH), "org.apache.flink.table.client.SqlClient",
         "gateway", "-e", address, "-f", str(script), "-hist", str(tmp_path / "history")],
        env={**os.environ, "FLINK_CONF_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    said = done.stdout
    assert "1 row in set" in said
    for a in (1, 2, 3):
        assert re.search(rf"\+I \| +{a} \| +{a}\.00 \| 2020-02-03 \| +\[{a}, 2\] \| +{{k={a}}} \|", said), (
            said
        )
    assert "Received a total of 3 rows" in said
    assert len(re.findall(r"Job ID: [0-9a-f]{32}", said)) == 1
    assert "unknown column 'nope'" in said
