"""Savepoints of the version whose uids were fingerprints: every kind of state is still found."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.plan.identity.earlier_jobs import SQL, graph_of
from tests.plan.identity.restoring import SAVEPOINTS, difference_of, earlier, finished, fit


@pytest.mark.parametrize("job", [*SQL, "datastream"])
def test_an_earlier_savepoint_is_restored_whole(job: str) -> None:
    graph = graph_of(job)
    difference = difference_of(graph, earlier(job))
    assert difference.mapped
    assert (difference.dropped, difference.changed, difference.ambiguous) == ((), (), ())
    rest = finished(fit(graph, earlier(job)), earlier(job))
    before = json.loads((SAVEPOINTS / job / "committed.json").read_text())
    whole = finished(graph, None)
    for sink, rows in whole.items():
        got = [(kind, tuple(row)) for kind, row in before[sink]] + rest[sink]
        assert shown(got, sink) == shown(rows, sink)


def shown(changes: list[Any], sink: str) -> Any:
    """All rows; of a table with a key its last ones: how many updates there are depends on the batches."""
    return Counter(map(repr, changes)) if sink == "log" else {row[0]: row for _, row in changes}
