"""Who may do what over REST: tokens, roles, sessions, limits, and the refusal to listen without authentication."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass

import httpx
import msgspec
import pytest

from penstock.errors import SpecError
from penstock_services.common.security.front_door import front_door, is_loopback
from penstock_services.common.security.limits import Limit
from penstock_services.common.security.roles import Role
from penstock_services.common.security.sessions import Session, Sessions
from penstock_services.common.security.tokens import TokenFile, digest, parse_tokens
from tests.services.dispatcher.conftest import *  # noqa: F403  (the fixture front)
from tests.services.jobmanager.graphs import pipeline

WORDS = {role: f"pst_{role.word}_0123456789abcdefghij" for role in Role}


def entry(role: Role, **more) -> dict:
    return {"name": role.word, "role": role.word, "sha256": digest(WORDS[role]), **more}


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.yaml"
    path.write_text(json.dumps([entry(role) for role in Role]))
    return path


@dataclass
class Doored:
    """A dispatcher behind a door. ``audited``: the lines of its audit log."""

    front: object
    app: object
    audit: object

    def client(self, role: Role | None = None, **more) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {WORDS[role]}"} if role else {}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=("192.0.2.7", 1)), base_url="http://d",
            headers={**headers, **more},
        )  # fmt: skip

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture
async def doored(front, tokens, tmp_path):
    audit = tmp_path / "audit.jsonl"
    config = {"security.rest.tokens-file": str(tokens), "security.audit.file": str(audit)}
    return Doored(front, front.rest.app(front_door(config, "0.0.0.0", "rest.bind-address")), audit)


# -- pure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "penstock.example.com", ""])
def test_an_address_beyond_loopback_needs_authentication(host, tokens):
    with pytest.raises(SpecError, match="beyond loopback needs authentication") as caught:
        front_door({}, host, "rest.bind-address")
    assert "security.rest.tokens-file" in str(caught.value)
    assert front_door({"security.rest.tokens-file": str(tokens)}, host, "k").access is not None
    assert front_door({"security.rest.insecure-anyone-may-run-code": "true"}, host, "k").access is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_loopback_needs_none(host):
    assert is_loopback(host)
    assert host in front_door({}, host, "k").hosts


def test_allowed_hosts():
    config = {
        "security.rest.insecure-anyone-may-run-code": "true",
        "security.rest.allowed-hosts": "localhost, Dispatcher",
    }
    assert front_door(config, "0.0.0.0", "k").hosts == {"localhost", "dispatcher"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not YAML"),
        ("a: b", "holds no list"),
        ("[5]", "malformed entry"),
        (json.dumps([{"name": "a", "role": "read"}]), "one of sha256 and secret"),
        (json.dumps([{"name": "a", "role": "root", "sha256": "0" * 64}]), "no such role"),
        (json.dumps([{"name": "a", "role": "read", "sha256": "0" * 63}]), "not the hash"),
        (json.dumps([{"name": "a", "role": "read", "sha256": "0" * 64, "x": 1}]), "malformed entry"),
        (json.dumps([entry(Role.READ), entry(Role.READ)]), "there twice"),
        (json.dumps([entry(Role.READ, expires="soon")]), "not a date"),
        (json.dumps([{"name": "a", "role": "read", "secret": "nowhere"}]), "no secret 'nowhere'"),
    ],
)
def test_files_of_tokens_that_are_refused(text, message):
    with pytest.raises(Exception, match=message):
        parse_tokens(text, "f")


def test_a_token_by_reference_must_be_long(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SECRET_rest", "short")
    with pytest.raises(SpecError, match="a token is too"):
        parse_tokens("[{name: a, role: read, secret: rest}]", "f")
    monkeypatch.setenv("PENSTOCK_SECRET_rest", "x" * 40)
    assert parse_tokens("[{name: a, role: read, secret: rest}]", "f").keys() == {digest("x" * 40)}


def test_a_token_expires_and_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"[{{name: a, role: read, sha256: '{digest('t')}', expires: 2027-01-01}}]")
    file, new_year = TokenFile(str(path)), 1798761600
    assert file.find("t", new_year - 1).name == "a"
    assert file.find("t", new_year) is None
    assert file.find("u", 0) is None
    path.write_text(f"[{{name: b, role: admin, sha256: '{digest('u')}'}}]")
    assert file.find("t", 0) is None
    assert file.find("u", 0).role is Role.ADMIN
    path.write_text("nonsense")
    assert file.find("u", 0).role is Role.ADMIN, "a file that was broken by an edit locks nobody out"


def test_cookies():
    sessions = Sessions(b"k" * 32)
    session = Session(kind="session", name="a", role=1, expires_s=100)
    cookie = sessions.cookie(session)
    assert sessions.read(cookie, "session", 99) == session
    assert sessions.read(cookie, "session", 100) is None
    assert sessions.read(cookie, "login", 1) is None
    assert Sessions(b"l" * 32).read(cookie, "session", 1) is None
    for bad in ("", ".", "a.b", cookie[:-1], "x" + cookie, cookie + "ü", "ü." + cookie):
        assert sessions.read(bad, "session", 1) is None


def test_a_limit_refills():
    limit = Limit(2, 3)
    assert [limit.take("a", 0) for _ in range(4)] == [0, 0, 0, 1]
    assert limit.take("b", 0) == 0
    assert limit.take("a", 0.5) == 0
    assert limit.exhausted("a", 0.5) == 1
    assert [limit.take("a", 100) for _ in range(4)] == [0, 0, 0, 1]
    assert [Limit(0, 0).take("a", 0) for _ in range(9)] == [0] * 9
    assert Limit(0.1, 1).take("a", 0) == 0


# -- over HTTP ----------------------------------------------------------------------------------


async def test_every_endpoint_asks_for_its_role(doored):
    """Each endpoint refuses the role below its own, with a body that says so, and everybody without a token."""
    found = dict.fromkeys(Role, 0)
    async with doored.client() as nobody:
        for endpoint in doored.front.rest.endpoints():
            path = endpoint.path.replace("{", "x").replace("}", "")
            found[endpoint.needs] += 1
            if endpoint.needs > Role.READ:
                async with doored.client(Role(endpoint.needs - 1)) as lesser:
                    refused = await lesser.request(endpoint.method, path)
                    assert refused.status_code == 403, endpoint
                    assert f"the role '{endpoint.needs.word}' is needed" in refused.json()["errors"][0]
        for path in ("/jobs", "/v1/jobs", "/stream", "/openapi.json", "/no/such", "/v1/overview", "/metrics"):
            answer = await nobody.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert all(found.values()), found


async def test_a_token_of_the_role_passes(doored):
    body = msgspec.json.encode({"job_graph": msgspec.to_builtins(pipeline())})
    async with doored.client(Role.SUBMIT) as submitter, doored.client(Role.READ) as reader:
        assert (await reader.post("/jobs", content=body)).status_code == 403
        done = await submitter.post("/jobs", content=body)
        assert done.status_code == 200
        job_id = done.json()["jobid"]
        assert (await reader.get(f"/jobs/{job_id}")).status_code == 200
        assert (await reader.get(f"/jobs/{job_id}/yarn-cancel")).status_code == 403
    refused, accepted, cancelled = doored.lines()
    assert refused["event"] == "request_refused_to_client"
    assert (refused["who"], refused["status"], refused["client"]) == ("read", 403, "192.0.2.7")
    assert accepted["event"] == "request_audited"
    assert (accepted["who"], accepted["role"], accepted["job_id"]) == ("submit", "submit", job_id)
    assert cancelled["path"].endswith("/yarn-cancel")
    assert not any(word in doored.audit.read_text() for word in WORDS.values())


@pytest.mark.parametrize(
    "header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer " + "x" * 20_000, "Bearer wrong", "ü"]
)
async def test_other_credentials(doored, header):
    async with doored.client(authorization=header.encode()) as client:
        assert (await client.get("/jobs")).status_code == 401


async def test_guesses_are_slowed_down(doored):
    async with (
        doored.client(authorization="Bearer guess") as guesser,
        doored.client(Role.READ) as same_address,
    ):
        seen = [(await guesser.get("/jobs")) for _ in range(60)]
        assert seen[0].status_code == 401
        assert seen[-1].status_code == 429
        assert int(seen[-1].headers["retry-after"]) >= 1
        assert (await same_address.get("/jobs")).status_code == 429


async def test_requests_are_limited(front, tokens):
    config = {"security.rest.tokens-file": str(tokens), "security.rest.max-requests-per-second": "1"}
    app = front.rest.app(front_door(config, "127.0.0.1", "k"))
    made = Doored(front, app, None)
    async with (
        made.client(Role.READ, host="localhost") as client,
        made.client(Role.ADMIN, host="localhost") as other,
    ):
        got = [(await client.get("/config")).status_code for _ in range(3)]
        assert got == [200, 200, 429]
        assert (await other.get("/config")).status_code == 200


# -- browsers -----------------------------------------------------------------------------------


async def test_a_browser_logs_in(doored, tokens):
    async with doored.client(origin="http://d") as browser:
        first = await browser.get("/")
        assert 'name="token"' in first.text
        assert "form-action 'self'" in first.headers["content-security-policy"]
        # With no-referrer browsers send the origin "null", and the form is refused as a foreign page's.
        assert (await browser.get("/login")).headers["referrer-policy"] == "same-origin"
        assert (await browser.post("/login", data={"token": "wrong"})).status_code == 401
        entered = await browser.post("/login", data={"token": WORDS[Role.OPERATE]})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert WORDS[Role.OPERATE] not in cookie
        assert 'name="token"' not in (await browser.get("/")).text
        assert (await browser.get("/jobs")).status_code == 200
        assert (await browser.patch("/jobs/" + "a" * 32)).status_code == 404
        assert (await browser.post("/jobs", content=b"{}")).status_code == 403
        # A page of another site, and one that hides where it is from.
        evil = await browser.patch("/jobs/" + "a" * 32, headers={"origin": "http://evil"})
        assert evil.status_code == 403
        del browser.headers["origin"]
        assert (await browser.patch("/jobs/" + "a" * 32)).status_code == 403
        assert (
            await browser.patch("/jobs/" + "a" * 32, headers={"sec-fetch-site": "same-origin"})
        ).status_code == 404
        # Whose token is taken back is logged out.
        kept = [entry(role) for role in Role if role is not Role.OPERATE]
        tokens.write_text(json.dumps(kept))
        os.utime(tokens, ns=(time.time_ns(), time.time_ns() + 1))
        assert (await browser.get("/jobs")).status_code == 401


async def test_a_browser_logs_out(doored):
    async with doored.client(origin="http://d") as browser:
        await browser.post("/login", data={"token": WORDS[Role.READ]})
        left = await browser.post("/logout")
        assert left.status_code == 303
        assert (await browser.get("/jobs")).status_code == 401
