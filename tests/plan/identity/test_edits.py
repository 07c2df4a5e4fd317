"""What users change in a script, and whose state is whose then: old script × new script → mapping."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SpecError
from penstock.jobgraph import JobGraph
from penstock.snapshots.compatibility import Difference, adopted, check, compare, operators_of
from penstock.snapshots.footers import OperatorSummary, StateSummary
from penstock.sql.scripts import plan_script

TABLES = """
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'rows-per-second' = '10');
CREATE TABLE auction (id BIGINT, seller BIGINT, category BIGINT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE person (id BIGINT, name STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen');
CREATE TABLE out1 (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE out2 (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE wide (k BIGINT, n BIGINT, m BIGINT) WITH ('connector' = 'blackhole');
"""
CONFIG = {
    "execution.engine": "streaming",
    "execution.runtime-mode": "STREAMING",
    "table.exec.state.ttl": "1 d",
    "parallelism.default": "2",
}
STATES = ("Aggregate", "Join", "TopN", "Deduplicate", "Over", "Distinct", "TemporalSort")


def planned(*inserts: str, tables: str = TABLES, **config: str) -> JobGraph:
    script = tables + "EXECUTE STATEMENT SET BEGIN " + "; ".join(inserts) + "; END;"
    return plan_script(script, {**CONFIG, **config}).job_graph


def savepoint_of(graph: JobGraph, *, committables: int = 0) -> list[OperatorSummary]:
    """As ``footers.summarise`` would give it: everything that keeps state has some."""
    out = []
    for vertex in graph.vertices:
        for node in vertex.operators:
            states = []
            if node.identity.meaning or node.identity.columns:
                kind = type(node.spec).__name__
                if kind == "SinkSpec":
                    states = [StateSummary(name="committables", kind="list", rows=committables)]
                else:
                    states = [StateSummary(name="state", kind="keyed", rows=5)]
            out.append(
                OperatorSummary(
                    uid=node.uid, name=node.name, vertex=vertex.name, parallelism=vertex.parallelism,
                    max_parallelism=vertex.max_parallelism, states=states, identity=node.identity,
                )
            )  # fmt: skip
    return out


def compared(old: JobGraph, new: JobGraph, **options: Any) -> Difference:
    return compare(operators_of(new), savepoint_of(old), **options)


def words(difference: Difference) -> dict[str, list[str]]:
    """Verdict → names of operators that keep more than positions."""

    def named(found: tuple[Any, ...]) -> list[str]:
        return sorted(o.name for o in found if any(word in o.name for word in STATES))

    verdicts = {
        "kept": named(difference.mapped),
        "converted": named(difference.converted),
        "changed": named(difference.changed),
        "ambiguous": named(difference.ambiguous),
        "dropped": named(difference.dropped),
    }
    return {verdict: names for verdict, names in verdicts.items() if names}


SUM = "INSERT INTO out1 SELECT auction, SUM(price) FROM bid GROUP BY auction"
MAX = "INSERT INTO out2 SELECT bidder, MAX(price) FROM bid GROUP BY bidder"
TUMBLE = (
    "INSERT INTO out1 SELECT auction, COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '{}' SECOND)) "
    "GROUP BY auction, window_start, window_end"
)
JOIN = "INSERT INTO out1 SELECT b.auction, a.seller FROM bid b JOIN auction a ON b.auction = a.id"
TOP = (
    "INSERT INTO out1 SELECT auction, price FROM (SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction "
    "ORDER BY price DESC) AS n FROM bid) WHERE n <= {}"
)
FILTERED = "INSERT INTO out1 SELECT auction, SUM(price) FROM bid WHERE channel = '{}' GROUP BY auction"
G, W, J = "GlobalGroupAggregate", "GlobalWindowAggregate(tumble)", "Join(inner)"

EDITS: dict[str, tuple[list[str], list[str], dict[str, list[str]]]] = {
    "nothing": ([SUM, MAX], [SUM, MAX], {"kept": [G, G]}),
    "an INSERT is added": ([SUM], [SUM, MAX], {"kept": [G]}),
    "an INSERT is added in front": ([SUM], [MAX, SUM], {"kept": [G]}),
    "an INSERT is removed": ([SUM, MAX], [MAX], {"kept": [G], "dropped": [G]}),
    "INSERTs change places": ([SUM, MAX], [MAX, SUM], {"kept": [G, G]}),
    "another INSERT reads one more column": (
        [TOP.format(3), "INSERT INTO out2 SELECT bidder, COUNT(*) FROM bid GROUP BY bidder"],
        [TOP.format(3), "INSERT INTO wide SELECT bidder, COUNT(*), MAX(CHAR_LENGTH(channel)) FROM bid GROUP BY bidder"],
        {"kept": ["TopN(row_number <= 3)"], "dropped": [G]},
    ),
    "a column that needs no state is added": (
        [SUM],
        ["INSERT INTO wide SELECT auction, SUM(price), auction + 1 FROM bid GROUP BY auction"],
        {"kept": [G]},
    ),
    "a column with a function of its own is added": (
        [SUM],
        ["INSERT INTO out1 SELECT auction, SUM(price) + MAX(price) FROM bid GROUP BY auction"],
        {"changed": [G]},
    ),
    "a function is removed": (
        ["INSERT INTO out1 SELECT auction, SUM(price) + MAX(price) FROM bid GROUP BY auction"],
        [SUM],
        {"converted": [G]},
    ),
    "the table that is inserted into has another name": (
        [SUM],
        ["INSERT INTO out2 SELECT auction, SUM(price) FROM bid GROUP BY auction"],
        {"kept": [G]},
    ),
    "a filter is added below": ([SUM], [FILTERED.format("a")], {"changed": [G]}),
    "a filter below is another": ([FILTERED.format("a")], [FILTERED.format("b")], {"changed": [G]}),
    "a filter is added above (HAVING)": ([SUM], [SUM + " HAVING SUM(price) > 10"], {"kept": [G]}),
    "HAVING is another": (
        [SUM + " HAVING SUM(price) > 10"], [SUM + " HAVING SUM(price) > 11"], {"kept": [G]},
    ),
    "a filter moves into a view": (
        ["INSERT INTO out1 SELECT auction, SUM(price) FROM bid WHERE price > 3 GROUP BY auction"],
        ["INSERT INTO out1 WITH v AS (SELECT * FROM bid WHERE 3 < price) SELECT x.auction, SUM(x.price) FROM v AS x "
         "GROUP BY x.auction"],
        {"kept": [G]},
    ),
    "a function is another": (
        [SUM],
        ["INSERT INTO out1 SELECT auction, MIN(price) FROM bid GROUP BY auction"],
        {"changed": [G]},
    ),
    "a function's argument is another": (
        [SUM],
        ["INSERT INTO out1 SELECT auction, SUM(bidder) FROM bid GROUP BY auction"],
        {"changed": [G]},
    ),
    "a key is another": (
        [SUM],
        ["INSERT INTO out1 SELECT bidder, SUM(price) FROM bid GROUP BY bidder"],
        {"changed": [G]},
    ),
    "an alias is renamed": (
        [JOIN],
        ["INSERT INTO out1 SELECT x.auction, y.seller FROM bid x JOIN auction y ON x.auction = y.id"],
        {"kept": [J]},
    ),
    "a window's size": ([TUMBLE.format(10)], [TUMBLE.format(20)], {"changed": [W]}),
    "the rows of a Top-N": ([TOP.format(3)], [TOP.format(5)], {"dropped": [], "changed": ["TopN(row_number <= 3)"]}),
    "another condition of an inner join": ([JOIN], [JOIN + " AND b.price > a.category"], {"changed": [J]}),
    "the sides of a join": (
        [JOIN],
        ["INSERT INTO out1 SELECT b.auction, a.seller FROM auction a JOIN bid b ON b.auction = a.id"],
        {"changed": [J]},
    ),
    "two INSERTs of one shape into one table change places": (
        [FILTERED.format("a"), FILTERED.format("b")],
        [FILTERED.format("b"), FILTERED.format("a")],
        {"kept": [G, G]},
    ),
    "one of two INSERTs of one shape is removed": (
        [FILTERED.format("a"), FILTERED.format("b")],
        [FILTERED.format("b")],
        {"kept": [G], "dropped": [G]},
    ),
    "one of two INSERTs of one shape is changed": (
        [FILTERED.format("a"), FILTERED.format("b")],
        [FILTERED.format("c"), FILTERED.format("b")],
        {"kept": [G], "changed": [G]},
    ),
    "a third INSERT of one shape comes in front": (
        [FILTERED.format("a"), FILTERED.format("b")],
        [FILTERED.format("c"), FILTERED.format("a"), FILTERED.format("b")],
        {"kept": [G, G]},
    ),
    "two INSERTs of one shape are both changed": (
        [FILTERED.format("a"), FILTERED.format("b")],
        [FILTERED.format("c"), FILTERED.format("d")],
        {"ambiguous": [G, G]},
    ),
    "two INSERTs of one shape with labels are both changed": (
        [FILTERED.format("a").replace("out1", "out1 /*+ OPTIONS('uid' = 'one') */"),
         FILTERED.format("b").replace("out1", "out1 /*+ OPTIONS('uid' = 'two') */")],
        [FILTERED.format("d").replace("out1", "out1 /*+ OPTIONS('uid' = 'two') */"),
         FILTERED.format("c").replace("out1", "out1 /*+ OPTIONS('uid' = 'one') */")],
        {"changed": [G, G]},
    ),
    "a sub-plan is shared": (
        [SUM],
        [SUM, "INSERT INTO out2 SELECT auction + 1, SUM(price) FROM bid GROUP BY auction"],
        {"kept": [G]},
    ),
    "a sub-plan is shared no longer": (
        [SUM, "INSERT INTO out2 SELECT auction + 1, SUM(price) FROM bid GROUP BY auction"],
        [SUM, "INSERT INTO out2 SELECT auction + 1, SUM(price) FROM bid WHERE price > 5 GROUP BY auction"],
        {"kept": [G]},
    ),
    "an aggregation on top of an aggregation": (
        [SUM],
        ["INSERT INTO out1 SELECT n, COUNT(*) FROM (SELECT auction, SUM(price) AS n FROM bid GROUP BY auction) GROUP BY n"],
        {"kept": [G]},
    ),
    "a Top-N on top of an aggregation": (
        [SUM],
        ["INSERT INTO out1 SELECT auction, n FROM (SELECT auction, n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM "
         "(SELECT auction, SUM(price) AS n FROM bid GROUP BY auction)) WHERE r <= 3"],
        {"kept": [G]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit(edit: str) -> None:
    old, new, expected = EDITS[edit]
    difference = compared(planned(*old), planned(*new))
    assert words(difference) == {verdict: names for verdict, names in expected.items() if names}
    sources = [o.name for o in difference.mapped if o.name.startswith(("Source", "Enumerator"))]
    assert sorted(set(sources)) == sorted(sources)
    assert "Source: bid" in sources


@pytest.mark.parametrize("edit", EDITS)
def test_nobody_gets_the_state_of_another(edit: str) -> None:
    """What is restored is of the same meaning, and no uid of the savepoint is anybody else's."""
    old, new, _ = EDITS[edit]
    before, after = planned(*old), planned(*new)
    summaries = savepoint_of(before)
    difference = compare(operators_of(after), summaries)
    graph = adopted(after, difference, summaries)
    stored = {s.uid: s for s in summaries if s.states}
    restored = {
        node.uid: node for vertex in graph.vertices for node in vertex.operators if node.uid in stored
    }
    for uid, node in restored.items():
        identity = stored[uid].identity
        assert identity is not None
        assert node.identity.meaning == identity.meaning
        for state, columns in node.identity.columns.items():
            assert set(columns) <= set(identity.columns[state])
    assert len({v.id for v in graph.vertices}) == len(graph.vertices)
    assert all(len(v.id) == 32 and int(v.id, 16) >= 0 for v in graph.vertices)
    assert {e.source for e in graph.edges} | {e.target for e in graph.edges} <= {v.id for v in graph.vertices}


@pytest.mark.parametrize("option", ["'rows-per-second' = '99'", "'number-of-rows' = '9'", "'seed' = '7'"])
def test_options_that_change_no_position_keep_it(option: str) -> None:
    tables = TABLES.replace("'rows-per-second' = '10'", option)
    difference = compared(planned(SUM), planned(SUM, tables=tables))
    assert (difference.changed, difference.dropped) == ((), ())


def test_another_place_of_the_data_is_refused() -> None:
    def reading(path: str) -> JobGraph:
        tables = TABLES.replace(
            "'connector' = 'datagen', 'rows-per-second' = '10'",
            f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json', 'source.monitor-interval' = '1 s'",
        )
        return planned(SUM, tables=tables)

    difference = compared(reading("/tmp/a"), reading("/tmp/b"))
    source = next(o for o in difference.changed if o.name == "Source: bid")
    assert source.why == ("reads: filesystem(path = /tmp/a) → filesystem(path = /tmp/b)",)


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_parallelism_and_chaining_change_no_name(parallelism: str) -> None:
    one, other = planned(SUM, JOIN.replace("out1", "out2")), None
    config = {"parallelism.default": parallelism, "pipeline.operator-chaining.enabled": "false"}
    other = planned(SUM, JOIN.replace("out1", "out2"), **config)
    difference = compared(one, other)
    assert words(difference)["kept"] == [G, J]
    assert (difference.changed, difference.dropped, difference.ambiguous) == ((), (), ())


def test_vertices_keep_their_ids_over_edits() -> None:
    before, after = planned(SUM, MAX), planned(MAX, SUM + " HAVING SUM(price) > 10")
    summaries = savepoint_of(before)
    graph = adopted(after, compare(operators_of(after), summaries), summaries)
    assert {v.id for v in graph.vertices} == {v.id for v in before.vertices}


@pytest.mark.parametrize(("committables", "missed"), [(0, []), (2, ["Sink: out1"])])
def test_a_sink_that_went_is_missed_only_with_committables(committables: int, missed: list[str]) -> None:
    summaries = savepoint_of(planned(SUM, MAX), committables=committables)
    difference = compare(operators_of(planned(MAX)), summaries)
    assert [o.name for o in difference.dropped] == [G, *missed]
    assert "Sink: out2" in [o.name for o in difference.mapped]


@pytest.mark.parametrize(("committables", "changed"), [(0, []), (2, ["Sink: out1"])])
def test_a_sink_that_writes_elsewhere_is_refused_only_with_committables(
    committables: int, changed: list[str]
) -> None:
    """Rows that wait to be committed belong to the place that they were staged for."""
    elsewhere = TABLES.replace(
        "TABLE out1 (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')",
        "TABLE out1 (k BIGINT, n BIGINT) WITH ('connector' = 'print')",
    )
    summaries = savepoint_of(planned(SUM), committables=committables)
    difference = compare(operators_of(planned(SUM, tables=elsewhere)), summaries)
    assert [o.name for o in difference.changed] == changed
    assert difference.dropped == ()
    whys = [why for o in difference.changed for why in o.why]
    assert whys == ["writes: blackhole() → print()"] * len(changed)


def test_rows_that_lose_a_column_are_refused_with_a_remedy_that_works() -> None:
    """--keep-state cannot keep rows of another layout, so it is not offered; reading the column on is."""
    join = "SELECT b.auction, {} FROM bid b JOIN auction a ON b.auction = a.id"
    both, one = f"INSERT INTO wide {join.format('b.price, a.seller')}", join.format("b.price, 1")
    old, new = planned(both), planned(f"INSERT INTO wide {one}")
    with pytest.raises(SpecError) as refused:
        check(compared(old, new), "here", lenient=False)
    assert "auction.seller BIGINT" in str(refused.value.got)
    assert "--keep-state" not in str(refused.value.remedy)
    assert "'blackhole'" in str(refused.value.remedy)
    reading = TABLES + "CREATE TABLE unread (n BIGINT) WITH ('connector' = 'blackhole');"
    view = (
        "CREATE VIEW j AS SELECT b.auction, b.price, a.seller FROM bid b JOIN auction a ON b.auction = a.id;"
    )
    kept = planned(
        "INSERT INTO wide SELECT auction, price, 1 FROM j", "INSERT INTO unread SELECT seller FROM j",
        tables=reading + view,
    )  # fmt: skip
    check(compared(old, kept), "here", lenient=False)


def test_what_is_refused_says_why_and_what_to_do() -> None:
    old, new = planned(TUMBLE.format(10)), planned(TUMBLE.format(20))
    with pytest.raises(SpecError) as refused:
        check(compared(old, new), "here", lenient=False)
    assert "size 10000 ms" in str(refused.value.got)
    assert "size 20000 ms" in str(refused.value.got)
    # Windows of another size have another layout: --keep-state would be refused in turn.
    assert "--keep-state" not in str(refused.value.remedy)
    old_filter, new_filter = planned(FILTERED.format("a")), planned(FILTERED.format("b"))
    with pytest.raises(SpecError, match="means something else") as refused:
        check(compared(old_filter, new_filter), "here", lenient=False)
    assert f"--keep-state {compared(old_filter, new_filter).changed[0].uid}" in str(refused.value.remedy)
    check(compared(old, new), "here", lenient=True)


def test_a_changed_filter_may_be_kept_by_name() -> None:
    old, new = planned(FILTERED.format("a")), planned(FILTERED.format("b"))
    uid = compared(old, new).changed[0].uid
    difference = compared(old, new, keep=[uid])
    assert (difference.changed, difference.problems) == ((), ())
    assert "has changed" in difference.notes[0]


def test_state_of_another_layout_cannot_be_kept_by_name() -> None:
    old, new = planned(TUMBLE.format(10)), planned(TUMBLE.format(20))
    uid = compared(old, new).changed[0].uid
    difference = compared(old, new, keep=[uid])
    assert "another layout" in difference.problems[0]
