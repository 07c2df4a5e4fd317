"""A few queries of TPC-H over a few hundred rows, on the streaming engine; and how answers are compared.

All queries, both engines and real amounts of rows: ``make tpc``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from tests.tpc.__main__ import queries
from tests.tpc.answers import Answers
from tests.tpc.report import Result, latest, page, summary
from tests.tpc.running import Outcome
from tests.tpc.small import write


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(write(tmp_path_factory.mktemp("tpch")))


@pytest.mark.parametrize("name", ["q03", "q12", "q17", "q19"])
def test_tpch(answers: Answers, name: str) -> None:
    sql = queries("tpch")[name]
    session = SqlSession({"parallelism.default": "2"})
    for statement in answers.declarations():
        session.execute(statement)
    job = session.execute(sql).job
    assert job is not None
    assert "cross product" not in job.job_graph.plan
    assert len(answers.rows(sql)) >= 1
    assert answers.rows(sql)[0][0] is not None, "the rows are made so that there is something to find"
    assert answers.difference(sql, run_graph(job.job_graph).rows) == ""


def test_there_are_all_queries() -> None:
    assert len(queries("tpch")) == 22
    assert len(queries("tpcds")) == 99


_SORTED = "SELECT p_size, p_partkey FROM part ORDER BY p_size LIMIT 6"


def test_rows_that_differ_are_found(answers: Answers) -> None:
    sql = "SELECT p_partkey, p_brand FROM part WHERE p_partkey < 4 ORDER BY p_partkey"
    right = answers.rows(sql)
    assert answers.difference(sql, right) == ""
    assert "2 rows instead of 3" in answers.difference(sql, right[:2])
    assert "row 1 by ORDER BY" in answers.difference(sql, right[::-1])
    wrong: list[Any] = [*right[:2], (right[2][0], "Brand#99")]
    assert "not in the answer" in answers.difference(sql, wrong)
    assert "not in the answer" in answers.difference("SELECT p_brand FROM part LIMIT 2", [("x",), ("y",)])


def test_rows_of_one_rank_may_be_others_of_them(answers: Answers) -> None:
    everything = answers.rows("SELECT p_size, p_partkey FROM part ORDER BY p_size")
    kept = answers.rows(_SORTED)
    others = [row for row in everything if row[0] == kept[-1][0] and row not in kept]
    assert others, "several rows share the last rank"
    assert answers.difference(_SORTED, [*kept[:-1], others[0]]) == ""
    assert answers.difference(_SORTED, [*kept[:-1], everything[-1]]) != ""
    assert answers.difference(_SORTED, [kept[0], kept[0], *kept[2:]]) != ""


def test_the_page_tells_what_each_engine_did() -> None:
    results = [
        Result("tpch", "q01", "streaming", Outcome("rows", 1.25), 4),
        Result("tpch", "q01", "spark", Outcome("refused", 0.1, text="something | is missing"), 4),
        Result("tpch", "q02", "streaming", Outcome("hangs", 300.0, text="not done after 300 s"), 7),
    ]
    assert latest([results[2].encoded(), *(r.encoded() for r in results)]) == sorted(
        results, key=lambda r: (r.query, r.engine)
    )
    text = page(results, 0.1, "a machine")
    assert "| q01 | 4 | 1.2 s | refused | something \\| is missing |" in text
    assert "| q02 | 7 | hangs | – | not done after 300 s |" in text
    assert "TPC-H on streaming: 2 queries: 1 right, 1 hangs" in summary(results)


def test_parquet_folders_become_tables(answers: Answers, tmp_path: Path) -> None:
    [part] = [d for d in answers.declarations() if d.startswith("CREATE TABLE part ")]
    assert "`p_brand` STRING" in part
    assert "'format' = 'parquet'" in part
