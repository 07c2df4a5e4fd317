"""The login of a browser at a real OpenID Connect provider, which runs here: redirect, callback, log-out, and who is refused."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import threading
import time
from base64 import urlsafe_b64encode
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from penstock.errors import SpecError
from penstock_services.common.http import UnauthorizedError
from penstock_services.common.security.code_flow import PATIENCE_S, CodeFlow
from penstock_services.common.security.front_door import front_door
from penstock_services.common.security.oidc import Oidc
from penstock_services.common.security.sessions import Sessions
from tests.services.common.test_oidc import CONFIG, ISSUER, OTHER, Provider, token
from tests.services.dispatcher.conftest import *  # noqa: F403  (the fixture front)

#: The provider's own use of Authlib.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ASK = {"accept": "text/html"}


@pytest.fixture(scope="module")
def provider():
    """The address of a provider that Authlib makes. It takes a code only with the verifier of its challenge."""
    mock = pytest.importorskip("oidc_provider_mock")
    import flask
    from werkzeug.serving import make_server

    users = [mock.User(sub="ada", claims={"roles": ["devs"]}), mock.User(sub="eve", claims={"roles": []})]
    app = mock.app(require_nonce=True, user_claims=users)
    challenges: dict[str, str] = {}

    @app.after_request
    def remember(answer):
        asked = flask.request
        if asked.path == "/oauth2/authorize" and asked.method == "POST" and answer.status_code == 302:
            code = parse_qs(urlsplit(answer.headers["location"]).query).get("code", [""])[0]
            assert asked.args["code_challenge_method"] == "S256"
            challenges[code] = asked.args["code_challenge"]
        return answer

    @app.before_request
    def compare():
        if flask.request.path == "/oauth2/token":
            verifier = hashlib.sha256(flask.request.form["code_verifier"].encode()).digest()
            made = urlsafe_b64encode(verifier).rstrip(b"=").decode()
            if challenges.pop(flask.request.form["code"], None) != made:
                return flask.jsonify(error="invalid_grant"), 400
        return None

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
        yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(30)
    server.server_close()


def config_of(provider: str, base: str, **more: str) -> dict[str, str]:
    return {
        "security.rest.oidc.issuer": provider,
        "security.rest.oidc.audience": "penstock-api",
        "security.rest.oidc.roles": "devs=operate",
        "security.rest.oidc.client-id": "penstock-ui",
        "security.rest.oidc.redirect-url": f"{base}/auth/callback",
        **more,
    }


class Browser:
    """A browser beside a dispatcher's app; ``begin`` asks it for the login."""

    def __init__(self, app) -> None:
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://d", headers={"origin": "http://d"}
        )

    async def begin(self) -> str:
        answer = await self.http.get("/auth/login")
        assert answer.status_code == 303, answer.text
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        return answer.headers["location"]

    async def finish(self, callback: str, **changed: str) -> httpx.Response:
        query = dict(parse_qsl(urlsplit(callback).query)) | changed
        return await self.http.get("/auth/callback", params={k: v for k, v in query.items() if v})


@pytest.fixture
def secret(tmp_path) -> dict[str, str]:
    (tmp_path / "secret").write_text("s:e%cret\n")
    return {"security.rest.oidc.client-secret-file": str(tmp_path / "secret")}


@pytest.fixture
def app(front, provider, secret):
    config = config_of(provider, "http://d", **secret)
    return front.rest.app(front_door(config, "0.0.0.0", "rest.bind-address"))


async def agreed(address: str, sub: str = "ada", **form: str) -> str:
    """The provider's page, agreed to: where it sends the browser."""
    async with httpx.AsyncClient() as http:
        answer = await http.post(address, data={"sub": sub, **form})
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith("http://d/auth/callback?")
    return answer.headers["location"]


async def test_somebody_logs_in_and_out_at_the_provider(app):
    browser = Browser(app)
    async with browser.http:
        assert 'href="/auth/login"' in (await browser.http.get("/", headers=ASK)).text
        entered = await browser.finish(await agreed(await browser.begin()))
        assert entered.status_code == 200, entered.text
        assert 'http-equiv="refresh"' in entered.text
        session, begun = entered.headers.get_list("set-cookie")
        assert session.startswith("penstock_session=")
        assert "httponly" in session.lower()
        assert "samesite=strict" in session.lower()
        assert begun.startswith('penstock_login=""')
        assert (await browser.http.get("/jobs")).status_code == 200
        # The role is that of the claim: it may cancel, not submit.
        assert (await browser.http.patch("/jobs/" + "a" * 32)).status_code == 404
        assert (await browser.http.post("/jobs", content=b"{}")).status_code == 403
        left = await browser.http.post("/auth/logout")
        end = urlsplit(left.headers["location"])
        assert end.path == "/oauth2/end_session"
        assert parse_qs(end.query)["post_logout_redirect_uri"] == ["http://d/login"]
        assert (await browser.http.get("/jobs")).status_code == 401


async def test_who_is_refused(app):
    browser, other = Browser(app), Browser(app)
    async with browser.http, other.http:
        callback = await agreed(await browser.begin())
        # A browser that did not begin it; one that began another: its code is worth nothing there (PKCE).
        assert (await other.finish(callback)).status_code == 401
        state = dict(parse_qsl(urlsplit(await other.begin()).query))["state"]
        assert (await other.finish(callback)).status_code == 401
        await other.begin()
        stolen = await other.begin()
        state = dict(parse_qsl(urlsplit(stolen).query))["state"]
        injected = await other.finish(callback, state=state)
        assert injected.status_code == 401
        assert "does not take the code" in injected.text
        # Nor at home any more: the provider knows a code once.
        assert (await browser.finish(callback)).status_code == 401
        refused = await agreed(await browser.begin(), sub="eve")
        answer = await browser.finish(refused)
        assert "gives no role" in answer.text
        assert "penstock_session" not in answer.headers.get("set-cookie", "")
        for changed in (
            {"state": ""},
            {"state": "x" * 43},
            {"iss": "http://evil"},
            {"code": ""},
            {"error": "<b>no</b>"},
        ):
            answer = await browser.finish(await agreed(await browser.begin()), **changed)
            assert answer.status_code == 401, changed
            assert "<b>" not in answer.text
        assert (await browser.http.get("/jobs")).status_code == 401


# -- a provider that lies -----------------------------------------------------------------


class Lying:
    """A provider whose answers a test chooses, with real keys."""

    def __init__(self) -> None:
        self.real = Provider()
        self.claims: dict[str, object] = {}
        self.answer: dict[str, object] = {}
        self.more: dict[str, object] = {}
        self.now_s = time.time()
        transport = httpx.MockTransport(self.say)
        oidc = Oidc(CONFIG, transport=transport, now_s=lambda: self.now_s)
        options = {
            "security.rest.oidc.client-id": "ui",
            "security.rest.oidc.redirect-url": "http://d/auth/callback",
        }
        self.flow = CodeFlow(
            oidc, Sessions(b"k" * 32), {**CONFIG, **options}, now_s=lambda: self.now_s, transport=transport
        )

    def say(self, request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/token":
                return httpx.Response(200, json=self.answer)
            case "/userinfo":
                return httpx.Response(200, json=self.more)
            case path if path.endswith("openid-configuration"):
                ends = {
                    f"{name}_endpoint": f"{ISSUER}/{name}" for name in ("authorization", "token", "userinfo")
                }
                return httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys", **ends})
        return self.real.answer(request)

    async def login(self, later_s: float = 0.0, **claims: object):
        address, cookie = await self.flow.begin()
        asked = dict(parse_qsl(urlsplit(address).query))
        made = {"aud": "ui", "nonce": asked["nonce"], **claims}
        key = made.pop("key", None)
        self.answer = {"id_token": token(**({"key": key} if key else {}), **made), "access_token": "a"}
        self.now_s += later_s
        return await self.flow.finish({"state": asked["state"], "code": "c"}, cookie)


async def test_tokens_of_a_login_are_checked():
    assert (await Lying().login()).name == "u1"
    for claims in (
        {"nonce": "another"}, {"nonce": None}, {"aud": "penstock"}, {"azp": "another"}, {"iss": "http://evil"}, {"key": OTHER},
        {"realm": {"roles": ["nobody"]}}, {"later_s": PATIENCE_S + 1},
    ):  # fmt: skip
        with pytest.raises(UnauthorizedError):
            await Lying().login(**claims)


async def test_roles_may_come_from_what_the_provider_tells_beside_the_token():
    lying = Lying()
    lying.more = {"sub": "u1", "realm": {"roles": ["devs"]}}
    assert (await lying.login(realm=None)).role.word == "submit"
    lying.more["sub"] = "another"
    with pytest.raises(UnauthorizedError, match="gives no role"):
        await lying.login(realm=None)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"security.rest.oidc.redirect-url": ""}, "redirect-url"),
        ({"security.rest.oidc.redirect-url": "http://d/jobs"}, "redirect-url"),
        ({"security.rest.oidc.client-secret-file": "/nowhere"}, "client-secret-file"),
        ({"security.rest.oidc.issuer": ""}, "client-id"),
    ],
)
def test_a_configuration_in_part_is_refused(changed, where):
    with pytest.raises(SpecError) as refused:
        front_door({**config_of("http://p", "http://d"), **changed}, "127.0.0.1", "rest.bind-address")
    assert where in str(refused.value.where)


# -- a real browser -----------------------------------------------------------------------


async def test_a_real_browser_keeps_the_session(front, provider, secret):
    """Chromium holds strict cookies back where another site leads; the dashboard must come up all the same."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.async_api")
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    # Another site than the provider's 127.0.0.1.
    base = f"http://localhost:{listening.getsockname()[1]}"
    app = front.rest.app(front_door(config_of(provider, base, **secret), "127.0.0.1", "rest.bind-address"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with playwright.async_playwright() as running:
            browser = await running.chromium.launch(
                executable_path=CHROMIUM, args=["--headless", "--no-sandbox"]
            )
            page = await browser.new_page()
            page.set_default_timeout(60_000)
            await page.goto(base)
            await page.get_by_role("link", name="organisation").click()
            await page.get_by_placeholder("sub").fill("ada")
            await page.get_by_role("button", name="Authorize").click()
            await page.wait_for_url(f"{base}/")
            assert 'name="token"' not in await page.content(), "the dashboard, not the login"
            jobs = await page.evaluate("fetch('/jobs/overview').then(a => a.status)")
            left = await page.evaluate("fetch('/logout', {method: 'POST'}).then(a => a.url)")
            after = await page.evaluate("fetch('/jobs/overview').then(a => a.status)")
            await browser.close()
    finally:
        server.should_exit = True
        await serving
    assert (jobs, left, after) == (200, f"{base}/login", 401)
