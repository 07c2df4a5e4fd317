"""Operators of somebody else's, a folder each, with nothing else edited: planned, run, restored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.api import Sink, StreamExecutionEnvironment, Types
from penstock.errors import SpecError
from penstock.functions.expr import InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import JobGraph, decode_job_graph, encode_job_graph
from penstock.plan import nodes as n
from penstock.plan.compiled import decode_plan, encode_plan
from penstock.plan.physical import plan_job
from penstock.testing import MemoryTable, run_graph
from penstock.types import logical as t
from penstock.types.batch import Batch
from tests.plan.outside.debounce.node import Debounce
from tests.plan.outside.debounce.spec import DebounceSpec
from tests.plan.outside.delta.node import delta

SECOND = 1_000_000
BIGINT = t.BigIntType(False)
SCHEMA = t.Schema.of(("k", t.VarCharType()), ("at", t.BigIntType(False)), ("v", BIGINT), ("unread", BIGINT))
ROWS = [(f"key {i % 5}", i * i % 97 * SECOND + i, i * 7 % 31, i) for i in range(200)]


def scan(name: str, rows: list[tuple[Any, ...]] = ROWS) -> n.Scan:
    batch = Batch.of(SCHEMA, rows)
    MemoryTable(name, SCHEMA, [[batch]], batch_rows=7)
    table = n.TableRef(
        name=name, connector="memory", options={"name": name}, physical=SCHEMA, schema=SCHEMA, bounded=True
    )
    return n.Scan(table=table, schema=SCHEMA)


def debounce(source: n.Node) -> Debounce:
    return Debounce(input=source, keys=(0,), time=1, quiet_us=20 * SECOND, schema=source.schema)


def planned(node: n.Node, parallelism: int = 1) -> JobGraph:
    table = n.TableRef(name="out", connector="collect", options={}, physical=node.schema, schema=node.schema)
    sink = n.Sink(input=node, table=table, schema=node.schema)
    config = {"parallelism.default": str(parallelism), "execution.runtime-mode": "STREAMING"}
    return plan_job(n.LogicalPlan(name="outside", sinks=(sink,), config=config))


def columns(node: n.Node, *wanted: int) -> n.Project:
    types = node.schema.types
    return n.Project(
        input=node,
        expressions=tuple(InputRef(i, types[i]) for i in wanted),
        schema=node.schema.select(wanted),
    )


def debounced(rows: list[tuple[Any, ...]]) -> Counter:
    last: dict[str, int] = {}
    out: Counter = Counter()
    for row in rows:
        if row[0] not in last or row[1] - last[row[0]] >= 20 * SECOND:
            out[row] += 1
        last[row[0]] = row[1]
    return out


def differences(rows: list[tuple[Any, ...]]) -> Counter:
    last: dict[str, int] = {}
    out: Counter = Counter()
    for row in rows:
        out[(*row, row[2] - last[row[0]] if row[0] in last else None)] += 1
        last[row[0]] = row[2]
    return out


@pytest.mark.parametrize("parallelism", [1, 3])
def test_debounce_runs(parallelism: int) -> None:
    rows = run_graph(planned(debounce(scan("debounced")), parallelism)).rows
    assert Counter(map(tuple, rows)) == debounced(ROWS)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_delta_runs(parallelism: int) -> None:
    rows = run_graph(planned(delta(scan("deltas"), (0,), 2), parallelism)).rows
    assert Counter(map(tuple, rows)) == differences(ROWS)


def test_columns_that_nobody_reads_are_not_read() -> None:
    graph = planned(columns(debounce(scan("narrow")), 0, 2))
    [source] = [op.spec for v in graph.vertices for op in v.operators if isinstance(op.spec, s.SourceSpec)]
    assert source.projection == (0, 1, 2)  # the column 'unread' is not
    expected = Counter((k, v) for k, _, v, _ in debounced(ROWS).elements())
    assert Counter(map(tuple, run_graph(graph).rows)) == expected


def test_a_condition_on_keys_goes_below_and_one_on_times_does_not() -> None:
    node = debounce(scan("filtered"))
    by_key = make_call("=", [InputRef(0, t.VarCharType()), Literal("key 1", t.VarCharType())])
    by_time = make_call(">", [InputRef(1, BIGINT), Literal(5 * SECOND, BIGINT)])
    condition = make_call("AND", [by_key, by_time])
    filtered = n.Filter(input=node, condition=condition, schema=node.schema)
    graph = planned(filtered)
    logical = graph.plan.split("== Optimized Logical Plan ==")[1].split("== Physical")[0]
    assert [line.strip().split("(")[0] for line in logical.strip().splitlines()] == [
        "Sink", "Filter", "Debounce", "Filter", "Scan",
    ]  # fmt: skip
    expected = Counter({r: c for r, c in debounced(ROWS).items() if r[0] == "key 1" and r[1] > 5 * SECOND})
    assert Counter(map(tuple, run_graph(graph).rows)) == expected


def test_explain_says_what_it_keeps() -> None:
    plan = planned(debounce(scan("explained"))).plan
    assert "Debounce([k], at, 20000 ms)" in plan
    assert "keeps the time of a key's last row, for ever (about 64 B a key)" in plan


def test_it_has_a_name_and_a_meaning_in_savepoints() -> None:
    graph = planned(debounce(scan("named")))
    [op] = [op for v in graph.vertices for op in v.operators if op.name == "Debounce"]
    assert op.uid.startswith("debounce-")
    assert op.identity.meaning["keys"].startswith("named.k")
    assert op.identity.digest


def test_it_travels_as_data() -> None:
    graph = planned(debounce(scan("sent")))
    [spec] = [o.spec for v in graph.vertices for o in v.operators if o.name == "Debounce"]
    assert isinstance(spec, s.RegisteredSpec)
    assert spec.own() == DebounceSpec(keys=(0,), time=1, quiet_us=20 * SECOND)
    assert decode_job_graph(encode_job_graph(graph)) == graph
    again = decode_plan(encode_plan(graph), "test")
    assert Counter(map(tuple, run_graph(again).rows)) == debounced(ROWS)


def test_a_program_uses_it() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    types = [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
    stream = env.from_collection(ROWS, Types.ROW_NAMED(["k", "at", "v", "unread"], types))
    stream = stream.transform("Delta", lambda node: delta(node, (0,), 2)).map(
        lambda row: row[4], Types.LONG()
    )
    stream.sink_to(Sink.connector("collect"))
    got = Counter(value for (value,) in run_graph(env.job_graph("outside")).rows)
    assert got == Counter(row[4] for row in differences(ROWS).elements())


class Local(s.Spec, frozen=True, kw_only=True, tag="local"):
    pass


def test_a_spec_without_an_operator_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot be sent to the task managers"):
        s.as_sent(Local())


def test_a_package_that_is_missing_is_named() -> None:
    spec = s.RegisteredSpec(type="nobody.has.this:Spec", fields={})
    with pytest.raises(SpecError, match=r"no module 'nobody'|install the package"):
        spec.own()


def test_fields_of_another_version_are_refused() -> None:
    spec = s.RegisteredSpec(type="tests.plan.outside.debounce.spec:DebounceSpec", fields={"keys": [0]})
    with pytest.raises(SpecError, match="other fields here"):
        spec.own()
