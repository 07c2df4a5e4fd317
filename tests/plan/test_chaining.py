"""Chains: which operators share a vertex, and the proof that no edge of the plan is lost on the way."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import InternalError
from penstock.functions.expr import AggregateCall, InputRef
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Broadcast, ChainInput, Forward, Global, Hash, Rebalance
from penstock.plan.chaining import build_vertices, partitioning_of
from penstock.plan.distribution import Distributions, meets, required_keys
from penstock.plan.graph_check import check_distribution, check_job_graph
from penstock.plan.operator_graph import OperatorInput, PlannedOperator
from penstock.types import logical as t

BIGINT = t.BigIntType()
PAIR = t.Schema.of(("k", BIGINT), ("v", BIGINT))


def operator(
    uid: str, spec: s.OperatorSpec, *inputs: OperatorInput, output: t.Schema = PAIR, parallelism: int = 2
) -> PlannedOperator:
    return PlannedOperator(
        uid=uid, name=uid, spec=spec, inputs=[[i] for i in inputs], output=output, parallelism=parallelism
    )


def values() -> PlannedOperator:
    return operator("values", s.CollectionSourceSpec(data=""), parallelism=1)


def total(source: PlannedOperator) -> PlannedOperator:
    call = AggregateCall("SUM", (1,), BIGINT)
    spec = s.GroupAggregateSpec(keys=(0,), aggregates=(call,))
    return operator("total", spec, OperatorInput(source, Hash((0,))))


def calc(uid: str, source: OperatorInput, *columns: int) -> PlannedOperator:
    spec = s.CalcSpec(projections=tuple(InputRef(c, BIGINT) for c in columns) or None)
    return operator(uid, spec, source)


def join(left: OperatorInput, right: OperatorInput, **fields: object) -> PlannedOperator:
    spec = s.JoinSpec(**{"kind": "inner", "left_keys": (0,), "right_keys": (0,), **fields})  # type: ignore[arg-type]
    four = t.Schema.of(("a", BIGINT), ("b", BIGINT), ("c", BIGINT), ("d", BIGINT))
    return operator("join", spec, left, right, output=four)


def shifted_self_join() -> list[PlannedOperator]:
    """g JOIN g AS h ON g.k = h.k + 1: one side comes as it is, the other over an exchange."""
    source = values()
    grouped = total(source)
    joined = join(OperatorInput(grouped), OperatorInput(grouped, Hash((1,))), right_keys=(1,))
    return [source, grouped, joined]


def build(operators: list[PlannedOperator]):  # type: ignore[no-untyped-def]
    return build_vertices(operators, max_parallelism=128, chaining=True)


def test_an_exchange_beside_a_forward_edge_stays() -> None:
    vertices, edges = build(shifted_self_join())
    assert [v.name for v in vertices] == ["values", "total", "join"]
    assert [type(e.partitioning) for e in edges if e.target == vertices[2].id] == [Forward, Hash]


@pytest.mark.parametrize("between", [Hash((1,)), Broadcast(), Rebalance()])
def test_an_exchange_around_a_chain_stays(between: object) -> None:
    """The forward way is through an operator that is chained already."""
    source = values()
    grouped = total(source)
    same = calc("same", OperatorInput(grouped))
    both = operator(
        "union", s.UnionSpec(), OperatorInput(same), OperatorInput(grouped, between)  # type: ignore[arg-type]
    )  # fmt: skip
    both.inputs = [[i for port in both.inputs for i in port]]
    vertices, edges = build([source, grouped, same, both])
    assert [v.name for v in vertices] == ["values", "total -> same", "union"]
    assert between in [e.partitioning for e in edges if e.target == vertices[2].id]


def test_an_operator_that_is_not_chained_stays_apart_from_what_it_reads() -> None:
    source = values()
    grouped = total(source)
    slow = calc("slow", OperatorInput(grouped))
    slow.chain = False
    both = operator("union", s.UnionSpec(), OperatorInput(slow))
    both.inputs = [[OperatorInput(slow), OperatorInput(grouped)]]
    vertices, _ = build([source, grouped, slow, both])
    assert ["slow" in v.name for v in vertices if "total" in v.name] == [False]


def test_forward_edges_to_two_branches_that_meet_are_one_chain() -> None:
    source = values()
    grouped = total(source)
    first, second = calc("first", OperatorInput(grouped)), calc("second", OperatorInput(grouped))
    both = operator("union", s.UnionSpec(), OperatorInput(first))
    both.inputs = [[OperatorInput(first), OperatorInput(second)]]
    vertices, edges = build([source, grouped, first, second, both])
    assert len(vertices) == 2
    assert len(edges) == 1


# -- the proof ----------------------------------------------------------------------------------


def check(operators: list[PlannedOperator], vertices, edges) -> None:  # type: ignore[no-untyped-def]
    check_job_graph(operators, vertices, edges, partitioning_of)


def test_a_lost_edge_is_found() -> None:
    operators = shifted_self_join()
    vertices, edges = build(operators)
    with pytest.raises(InternalError, match="lost an edge"):
        check(operators, vertices, edges[:-1])


def test_a_swallowed_exchange_is_found() -> None:
    """What the planner made of it until 2026-11: one chain, and no edge."""
    operators = shifted_self_join()
    vertices, edges = build(operators)
    grouped, joined = vertices[1].operators[0], vertices[2].operators[0]
    here = ((ChainInput(operator=0),), (ChainInput(operator=0),))
    chain = msgspec.structs.replace(
        vertices[1], operators=(grouped, msgspec.structs.replace(joined, inputs=here))
    )
    with pytest.raises(InternalError, match="lost an edge"):
        check(operators, (vertices[0], chain), edges[:1])


@pytest.mark.parametrize(
    "change",
    [
        {"partitioning": Hash((0,))},
        {"partitioning": Forward()},
        {"source_operator": 1},
        {"tag": "late"},
        {"schema": t.Schema.of(("k", BIGINT))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_edge_is_found(change: dict) -> None:
    operators = shifted_self_join()
    vertices, edges = build(operators)
    changed = [*edges[:-1], msgspec.structs.replace(edges[-1], **change)]
    with pytest.raises(InternalError, match="lost an edge"):
        check(operators, vertices, changed)


def test_an_edge_of_nobody_is_found() -> None:
    operators = shifted_self_join()
    vertices, edges = build(operators)
    with pytest.raises(InternalError, match="none of the plan"):
        check(operators, vertices, [*edges, msgspec.structs.replace(edges[-1], target_gate=7)])


def test_another_parallelism_is_found() -> None:
    operators = shifted_self_join()
    vertices, edges = build(operators)
    narrow = (*vertices[:2], msgspec.structs.replace(vertices[2], parallelism=3))
    with pytest.raises(InternalError, match="is not the plan's"):
        check(operators, narrow, edges)


def test_two_operators_of_one_uid_are_found() -> None:
    operators = shifted_self_join()
    operators[2].uid = operators[1].uid
    with pytest.raises(InternalError, match="uid"):
        build(operators)


def test_a_state_whose_keys_are_spread_over_subtasks_is_found() -> None:
    source = values()
    grouped = total(source)
    grouped.inputs[0][0].partitioning = Hash((1,))
    with pytest.raises(InternalError, match="may reach different subtasks"):
        build([source, grouped])


def test_updates_that_could_overtake_one_another_are_found() -> None:
    source = values()
    grouped = total(source)
    grouped.mode = "retract"
    far = calc("far", OperatorInput(grouped))
    with pytest.raises(InternalError, match="updates of one row"):
        check_distribution(far, Distributions(partitioning_of), lambda op, inp: Rebalance())


def test_updates_reach_a_wider_operator_in_order() -> None:
    source = values()
    grouped = total(source)
    grouped.mode, grouped.parallelism = "retract", 1
    far = calc("far", OperatorInput(grouped))
    assert partitioning_of(far, far.inputs[0][0]) == Global()
    grouped.mode = "append"
    assert partitioning_of(far, far.inputs[0][0]) == Rebalance()


# -- distributions ------------------------------------------------------------------------------


def spread(op: PlannedOperator) -> set[tuple[int, ...]]:
    return set(Distributions(partitioning_of).output(op))


def fine(op: PlannedOperator) -> bool:
    return meets(op, Distributions(partitioning_of))


def test_columns_are_followed_through_a_projection() -> None:
    grouped = total(values())
    assert spread(calc("swap", OperatorInput(grouped), 1, 0)) == {(1,)}
    assert spread(calc("without", OperatorInput(grouped), 1)) == set()
    assert spread(calc("filter", OperatorInput(grouped))) == {(0,)}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", {(0,), (2,)}),
        ("left", {(0,)}),
        ("right", {(2,)}),
        ("full", set()),
        ("semi", {(0,)}),
        ("anti", {(0,)}),
    ],
)
def test_a_join_spreads_by_the_side_that_it_does_not_pad(kind: str, expected: set) -> None:
    source = values()
    made = join(OperatorInput(source, Hash((0,))), OperatorInput(source, Hash((0,))), kind=kind)
    assert spread(made) == expected


def test_the_union_of_differently_spread_rows_is_spread_by_nothing() -> None:
    source = values()
    op = operator("union", s.UnionSpec())
    op.inputs = [[OperatorInput(source, Hash((0,))), OperatorInput(source, Hash((1,)))]]
    assert spread(op) == set()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [((0,), (0,), True), ((1,), (1,), True), ((0, 1), (0, 1), True), ((1, 0), (1, 0), True),
     ((0, 1), (1, 0), False), ((0,), (1,), False), ((0, 1), (0,), False)],
)  # fmt: skip
def test_both_sides_of_a_join_are_spread_alike(left: tuple, right: tuple, expected: bool) -> None:
    source = values()
    made = join(
        OperatorInput(source, Hash(left)), OperatorInput(source, Hash(right)), left_keys=(0, 1), right_keys=(0, 1)
    )  # fmt: skip
    assert fine(made) == expected


@pytest.mark.parametrize(
    ("type_", "expected"),
    [(t.IntType(), True), (t.DoubleType(), False), (t.DecimalType(10, 2), False), (t.VarCharType(), False)],
    ids=str,
)
def test_keys_of_types_that_hash_differently_do_not_meet(type_: t.LogicalType, expected: bool) -> None:
    source = values()
    other = operator(
        "other", s.CollectionSourceSpec(data=""), output=t.Schema.of(("k", type_)), parallelism=1
    )
    assert fine(join(OperatorInput(source, Hash((0,))), OperatorInput(other, Hash((0,))))) == expected


def test_what_needs_all_rows_runs_once() -> None:
    limit = operator("limit", s.LimitSpec(limit=1), OperatorInput(values(), Rebalance()))
    assert not fine(limit)
    limit.parallelism = 1
    assert fine(limit)


def test_a_broadcast_side_needs_no_key() -> None:
    source = values()
    spec = s.KeyedProcessSpec(kind="broadcast-process", function="f", keys=((0,), ()))
    op = operator("rules", spec, OperatorInput(source, Hash((0,))), OperatorInput(source, Broadcast()))
    assert required_keys(op) == ((0,), None)
    assert fine(op)
