"""Plans made by hand: chaining, partitioning, uids, bounds, changelog modes."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import UnsupportedError
from penstock.functions.expr import AggregateCall, FieldAccess, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Broadcast, Forward, Hash, decode_job_graph, encode_job_graph
from penstock.plan import nodes as n
from penstock.plan.physical import default_max_parallelism, plan_job
from penstock.plan.properties import Analysis, constant_shift
from penstock.plan.pruning import prune
from penstock.plan.rewriting import Interner
from penstock.types import logical as t

BIGINT, STRING, TS = t.BigIntType(), t.VarCharType(), t.TimestampType(3)
SECOND = 1_000_000


def scan(name: str, *, bounded: bool = False) -> n.Scan:
    schema = t.Schema.of(("k", BIGINT), ("v", BIGINT), ("ts", TS), ("wide", STRING), rowtime="ts")
    table = n.TableRef(
        name=name,
        connector="test",
        options={},
        physical=t.Schema(schema.fields),
        schema=schema,
        watermark=s.WatermarkSpec(rowtime=2, delay_us=SECOND),
        bounded=bounded,
    )
    return n.Scan(table=table, schema=schema)


def sink(node: n.Node, *, modes: tuple[str, ...] = ("append",), key: tuple[str, ...] = ()) -> n.Sink:
    schema = t.Schema(node.schema.fields)
    table = n.TableRef(
        name="out",
        connector="test",
        options={},
        physical=schema,
        schema=schema,
        sink_modes=modes,
        primary_key=key,
    )
    return n.Sink(input=node, table=table, schema=schema)


def plan(*sinks: n.Sink, **config: str) -> n.LogicalPlan:
    settings = {"parallelism.default": "2", **{k.replace("_", "."): v for k, v in config.items()}}
    return n.LogicalPlan(name="test", sinks=sinks, config=settings)


def count_by(node: n.Node, key: int) -> n.Aggregate:
    schema = t.Schema.of((node.schema.names[key], node.schema.types[key]), ("n", t.BigIntType(False)))
    call = AggregateCall("COUNT", (), t.BigIntType(False))
    return n.Aggregate(input=node, keys=(key,), aggregates=(call,), schema=schema)


def join(left: n.Node, right: n.Node, condition: object, kind: str = "inner") -> n.Join:
    fields = [t.Field(f.name, f.type) for f in left.schema.fields]
    fields += [t.Field(f.name + "0", f.type) for f in right.schema.fields]
    return n.Join(
        left=left,
        right=right,
        kind=kind,
        left_keys=(),
        right_keys=(),
        condition=condition,
        schema=t.Schema(tuple(fields)),
    )  # type: ignore[arg-type]


def spec_of(graph, kind: type):  # type: ignore[no-untyped-def]
    return [op.spec for v in graph.vertices for op in v.operators if isinstance(op.spec, kind)]


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (200, 512), (1000, 2048)]
)
def test_default_max_parallelism(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


def test_source_is_preceded_by_its_enumerator() -> None:
    graph = plan_job(plan(sink(scan("a"))))
    enumerator, readers = graph.vertices
    assert enumerator.parallelism == 1
    assert isinstance(enumerator.operators[0].spec, s.EnumeratorSpec)
    assert [type(o.spec) for o in readers.operators] == [s.SourceSpec, s.SinkSpec]
    assert graph.inputs_of(readers.id)[0].partitioning == Broadcast()
    assert not graph.bounded


def test_job_graph_is_plain_data() -> None:
    graph = plan_job(plan(sink(scan("a", bounded=True))))
    assert graph.bounded
    assert decode_job_graph(encode_job_graph(graph)) == graph


def test_only_needed_columns_are_read() -> None:
    source = scan("a")
    project = n.Project(input=source, expressions=(InputRef(1, BIGINT),), schema=t.Schema.of(("v", BIGINT)))
    (spec,) = spec_of(plan_job(plan(sink(project))), s.SourceSpec)
    assert spec.projection == (1, 2)  # the watermark needs ts
    assert spec.watermark.rowtime == 1


def test_two_consumers_share_one_scan_of_both_columns() -> None:
    source = scan("a")
    sinks = [
        sink(n.Project(input=source, expressions=(InputRef(i, BIGINT),), schema=t.Schema.of((name, BIGINT))))
        for i, name in ((0, "k"), (1, "v"))
    ]
    (spec,) = spec_of(plan_job(plan(*sinks)), s.SourceSpec)
    assert spec.projection == (0, 1, 2)


def test_second_aggregation_by_the_same_key_is_chained() -> None:
    first = count_by(scan("a", bounded=True), 0)
    second = n.Aggregate(
        input=first,
        keys=(0,),
        aggregates=(AggregateCall("COUNT", (1,), t.BigIntType(False), distinct=True),),
        schema=t.Schema.of(("k", BIGINT), ("n", t.BigIntType(False))),
    )
    graph = plan_job(plan(sink(second)))
    hashes = [e for e in graph.edges if isinstance(e.partitioning, Hash)]
    assert len(hashes) == 1
    last = graph.vertices[-1]
    assert [type(o.spec).__name__ for o in last.operators] == [
        "GroupAggregateSpec",
        "GroupAggregateSpec",
        "SinkSpec",
    ]


def test_chaining_never_makes_a_cycle_of_vertices() -> None:
    source = scan("a", bounded=True)
    filtered = n.Filter(
        input=source,
        condition=make_call(">", [InputRef(1, BIGINT), Literal(0, BIGINT)]),
        schema=source.schema,
    )
    counted = count_by(filtered, 0)
    back = join(filtered, counted, make_call("=", [InputRef(0, BIGINT), InputRef(4, BIGINT)]))
    graph = plan_job(plan(sink(back)))
    order = {v.id: i for i, v in enumerate(graph.vertices)}
    assert all(order[e.source] < order[e.target] for e in graph.edges)
    assert not any(isinstance(e.partitioning, Forward) and e.source == e.target for e in graph.edges)


def test_uids_do_not_change_when_a_neighbour_is_added() -> None:
    counted = count_by(scan("a"), 0)
    alone = plan_job(plan(sink(counted, modes=("retract",))))
    other = sink(scan("b"))
    both = plan_job(plan(other, sink(counted, modes=("retract",))))
    uids = {op.uid for v in alone.vertices for op in v.operators}
    assert uids <= {op.uid for v in both.vertices for op in v.operators}


@pytest.mark.parametrize(
    ("op", "shift_us", "low", "high"),
    [(("<=", ">="), 5 * SECOND, -5 * SECOND, 0), (("<", ">"), 5 * SECOND, 1 - 5 * SECOND, -1)],
)
def test_interval_join_bounds(op: tuple[str, str], shift_us: int, low: int, high: int) -> None:
    interval = Literal(shift_us, t.DayTimeIntervalType(False))
    left_ts, right_ts = InputRef(2, TS), InputRef(6, TS)
    condition = make_call(
        "AND",
        [
            make_call("=", [InputRef(0, BIGINT), InputRef(4, BIGINT)]),
            make_call(op[0], [right_ts, left_ts]),
            make_call(op[1], [right_ts, make_call("-", [left_ts, interval])]),
        ],
    )
    (spec,) = spec_of(plan_job(plan(sink(join(scan("a"), scan("b"), condition)))), s.JoinSpec)
    assert spec.interval is not None
    assert spec.interval[2:] == (low, high)
    assert spec.left_keys == (0,)
    assert spec.condition is None


def test_one_open_bound_is_no_interval_join_and_is_refused() -> None:
    condition = make_call(">=", [InputRef(6, TS), InputRef(2, TS)])
    with pytest.raises(UnsupportedError, match="for ever"):
        plan_job(plan(sink(join(scan("a"), scan("b"), condition))))


@pytest.mark.parametrize(
    "settings", [{"table_exec_state_ttl": "1 h"}, {"table_exec_join_unbounded-state": "allow"}]
)
def test_unbounded_join_is_allowed_when_told(settings: dict[str, str]) -> None:
    condition = make_call("=", [InputRef(0, BIGINT), InputRef(4, BIGINT)])
    (spec,) = spec_of(plan_job(plan(sink(join(scan("a"), scan("b"), condition)), **settings)), s.JoinSpec)
    assert spec.interval is None


def test_updates_need_a_sink_that_takes_them() -> None:
    with pytest.raises(UnsupportedError, match="only inserts"):
        plan_job(plan(sink(count_by(scan("a"), 0))))
    with pytest.raises(UnsupportedError, match="declares none"):
        plan_job(plan(sink(count_by(scan("a"), 0), modes=("append", "upsert"))))


def test_upsert_sink_on_its_own_key_needs_no_before_rows() -> None:
    graph = plan_job(plan(sink(count_by(scan("a"), 0), modes=("append", "upsert"), key=("k",))))
    final = spec_of(graph, s.GroupAggregateSpec)[-1]
    assert not final.emit_before
    (out,) = spec_of(graph, s.SinkSpec)
    assert (out.mode, out.keys) == ("upsert", (0,))
    assert not spec_of(graph, s.MaterializeSpec)


def test_bounded_aggregate_gives_final_rows() -> None:
    graph = plan_job(plan(sink(count_by(scan("a", bounded=True), 0))))
    assert all(a.bounded_final for a in spec_of(graph, s.GroupAggregateSpec))
    streaming = plan(
        sink(count_by(scan("a", bounded=True), 0), modes=("retract",)),
        **{"execution_runtime-mode": "STREAMING"},
    )
    assert not any(a.bounded_final for a in spec_of(plan_job(streaming), s.GroupAggregateSpec))


def test_batch_mode_over_an_unbounded_source_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="unbounded"):
        plan_job(plan(sink(scan("a")), **{"execution_runtime-mode": "BATCH"}))


def test_nested_fields_are_read_alone() -> None:
    row = t.RowType((t.Field("a", BIGINT), t.Field("b", STRING), t.Field("c", BIGINT)))
    schema = t.Schema.of(("r", row))
    table = n.TableRef(
        name="x", connector="test", options={}, physical=schema, schema=schema, nested_projection=True
    )
    from penstock.functions.registry import field_access

    project = n.Project(
        input=n.Scan(table=table, schema=schema),
        expressions=(field_access(InputRef(0, row), "c"),),
        schema=t.Schema.of(("c", BIGINT)),
    )
    graph = plan_job(plan(sink(project)))
    (spec,) = spec_of(graph, s.SourceSpec)
    assert [f.name for f in spec.schema.types[0].fields] == ["c"]
    assert spec.computed == (FieldAccess(InputRef(0, spec.schema.types[0]), 0, BIGINT),)

    whole = msgspec.structs.replace(table, nested_projection=False)
    graph = plan_job(plan(sink(msgspec.structs.replace(project, input=n.Scan(table=whole, schema=schema)))))
    (spec,) = spec_of(graph, s.SourceSpec)
    assert spec.schema.types[0] == row


def test_equal_sub_plans_are_one() -> None:
    interner = Interner()
    one, two = interner.intern(count_by(scan("a"), 0)), interner.intern(count_by(scan("a"), 0))
    assert one is two
    assert interner.fingerprint(one) != interner.fingerprint(interner.intern(count_by(scan("b"), 0)))


def test_pruning_keeps_what_a_union_lines_up() -> None:
    both = n.Union_(inputs=(scan("a"), scan("b")), schema=scan("a").schema)
    top = n.Project(input=both, expressions=(InputRef(3, STRING),), schema=t.Schema.of(("wide", STRING)))
    (pruned,) = prune([sink(top)])
    union = pruned.input.input  # type: ignore[union-attr]
    assert [i.schema.names for i in union.inputs] == [["wide"], ["wide"]]


def test_constant_shift_looks_through_intervals() -> None:
    minute = Literal(60 * SECOND, t.DayTimeIntervalType(False))
    shifted = make_call(
        "-", [make_call("+", [InputRef(2, TS), minute]), Literal(SECOND, t.DayTimeIntervalType(False))]
    )
    assert constant_shift(shifted) == (2, 59 * SECOND)
    assert constant_shift(make_call("+", [InputRef(0, BIGINT), Literal(1, BIGINT)])) is None


def test_window_start_runs_behind_the_watermark_by_its_size() -> None:
    source = scan("a")
    window = s.WindowSpec(kind="tumble", time=2, size_us=10 * SECOND, slide_us=10 * SECOND)
    node = n.WindowAggregate(
        input=source,
        window=window,
        keys=(0,),
        aggregates=(),
        schema=t.Schema.of(("k", BIGINT), ("window_start", TS), ("window_end", TS), ("window_time", TS)),
    )
    known = Analysis().of(node)
    assert known.rowtimes == {3}
    assert known.lags[1] == 10 * SECOND - 1000
    assert known.lags[3] == 0
    assert frozenset({0, 2}) in known.unique
