"""``penstock dead-letters`` against a dispatcher's answers, page by page."""

import base64
import json

import pytest

from penstock.api.client import ClusterClient
from penstock.cli.dead_letters import show_dead_letters
from penstock.errors import SpecError

LETTERS = [
    {"operator": "orders", "where": f"topic 'o', partition 0, offset {i}", "error": "no JSON\nexpected: an object",
     "record": "{", "bytes": base64.b64encode(b"{\xff").decode() if i else None, "time_ms": 1_700_000_000_000, "state": "kept"}
    for i in range(3)
]  # fmt: skip


@pytest.fixture
def cluster(monkeypatch):
    def answer(self, method, path, *args, **kwargs):
        if "dead-letters" in path:
            second = path.endswith("after=key%2F1")
            return {
                "dead-letters": LETTERS[2:] if second else LETTERS[:2],
                "next": "key/1",
                "more": not second,
            }
        raise AssertionError(path)

    monkeypatch.setattr(ClusterClient, "jobs", lambda self: [{"jid": "4f1cab"}])
    monkeypatch.setattr(ClusterClient, "_object", answer)
    return "http://127.0.0.1:1"


def test_all_pages_are_listed(cluster, capsys):
    show_dead_letters(cluster, "4f1c", "table", None, raw=False)
    out = capsys.readouterr().out
    assert all(f"offset {i}" in out for i in range(3))
    assert "no JSON" in out
    show_dead_letters(cluster, "4f1c", "json", None, raw=False)
    assert json.loads(capsys.readouterr().out) == LETTERS


def test_one_is_shown_whole_or_as_its_bytes(cluster, capsysbinary):
    show_dead_letters(cluster, "4f1c", "table", 3, raw=False)
    assert json.loads(capsysbinary.readouterr().out) == LETTERS[2]
    show_dead_letters(cluster, "4f1c", "table", 3, raw=True)
    assert capsysbinary.readouterr().out == b"{\xff"


@pytest.mark.parametrize(
    ("number", "raw", "names"), [(4, False, "from 1 to 3"), (0, False, "from 1"), (1, True, "no bytes")]
)
def test_what_is_not_there_is_named(cluster, number, raw, names):
    with pytest.raises(SpecError, match=names):
        show_dead_letters(cluster, "4f1c", "table", number, raw=raw)
