"""The gateway's REST API without a cluster: sessions, statements that start no job, refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.config import GATEWAY_SESSIONS, GATEWAY_THREADS
from penstock_services.common.security.front_door import front_door
from penstock_services.common.security.tokens import digest
from penstock_services.gateway import main
from penstock_services.gateway.app import Gateway
from penstock_services.gateway.sessions import Sessions


class Client:
    """A client with a session."""

    def __init__(self, http: httpx.AsyncClient, session: str, sessions: Sessions) -> None:
        self.http, self.base, self.sessions = http, f"/v2/sessions/{session}", sessions
        self.session = session

    async def get(self, path: str) -> Any:
        return (await self.http.get(self.base + path)).json()

    async def start(self, statement: str, **body: Any) -> str:
        answer = await self.http.post(f"{self.base}/statements", json={"statement": statement, **body})
        return answer.json()["operationHandle"]

    async def run(self, statement: str, **body: Any) -> dict[str, Any]:
        """The first page of a statement's result, or its error."""
        operation = await self.start(statement, **body)
        page = {"resultType": "NOT_READY"}
        while page.get("resultType") == "NOT_READY":  # the gateway waits a moment before it says so
            page = await self.get(f"/operations/{operation}/result/0")
        return page

    async def rows(self, statement: str, **body: Any) -> list[list[Any]]:
        page = await self.run(statement, **body)
        return [row["fields"] for row in page["results"]["data"]]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    sessions = Sessions({"parallelism.default": "3"}, idle_s=60, most=2, now=CLOCK)
    transport = httpx.ASGITransport(app=Gateway(sessions).app())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        opened = await http.post("/v2/sessions", json={"properties": {"table.local-time-zone": "Asia/Tokyo"}})
        yield Client(http, opened.json()["sessionHandle"], sessions)


@pytest.mark.parametrize("version", ["", "/v1", "/v2", "/v3", "/v4"])
async def test_every_version_of_the_api_answers(client: Client, version: str) -> None:
    assert (await client.http.get(f"{version}/api_versions")).json() == {"versions": ["V1", "V2", "V3", "V4"]}
    assert set((await client.http.get(f"{version}/info")).json()) == {"productName", "version"}


async def test_a_session_has_the_gateways_settings_and_the_clients(client: Client) -> None:
    properties = (await client.get(""))["properties"]
    assert properties == {"parallelism.default": "3", "table.local-time-zone": "Asia/Tokyo"}


async def test_what_is_not_a_sessions_to_set_is_left_out(client: Client) -> None:
    given = {
        "rest.address": "http://elsewhere",
        "jobmanager.rpc.address": "x",
        "rest.port": "1",
        "parallelism.default": "2",
    }
    opened = await client.http.post("/v4/sessions", json={"sessionName": "s", "properties": given})
    session = opened.json()["sessionHandle"]
    assert (await client.http.get(f"/v4/sessions/{session}")).json()["properties"] == {
        "parallelism.default": "2"
    }


async def test_no_more_sessions_than_may_be(client: Client) -> None:
    await client.http.post("/sessions", json={})
    refused = await client.http.post("/sessions", json={})
    assert refused.status_code == 400
    assert GATEWAY_SESSIONS.key in refused.json()["errors"][0]


async def test_statements_change_the_session(client: Client) -> None:
    page = await client.run("CREATE TABLE a (x INT) WITH ('connector' = 'datagen')")
    assert (page["resultKind"], page["isQueryResult"]) == ("SUCCESS", False)
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["OK"]}]
    assert await client.rows("SHOW TABLES") == [["a"]]
    await client.rows("SET 'parallelism.default' = '5'")
    assert (await client.get(""))["properties"]["parallelism.default"] == "5"


async def test_the_settings_of_sql_clients_are_kept_for_them(client: Client) -> None:
    await client.rows("SET 'sql-client.execution.result-mode' = 'tableau'")
    assert (await client.get(""))["properties"]["sql-client.execution.result-mode"] == "tableau"
    await client.rows("RESET 'sql-client.execution.result-mode'")
    assert "sql-client.execution.result-mode" not in (await client.get(""))["properties"]


async def test_settings_of_one_statement_end_with_it(client: Client) -> None:
    rows = await client.rows("SET", executionConfig={"parallelism.default": "9"})
    assert ["parallelism.default", "9"] in [row[:2] for row in rows]
    assert (await client.get(""))["properties"]["parallelism.default"] == "3"


async def test_a_session_is_configured(client: Client) -> None:
    body = {"statement": "CREATE TABLE a (x INT) WITH ('connector' = 'datagen')"}
    assert (await client.http.post(f"{client.base}/configure-session", json=body)).json() == {}
    assert await client.rows("SHOW TABLES") == [["a"]]
    refused = await client.http.post(f"{client.base}/configure-session", json={"statement": "SELECT 1"})
    assert refused.status_code == 400
    assert "starts a job" in refused.json()["errors"][0]


async def test_words_are_completed(client: Client) -> None:
    await client.rows("CREATE TABLE bids (auction INT) WITH ('connector' = 'datagen')")
    body = {"statement": "SELECT * FROM bi", "position": 16}
    found = await client.http.request("GET", f"{client.base}/complete-statement", json=body)
    assert "bids" in found.json()["candidates"]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC 1", "did you mean SELECT"),
        ("SELECT nope FROM t", "nope|unknown table"),
        ("SHOW TABLES; SHOW VIEWS", "one statement"),
        ("", "one statement"),
        ("END", "BEGIN STATEMENT SET"),
    ],
)
async def test_a_wrong_statement_is_told_by_its_result(client: Client, statement: str, words: str) -> None:
    page = await client.run(statement)
    assert list(page) == ["errors"]
    assert any(word in page["errors"][0] for word in words.split("|"))


async def test_refused_statements_are_told_with_what_to_do_instead(client: Client) -> None:
    for statement in ("ADD JAR '/x.jar'", "CREATE TEMPORARY MODEL m WITH ('provider' = 'x')", "SHOW CONNECTIONS",
                      "SELECT * FROM f(TABLE t PARTITION BY a)", "ALTER TEMPORARY FUNCTION f AS 'm.x'"):  # fmt: skip
        page = await client.run(statement)
        assert list(page) == ["errors"], statement
        assert "PS-UNSUPPORTED" in page["errors"][0], statement
        assert "do: " in page["errors"][0], statement


async def test_a_statement_set_takes_only_inserts(client: Client) -> None:
    await client.rows("CREATE TABLE o (x INT) WITH ('connector' = 'blackhole')")
    assert await client.rows("BEGIN STATEMENT SET;") == [["OK"]]
    assert await client.rows("INSERT INTO o SELECT 1;") == [["OK"]]
    assert "only INSERT" in (await client.run("SHOW TABLES"))["errors"][0]
    assert "open already" in (await client.run("BEGIN STATEMENT SET"))["errors"][0]


async def test_operations_and_sessions_end(client: Client) -> None:
    operation = await client.start("SHOW TABLES")
    closed = await client.http.delete(f"{client.base}/operations/{operation}/close")
    assert closed.json() == {"status": "CLOSED"}
    assert (await client.http.get(f"{client.base}/operations/{operation}/status")).status_code == 404
    assert (await client.http.delete(client.base)).json() == {"status": "CLOSED"}
    assert (await client.http.get(client.base)).status_code == 404
    assert len(client.sessions) == 0


async def test_a_session_whose_client_is_silent_ends(client: Client) -> None:
    CLOCK.now += 59
    assert (await client.http.post(f"{client.base}/heartbeat")).json() == {}
    CLOCK.now += 59
    client.sessions.expire()
    assert len(client.sessions) == 1
    CLOCK.now += 2
    client.sessions.expire()
    assert len(client.sessions) == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/v2/sessions/x", None, 404),
        ("GET", "{base}/operations/x/status", None, 404),
        ("GET", "{base}/operations/{operation}/result/-1", None, 400),
        ("GET", "{base}/operations/{operation}/result/0?rowFormat=XML", None, 400),
        ("POST", "{base}/statements", "{", 400),
        ("POST", "{base}/statements", '{"statement": 1}', 400),
        ("POST", "{base}/statements", "[" * 100_000, 400),
        ("POST", "{base}/statements", '{"statement": "SHOW TABLES", "executionTimeout": 5}', 400),
        ("POST", "{base}/scripts", '{"script": "SELECT 1"}', 400),
        ("POST", "{base}/statements", "x" * (5 << 20), 413),
    ],
)
async def test_bad_requests_are_refused(
    client: Client, method: str, path: str, body: str | None, status: int
) -> None:
    operation = await client.start("SHOW TABLES")
    path = path.format(base=client.base, operation=operation)
    answer = await client.http.request(method, path, content=body)
    assert answer.status_code == status
    assert list(answer.json()) == ["errors"]


async def test_a_session_runs_on_the_gateways_cluster(client: Client) -> None:
    page = await client.run("SET 'rest.address' = 'http://elsewhere'")
    assert "cannot set 'rest.address'" in page["errors"][0]


async def test_a_module_that_ends_its_program_does_not_end_the_gateway(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_the_program.py").write_text("import sys\n\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    statement = "CREATE FUNCTION f AS 'ends_the_program.f' LANGUAGE PYTHON"
    page = await client.run(statement)
    assert "SystemExit: 3" in page["errors"][0]
    refused = await client.http.post(f"{client.base}/configure-session", json={"statement": statement})
    assert "SystemExit: 3" in refused.json()["errors"][0]


async def test_no_more_statements_at_once_than_may_be(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.sessions, "_statements", 1)
    session = client.sessions.get(client.session)
    with session._planning:  # so that the first one waits
        await client.start("SHOW TABLES")
        refused = await client.http.post(f"{client.base}/statements", json={"statement": "SHOW TABLES"})
    assert refused.status_code == 400
    assert GATEWAY_THREADS.key in refused.json()["errors"][0]


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({"rest.port": "81"}, "http://127.0.0.1:81"),
        ({"rest.port": "81", "security.ssl.rest.certificate": "/a.pem"}, "https://127.0.0.1:81"),
    ],
)
def test_the_dispatcher_of_the_same_machine_is_found_with_its_tls(config, address):
    assert main.dispatcher_of(config) == address


async def test_the_catalog_is_shown_without_passwords(client: Client, tmp_path: Path) -> None:
    await client.rows("CREATE TABLE a (k INT, t TIMESTAMP(3), WATERMARK FOR t AS t, PRIMARY KEY (k) NOT ENFORCED) "
                      "COMMENT 'of a' WITH ('connector' = 'blackhole', 'password' = 'plain')")  # fmt: skip
    await client.rows("CREATE VIEW v AS SELECT k FROM (VALUES (1)) AS x (k)")
    await client.rows(f"CREATE CATALOG kept WITH ('type' = 'penstock', 'path' = '{tmp_path}')")
    found = await client.get("/catalog")
    own = {"name": "default_catalog", "databases": ["default_database"], "problem": ""}
    assert found["catalogs"] == [own, {"name": "kept", "databases": ["default"], "problem": ""}]
    assert (found["catalog"], found["database"]) == ("default_catalog", "default_database")
    assert {"name": "UPPER", "own": False} in found["functions"]
    assert "SELECT" in found["keywords"]
    tables = await client.get("/tables?catalog=default_catalog&database=default_database")
    assert [(t["name"], t["view"], t["comment"]) for t in tables["tables"]] == [
        ("a", False, "of a"),
        ("v", True, ""),
    ]
    [a, v] = tables["tables"]
    assert a["options"] == {"connector": "blackhole", "password": "******"}
    assert [(c["name"], c["type"], c["key"], c["watermark"]) for c in a["columns"]] == [
        ("k", "INT", "PRI(k)", ""),
        ("t", "TIMESTAMP(3) *ROWTIME*", "", "t"),
    ]
    assert [c["name"] for c in v["columns"]] == ["k"]
    await client.rows("USE CATALOG kept")
    await client.rows("CREATE TABLE b (x INT) WITH ('connector' = 'blackhole')")
    [b] = (await client.get("/tables?catalog=kept&database=default"))["tables"]
    assert (b["name"], b["columns"][0]["name"]) == ("b", "x")
    assert [
        t["name"]
        for t in (await client.get("/tables?catalog=default_catalog&database=default_database"))["tables"]
    ] == ["a", "v"]
    assert "unknown database" in (await client.get("/tables?catalog=kept&database=no"))["errors"][0]


async def test_only_what_changes_something_is_audited(tmp_path) -> None:
    tokens, audit = tmp_path / "tokens.yaml", tmp_path / "audit.jsonl"
    tokens.write_text(json.dumps([{"name": "me", "role": "submit", "sha256": digest("w" * 32)}]))
    config = {"security.rest.tokens-file": str(tokens), "security.audit.file": str(audit)}
    app = Gateway(Sessions({}, idle_s=60, most=2)).app(front_door(config, "0.0.0.0", "k"))
    transport, headers = httpx.ASGITransport(app=app), {"authorization": f"Bearer {'w' * 32}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
        session = f"/v2/sessions/{(await http.post('/v2/sessions', json={})).json()['sessionHandle']}"
        started = await http.post(f"{session}/statements", json={"statement": "SHOW TABLES"})
        operation = f"{session}/operations/{started.json()['operationHandle']}"
        for path in (session, f"{operation}/status", f"{operation}/result/0", f"{session}/catalog"):
            assert (await http.get(path)).status_code == 200
        await http.post(f"{session}/heartbeat", json={})
        del http.headers["authorization"]
        assert (await http.get(session)).status_code == 401
        http.headers.update(headers)
        assert (await http.delete(session)).status_code == 200
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["method"], line["status"]) for line in lines] == [
        ("POST", 200),
        ("POST", 200),
        ("GET", 401),
        ("DELETE", 200),
    ]
