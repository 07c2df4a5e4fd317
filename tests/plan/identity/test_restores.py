"""A changed script really goes on from the savepoint of the old one: with the rows of a run that was
never stopped, where nothing is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.errors import SpecError
from penstock.jobgraph import JobGraph
from tests.plan.identity.earlier_jobs import graph_of
from tests.plan.identity.restoring import finished, fit, replaced, savepoint

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


FRAME = "PARTITION BY k ORDER BY ts ROWS BETWEEN {} PRECEDING AND CURRENT ROW"
OVER = f"INSERT INTO log SELECT k, SUM(v) OVER ({FRAME}) FROM orders"
SESSION = """INSERT INTO log SELECT k, {} FROM TABLE(SESSION(TABLE orders PARTITION BY k, DESCRIPTOR(ts),
INTERVAL '{}' SECOND)) GROUP BY k, window_start, window_end"""
FIRST = """INSERT INTO one SELECT k, v FROM (
SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM orders) WHERE n = 1"""
TOP = """INSERT INTO one SELECT k, SUM(v) FROM (
SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v {}, id) AS n FROM orders) WHERE n <= {} GROUP BY k"""
SET = "INSERT INTO one SELECT k, COUNT(*) FROM (SELECT k, v FROM orders {} SELECT k, v FROM payments{}) GROUP BY k"
#: An INSERT that reads one more column of the same table, put in front.
MORE = "INSERT INTO two SELECT k, MAX(id) FROM orders GROUP BY k"

#: What keeps rows or more than one value a key → (a statement, one that means something else by its state).
KEEPING = {
    "OVER": (OVER.format(4), OVER.format(2)),
    "a session window": (SESSION.format("SUM(v)", 4), SESSION.format("SUM(v)", 5)),
    "the first row": (FIRST.format("ts"), FIRST.format("ts DESC")),
    "Top-N": (TOP.format("DESC", 2), TOP.format("ASC", 2)),
    "the rows of Top-N": (TOP.format("DESC", 2), TOP.format("DESC", 3)),
    "UNION": (SET.format("UNION", ""), SET.format("UNION", " WHERE v > 4")),
    "INTERSECT": (SET.format("INTERSECT", ""), SET.format("INTERSECT", " WHERE v > 4")),
    "INTERSECT ALL": (SET.format("INTERSECT ALL", ""), SET.format("INTERSECT", "")),
    "EXCEPT": (SET.format("EXCEPT", " WHERE v > 4"), SET.format("EXCEPT", " WHERE v > 5")),
    "another set operation": (SET.format("INTERSECT", ""), SET.format("EXCEPT", "")),
}


def committed(tables: dict[str, Any], name: str) -> list[Any]:
    return [(kind.name, row) for kind, row in tables[name].committed]


def joined(before: dict[str, Any], after: dict[str, list[Any]]) -> tuple[dict[Any, Any], Counter[Any]]:
    """What both runs wrote into ``one``, by key, and into ``log``."""
    written = {n: [*(committed(before, n) if before else []), *after[n]] for n in ("one", "log")}
    one: dict[Any, Any] = {}
    for kind, (key, value) in written["one"]:
        one[key] = value
        if kind == "DELETE":
            del one[key]
    assert one or written["log"]
    return one, Counter(written["log"])


def forgetting(graph: JobGraph) -> JobGraph:
    """The job with other uids for all that keeps more than positions."""

    def renamed(node: Any) -> Any:
        reads = type(node.spec).__name__ in ("SourceSpec", "EnumeratorSpec")
        return node if reads else replaced(node, uid=f"{node.uid}-forgotten")

    vertices = tuple(replaced(v, operators=tuple(map(renamed, v.operators))) for v in graph.vertices)
    return replaced(graph, vertices=vertices)


@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_rows_goes_on_beside_another_statement(name: str) -> None:
    statement, _ = KEEPING[name]
    config = {"parallelism.default": "2"}
    manifest, before = savepoint(job(statement, **config))
    after = job(MORE, statement, **config)
    rest, whole = finished(fit(after, manifest), manifest), finished(after, None)
    assert joined(before, rest) == joined({}, whole)
    # The rows show whether state was restored: a job that gets only its positions gives others.
    forgetful = finished(forgetting(fit(after, manifest)), manifest)
    assert joined(before, forgetful) != joined({}, whole)


@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_rows_is_refused_to_another_meaning(name: str) -> None:
    before, after = KEEPING[name]
    manifest, _ = savepoint(job(before))
    with pytest.raises(SpecError, match=r"means something else|does not have"):
        fit(job(after), manifest)


JOINS = {
    "o, p, c": "orders o JOIN payments p ON o.id = p.id JOIN counts c ON o.k = c.k",
    "o, c, p": "orders o JOIN counts c ON o.k = c.k JOIN payments p ON o.id = p.id",
    "p, o, c": "payments p JOIN orders o ON o.id = p.id JOIN counts c ON o.k = c.k",
    "c, o, p": "counts c JOIN orders o ON o.k = c.k JOIN payments p ON o.id = p.id",
}
COUNTS = "(SELECT k, COUNT(*) AS n FROM payments WHERE id < 15 GROUP BY k)"


def three(order: str) -> str:
    """Rows of ``orders`` and ``payments`` by id, each with a number that is final before the savepoint."""
    joins = JOINS[order].replace("counts", COUNTS)
    return f"INSERT INTO one SELECT o.k, SUM(o.v * 100 + p.v * 10 + c.n) FROM {joins} GROUP BY o.k"


@pytest.mark.parametrize("order", JOINS)
def test_three_joins_in_another_order_never_read_each_others_rows(order: str) -> None:
    """Restored with the rows of a run that was never stopped, or refused; never anything else."""
    manifest, before = savepoint(job(three("o, p, c")))
    after = job(three(order))
    whole = finished(after, None)
    assert joined({}, whole) == joined({}, finished(job(three("o, p, c")), None))
    if order == "o, p, c":
        assert joined(before, finished(fit(after, manifest), manifest)) == joined({}, whole)
        return
    with pytest.raises(SpecError, match=r"means something else|does not have|not clear") as refused:
        fit(after, manifest)
    assert "Join" in str(refused.value.got)


def reading(order: str) -> list[str]:
    """Two statements of which one has a source of its own."""
    hint = "/*+ OPTIONS('uid' = 'second reading') */"
    one = BY_KEY.format("one", "SUM(v)")
    two = f"INSERT INTO two SELECT k, MAX(id) FROM orders {hint} GROUP BY k"
    return [one, two] if order == "as it was" else [two, one]


@pytest.mark.parametrize("order", ["as it was", "the other way round"])
def test_two_scans_of_a_table_keep_positions_of_their_own(order: str) -> None:
    manifest, before = savepoint(job(*reading("as it was")))
    graph = fit(job(*reading(order)), manifest)
    uids = [n.uid for v in graph.vertices for n in v.operators if n.name == "Source: orders"]
    assert len(uids) == 2
    assert any("second reading" in uid for uid in uids)
    rest, whole = finished(graph, manifest), finished(job(*reading(order)), None)
    for table in ("one", "two"):
        assert final([*committed(before, table), *rest[table]]) == final(whole[table])


def test_a_scan_that_lost_its_uid_is_not_the_other_one() -> None:
    manifest, _ = savepoint(job(*reading("as it was")))
    without = [s.replace("/*+ OPTIONS('uid' = 'second reading') */", "") for s in reading("as it was")]
    with pytest.raises(SpecError, match="does not have") as refused:
        fit(job(*without), manifest)
    assert "second reading" in str(refused.value.got)
