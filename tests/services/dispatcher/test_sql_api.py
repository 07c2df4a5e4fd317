"""The relay to the SQL gateway: what passes, with whose proof, and what is said where no gateway answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.errors import REST_ERROR_TYPE
from penstock_services.common.security.front_door import FrontDoor, front_door, open_door
from penstock_services.common.security.tokens import digest
from penstock_services.dispatcher.identity_api import IdentityApi
from penstock_services.dispatcher.rest import application
from penstock_services.dispatcher.sql_api import SqlApi, address_of
from penstock_services.gateway.app import Gateway
from penstock_services.gateway.sessions import Sessions

TOKENS = {"submit": "pst_submit_0123456789abcdef0123456789", "read": "pst_read_0123456789abcdef012345678901"}
ACCEPT = {"accept": f"application/json, {REST_ERROR_TYPE}"}


def door(folder: Path, key: str = "one") -> FrontDoor:
    """A door that asks for one of ``TOKENS``; browsers' sessions are signed with ``key``."""
    entries = [
        {"name": f"a-{role}er", "role": role, "sha256": digest(token)} for role, token in TOKENS.items()
    ]
    (folder / "tokens.yaml").write_bytes(msgspec.json.encode(entries))
    (folder / key).write_text(key * 20)
    config = {
        "security.rest.tokens-file": str(folder / "tokens.yaml"),
        "security.rest.session-key-file": str(folder / key),
    }
    return front_door(config, "127.0.0.1", "rest.bind-address")


def pair(dispatcher: FrontDoor, gateway: FrontDoor) -> httpx.AsyncClient:
    """A client of a dispatcher that relays to a gateway."""
    sessions = Sessions({}, idle_s=60, most=2)
    behind = httpx.ASGITransport(app=Gateway(sessions).app(gateway))
    api = SqlApi({"sql-gateway.address": "http://127.0.0.1:8083/"}, behind)
    app = application([*api.endpoints(), *IdentityApi().endpoints()], dispatcher)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1", headers=ACCEPT
    )


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with pair(open_door(), open_door()) as client:
        yield client


async def run(http: httpx.AsyncClient, session: str, statement: str) -> httpx.Response:
    """The first page of a statement's result, or its error."""
    base = f"/sql/sessions/{session}"
    started = await http.post(f"{base}/statements", json={"statement": statement})
    page = f"{base}/operations/{started.json()['operationHandle']}/result/0?rowFormat=JSON"
    while (answer := await http.get(page)).json().get("resultType") == "NOT_READY":
        pass
    return answer


async def test_statements_pass_and_errors_have_their_place(http: httpx.AsyncClient) -> None:
    assert (await http.get("/sql")).json() == {"address": "http://127.0.0.1:8083", "problem": ""}
    session = (await http.post("/sql/sessions", json={})).json()["sessionHandle"]
    made = await run(
        http, session, "CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'password' = 'plain')"
    )
    assert made.json()["resultKind"] == "SUCCESS"
    wrong = await run(http, session, "\n SELECT nope FROM (VALUES (1)) AS v (a)")
    assert wrong.status_code == 400
    assert wrong.json()["error"]["where"] == "line 2, column 9"
    tables = await http.get(
        f"/sql/sessions/{session}/tables?catalog=default_catalog&database=default_database"
    )
    [table] = tables.json()["tables"]
    assert (table["name"], table["options"]["password"]) == ("t", "******")
    assert [(c["name"], c["type"], c["null"]) for c in table["columns"]] == [("a", "INT", True)]
    assert (await http.delete(f"/sql/sessions/{session}")).json() == {"status": "CLOSED"}


@pytest.mark.parametrize(
    "path", ["/sql/sessions/a%2f..%2fb", "/sql/sessions/x/operations/y/result/z", "/sql/info"]
)
async def test_what_names_no_session_does_not_reach_the_gateway(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


async def test_an_unknown_session_is_the_gateways_error(http: httpx.AsyncClient) -> None:
    answer = await http.get("/sql/sessions/0")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "there is no session '0'"


async def login(http: httpx.AsyncClient, role: str) -> None:
    page = await http.post("/login", data={"token": TOKENS[role]}, headers={"origin": "http://127.0.0.1"})
    assert page.status_code == 303


OWN_PAGE = {"origin": "http://127.0.0.1"}


async def test_a_browsers_login_passes_to_a_gateway_with_the_same_key(tmp_path: Path) -> None:
    async with pair(door(tmp_path), door(tmp_path)) as http:
        assert (await http.get("/sql")).status_code == 401
        await login(http, "submit")
        assert (await http.get("/whoami")).json() == {
            "name": "a-submiter", "role": "submit", "via": "session", "may-submit": True,
        }  # fmt: skip
        assert (await http.get("/sql")).json()["problem"] == ""
        assert (await http.post("/sql/sessions", json={}, headers=OWN_PAGE)).status_code == 200
        # Not from a page that is not ours.
        assert (await http.post("/sql/sessions", json={})).status_code == 403


async def test_who_may_only_read_runs_no_sql(tmp_path: Path) -> None:
    async with pair(door(tmp_path), door(tmp_path)) as http:
        await login(http, "read")
        assert (await http.get("/whoami")).json()["may-submit"] is False
        refused = await http.post("/sql/sessions", json={}, headers=OWN_PAGE)
        assert refused.status_code == 403
        assert "the role 'submit' is needed" in refused.text


async def test_a_bearer_token_passes(tmp_path: Path) -> None:
    async with pair(door(tmp_path), door(tmp_path, "two")) as http:
        headers = {"authorization": f"Bearer {TOKENS['submit']}"}
        assert (await http.post("/sql/sessions", json={}, headers=headers)).status_code == 200


async def test_a_gateway_with_another_key_is_told(tmp_path: Path) -> None:
    async with pair(door(tmp_path), door(tmp_path, "two")) as http:
        await login(http, "submit")
        problem = (await http.get("/sql")).json()["problem"]
        assert "does not accept your login" in problem
        assert "security.rest.session-key-file" in problem
        assert (await http.post("/sql/sessions", json={}, headers=OWN_PAGE)).status_code == 503


def refusing(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


async def test_no_gateway_is_told_with_what_to_do() -> None:
    app = application(SqlApi({}, httpx.MockTransport(refusing)).endpoints())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8081"
    ) as http:
        told = (await http.get("/sql")).json()
        assert "penstock sql-gateway -D rest.address=http://127.0.0.1:8081" in told["problem"]
        assert (await http.post("/sql/sessions", json={})).status_code == 503


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ({}, "http://127.0.0.1:8083"),
        ({"sql-gateway.endpoint.rest.port": "9"}, "http://127.0.0.1:9"),
        ({"sql-gateway.address": "https://g:1/"}, "https://g:1"),
        ({"security.rest.tokens-file": "tokens.yaml"}, ""),
        ({"security.rest.tokens-file": "tokens.yaml", "sql-gateway.address": "http://g:1"}, "http://g:1"),
    ],
)
def test_logins_go_to_no_address_that_was_not_named(config: dict[str, Any], address: str) -> None:
    assert address_of(config) == address
