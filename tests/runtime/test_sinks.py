"""Changes as a table written by key gets them."""

from __future__ import annotations

import pytest

from penstock.connectors.blackhole import BlackholeWriter
from penstock.jobgraph.graph import JobGraph
from penstock.operators.sinks import by_key
from penstock.testing import GraphBuilder, run_graph
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind

SCHEMA = t.Schema.of(("k", t.VarCharType()), ("n", t.IntType()))
INSERT, BEFORE, AFTER, DELETE = RowKind


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # an update in place
        ([(BEFORE, "a", 1), (AFTER, "a", 2)], [(AFTER, "a", 2)]),
        ([(BEFORE, None, 1), (AFTER, None, 2)], [(AFTER, None, 2)]),
        # the new row failed a filter
        ([(BEFORE, "a", 1)], [(DELETE, "a", 1)]),
        ([(BEFORE, "a", 1), (BEFORE, "b", 1), (AFTER, "b", 2)], [(DELETE, "a", 1), (AFTER, "b", 2)]),
        # it came back under another key
        ([(BEFORE, "a", 1), (AFTER, "b", 1)], [(DELETE, "a", 1), (AFTER, "b", 1)]),
        ([(BEFORE, None, 1), (AFTER, "b", 1)], [(DELETE, None, 1), (AFTER, "b", 1)]),
        # nothing to change
        ([(INSERT, "a", 1), (AFTER, "a", 2), (DELETE, "a", 2)], [(INSERT, "a", 1), (AFTER, "a", 2), (DELETE, "a", 2)]),
    ],
)  # fmt: skip
def test_by_key(changes: list[tuple], expected: list[tuple]) -> None:
    batch = Batch.of(SCHEMA, [row for _, *row in changes], kinds=[kind for kind, *_ in changes])
    assert [(kind, *row) for kind, row in by_key(batch, (0,)).rows()] == expected


def test_plain_inserts_stay_as_they_are() -> None:
    batch = Batch.of(SCHEMA, [("a", 1), ("b", 2)])
    assert by_key(batch, (0,)) is batch


def test_a_writer_is_not_asked_what_it_waits_for_once_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task reports its metrics once more when it has ended."""
    asked: list[bool] = []

    async def close(self: BlackholeWriter) -> None:
        monkeypatch.setattr(BlackholeWriter, "away", lambda self: asked.append(True))

    monkeypatch.setattr(BlackholeWriter, "close", close)
    run_graph(_into_a_blackhole())
    assert asked == []


def test_a_writer_that_cannot_say_what_it_waits_for_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: BlackholeWriter) -> str:
        raise AttributeError("no client")

    monkeypatch.setattr(BlackholeWriter, "away", away)
    run_graph(_into_a_blackhole())


def _into_a_blackhole() -> JobGraph:
    b = GraphBuilder()
    b.sink("blackhole", b.values(Batch.of(SCHEMA, [("a", 1)])), SCHEMA, {})
    return b.build()
