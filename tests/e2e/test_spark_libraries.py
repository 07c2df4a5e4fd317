"""Spark ML and an iterative graph algorithm in steps of projects: the two examples, run whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from examples.delays import __main__ as delays
from examples.fleets import __main__ as fleets
from examples.flights.dataset import load, split
from penstock.embedded import EmbeddedCluster
from tests.e2e.support import lend

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]
LIMIT = 30_000


@pytest.fixture(autouse=True)
def lent(spark_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for both examples: each would start one like it, and a Spark."""
    for example in (delays, fleets):
        lend(monkeypatch, example, spark_cluster)


def test_a_model_trained_on_spark_scores_the_stream(tmp_path: Path) -> None:
    assert delays.main(["--out", str(tmp_path / "out"), "--limit", str(LIMIT)]) == 0
    scores = ds.dataset(tmp_path / "out" / "scores", format="parquet").to_table()
    history, live = split(load())
    assert len(scores) == LIMIT
    late = sum(x > delays.LATE_MINUTES for x in live.flights["dep_delay"].to_pylist()[:LIMIT])
    assert sum(scores["late"].to_pylist()) == late
    quality = delays.compare(history, scores).quality
    model, *others = quality.values()
    assert model[0] > 0.65
    assert model[0] > quality["share by hour"][0] > quality["share of all"][0] == 0.5
    assert all(model[1] < loss for _, loss in others)


def components_of(edges: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """By union-find: each node's component."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for a, b in edges:
        parent[root(a)] = root(b)
    members = defaultdict(set)
    for node in parent:
        members[root(node)].add(node)
    return {node: frozenset(group) for group in members.values() for node in group}


def test_connected_components_are_those_of_union_find(tmp_path: Path) -> None:
    assert fleets.main(["--out", str(tmp_path / "out")]) == 0
    flights = load().flights
    pairs = Counter(zip(flights["tailnum"].to_pylist(), flights["dest"].to_pylist(), strict=True))
    want = components_of(
        (f"aircraft {a}", f"airport {b}") for (a, b), n in pairs.items() if a is not None and n >= 50
    )
    rows = ds.dataset(tmp_path / "out" / "components", format="parquet").to_table().to_pylist()
    assert {row["node"]: row["component"] for row in rows} == {
        node: min(group) for node, group in want.items()
    }
    assert len(rows) == len(want) == 480
    sizes = ds.dataset(tmp_path / "out" / "sizes", format="parquet").to_table().to_pylist()
    assert sum(row["aircraft"] + row["airports"] for row in sizes) == len(want)
    assert len(sizes) == len(set(want.values())) == 8
