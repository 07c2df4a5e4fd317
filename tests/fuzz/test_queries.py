"""The query fuzzer: a few of its queries, and that it finds and cuts down what is wrong.

``make fuzz`` tries thousands.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz import engines
from tests.fuzz.campaign import FuzzCase, Runs, case_of, judge, runs, shrunk, told
from tests.fuzz.engines import Outcome
from tests.fuzz.tree import Node, leaf, smaller


@pytest.mark.parametrize("first", [1000, 1010, 1020])
def test_engines_agree_with_duckdb(first: int) -> None:
    compared = 0
    for seed in range(first, first + 10):
        case = case_of(seed)
        verdict = judge(case, runs(case.mode))
        assert not verdict.finding, told(case, verdict)
        assert verdict.status != "invalid", told(case, verdict)
        compared += verdict.status == "agreed"
    assert compared >= 5


def test_a_seed_is_one_case() -> None:
    assert case_of(7) == case_of(7)
    assert case_of(7).query.text() != case_of(8).query.text()


def _by_duckdb_without_the_last_row(case: FuzzCase) -> Outcome:
    right = engines.by_duckdb(case.query.text(duckdb=True), case.tables)
    return replace(right, rows=tuple(tuple(x) for x in engines.plain_rows(right.rows[:-1])))


def test_an_engine_that_loses_a_row_is_found_and_the_query_made_small() -> None:
    ways: Runs = {"broken": _by_duckdb_without_the_last_row}
    case = next(
        c for seed in range(50) if judge(c := case_of(seed), ways).status == "wrong" and c.query.size() > 40
    )
    small, verdict = shrunk(case, judge(case, ways), ways)
    assert verdict.status == "wrong"
    assert small.query.size() < case.query.size() / 2
    assert sum(len(t.rows) for t in small.tables) < sum(len(t.rows) for t in case.tables)
    assert f"seed {case.seed}: wrong on broken" in told(small, verdict)


def test_a_tree_shrinks_to_nodes_of_the_same_sort() -> None:
    inner = Node("INT", "({0} + {1})", (leaf("INT", "t1.i"), leaf("INT", "2")))
    tree = Node("query", "SELECT {0} FROM a{1}", (inner, leaf("optional", " LIMIT 1")))
    texts = [t.text() for t in smaller(tree, {"INT": [leaf("INT", "0")], "optional": [leaf("optional", "")]})]
    assert texts == ["SELECT 0 FROM a LIMIT 1", "SELECT t1.i FROM a LIMIT 1", "SELECT 2 FROM a LIMIT 1"]
