"""What a client proves itself with, and where it finds that."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner

from penstock.api.client import ClusterClient
from penstock.cli.main import app
from penstock.credentials import credentials
from penstock.errors import SpecError
from penstock_services.common.security.roles import WORDS
from penstock_services.common.security.tokens import parse_tokens

URL = "https://penstock.example.com:8081"


@pytest.fixture(autouse=True)
def nothing(monkeypatch, tmp_path):
    for name in ("TOKEN", "TOKEN_FILE", "PROFILE", "CA_FILE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def profile(tmp_path, text: str, mode: int = 0o600):
    path = tmp_path / ".config" / "penstock" / "profile.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_order_of_places(monkeypatch, tmp_path):
    assert credentials(URL).headers() == {}
    profile(tmp_path, f"clusters: {{'{URL}/': {{token: of-profile}}}}")
    assert credentials(URL).headers() == {"authorization": "Bearer of-profile"}
    assert credentials("http://127.0.0.1:8081").headers() == {}
    (tmp_path / "t").write_text("of-file\n")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "t"))
    assert credentials(URL).token == "of-file"
    monkeypatch.setenv("PENSTOCK_TOKEN", "of-environment")
    assert credentials(URL).token == "of-environment"
    assert "of-environment" not in repr(credentials(URL))


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("clusters: {}", 0o640, "others may read"),
        ("{", 0o600, "not YAML"),
        ("5", 0o600, "cannot be understood"),
        (f"clusters: {{'{URL}': {{tokn: x}}}}", 0o600, "entry cannot be understood"),
    ],
)
def test_profiles_that_are_refused(tmp_path, text, mode, message):
    profile(tmp_path, text, mode)
    with pytest.raises(SpecError, match=message):
        credentials(URL)


def test_files_that_are_not_there(monkeypatch):
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", "/not/there")
    with pytest.raises(SpecError, match="cannot be read"):
        credentials(URL)
    monkeypatch.delenv("PENSTOCK_TOKEN_FILE")
    monkeypatch.setenv("PENSTOCK_PROFILE", "/not/there")
    with pytest.raises(SpecError, match="no such profile"):
        credentials(URL)


def test_the_client_sends_its_token(monkeypatch):
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_x")
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json={"jobs": []})

    with ClusterClient("http://c", transport=httpx.MockTransport(answer)) as client:
        assert client.jobs() == []
    assert seen == ["Bearer pst_x"]


def test_a_made_token_is_one_that_a_cluster_takes(monkeypatch):
    for role in WORDS:
        made = json.loads(CliRunner().invoke(app, ["token", "me", "--role", role, "--format", "json"]).stdout)
        ((digest, entry),) = parse_tokens(json.dumps([made["entry"]]), "f").items()
        assert (entry.name, entry.role.word, digest) == ("me", role, made["entry"]["sha256"])
    text = CliRunner().invoke(app, ["token", "me"]).stdout
    ((_, entry),) = parse_tokens(text.partition("\n\n- ")[2].join(["- ", ""]), "f").items()
    assert entry.role.word == "read"
