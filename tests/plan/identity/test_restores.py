"""A changed script really goes on from the savepoint of the old one: with the rows of a run that was
never stopped, where nothing is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.errors import SpecError
from tests.plan.identity.earlier_jobs import graph_of
from tests.plan.identity.restoring import finished, fit, savepoint

BY_KEY = "INSERT INTO {} SELECT k, {} FROM orders GROUP BY k"
WINDOW = """INSERT INTO log SELECT k, {} FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '7' SECOND))
GROUP BY k, window_start, window_end"""


def job(*inserts: str, **config: str) -> Any:
    script = "EXECUTE STATEMENT SET BEGIN " + "; ".join(inserts) + "; END;"
    return graph_of("aggregates", script=script, **config)


def final(changes: list[Any]) -> dict[Any, Any]:
    return {row[0]: row[1] for _, row in changes}


FEWER = {
    "a function less": ("SUM(v) + MAX(id) + COUNT(*)", "MAX(id)"),
    "functions in another order": ("SUM(v) + MAX(v) + COUNT(*)", "COUNT(*) + MAX(v)"),
    "one that keeps entries stays": ("SUM(v) + COUNT(DISTINCT v) + COUNT(DISTINCT id)", "COUNT(DISTINCT id)"),
    "one that keeps entries goes": ("COUNT(DISTINCT v) + SUM(id)", "SUM(id)"),
}


@pytest.mark.parametrize("edit", FEWER)
def test_an_aggregation_that_lost_functions_is_converted(edit: str) -> None:
    before, after = (BY_KEY.format("one", x) for x in FEWER[edit])
    manifest, _ = savepoint(job(before))
    got = final(finished(fit(job(after), manifest), manifest)["one"])
    assert got == final(finished(job(after), None)["one"])


@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_a_window_that_lost_functions_is_converted(parallelism: str) -> None:
    config = {"parallelism.default": parallelism}
    manifest, before = savepoint(job(WINDOW.format("MIN(v) + SUM(v)"), **config))
    committed = [(kind.name, row) for kind, row in before["log"].committed]
    after = job(WINDOW.format("SUM(v)"), **config)
    rest = finished(fit(after, manifest), manifest)["log"]
    whole = finished(after, None)["log"]
    kept = Counter(rest) & Counter(whole)
    assert sum(kept.values()) == len(rest)
    assert len(rest) + len(committed) == len(whole)


def test_statements_added_reordered_and_changed_above_keep_their_state() -> None:
    first, second = BY_KEY.format("one", "SUM(v)"), BY_KEY.format("two", "MAX(id)")
    manifest, _ = savepoint(job(first, second))
    added = "INSERT INTO log SELECT k, v FROM orders WHERE v > 8"
    after = job(added, second + " HAVING MAX(id) > 5", first)
    got, whole = finished(fit(after, manifest), manifest), finished(after, None)
    assert final(got["one"]) == final(whole["one"])
    assert final(got["two"]) == final(whole["two"])
    assert 0 < len(got["log"]) < len(whole["log"])  # it begins where the savepoint was taken


def test_two_statements_of_one_shape_that_change_places_keep_their_own() -> None:
    shape = "INSERT INTO one SELECT k || '{0}', SUM(v) FROM orders WHERE k <> '{0}' GROUP BY k"
    # The memory sink holds one statement's rows a table.
    a, b = shape.format("a"), shape.format("b").replace("one", "one /*+ OPTIONS('name' = 'two') */")
    manifest, _ = savepoint(job(a, b))
    got, whole = finished(fit(job(b, a), manifest), manifest), finished(job(b, a), None)
    for table in ("one", "two"):
        assert final(got[table]) == final(whole[table])
        assert len(final(got[table])) == 2


def test_a_label_finds_what_a_shape_does_not() -> None:
    shape = (
        "INSERT INTO log /*+ OPTIONS('uid' = '{0}', 'name' = '{1}') */ SELECT k, {2} FROM orders GROUP BY k"
    )

    def statements(a: str, b: str) -> list[str]:
        return [shape.format("a", "one", a), shape.format("b", "two", b)]

    manifest, _ = savepoint(job(*statements("SUM(v) + COUNT(*)", "SUM(v) + MAX(id)")))
    after = job(*reversed(statements("COUNT(*)", "MAX(id)")))
    got, whole = finished(fit(after, manifest), manifest), finished(after, None)
    for table in ("one", "two"):
        assert final(got[table]) == final(whole[table])


def test_a_changed_function_is_refused_kept_by_name_or_dropped() -> None:
    manifest, _ = savepoint(job(BY_KEY.format("one", "SUM(v)")))
    after = job(BY_KEY.format("one", "SUM(id)"))
    with pytest.raises(SpecError, match="means something else") as refused:
        fit(after, manifest)
    assert "SUM(orders.id) BIGINT of orders.id BIGINT is not in the savepoint" in str(refused.value.got)
    whole = final(finished(after, None)["one"])
    fresh = final(finished(fit(after, manifest, lenient=True), manifest)["one"])
    assert all(fresh[k] < whole[k] for k in whole)
    uid = str(refused.value.remedy).partition("--keep-state ")[2].partition(" ")[0]
    kept = final(finished(fit(after, manifest, keep=[uid]), manifest)["one"])
    assert all(fresh[k] < kept[k] for k in whole)
    assert kept != whole


def test_a_savepoint_of_a_restored_job_is_found_by_the_next_one() -> None:
    """It has the uids of the first savepoint, under other names."""
    first, second = BY_KEY.format("one", "SUM(v) + MAX(v)"), BY_KEY.format("one", "SUM(v)")
    manifest, _ = savepoint(job(first))
    graph = fit(job(second), manifest)
    planned = {n.uid for v in job(second).vertices for n in v.operators}
    assert {n.uid for v in graph.vertices for n in v.operators} & planned != planned
    again, _ = savepoint(graph)
    whole = final(finished(job(second), None)["one"])
    assert final(finished(fit(job(second), again), again)["one"]) == whole
    with pytest.raises(SpecError, match="means something else"):
        fit(job(first), again)
