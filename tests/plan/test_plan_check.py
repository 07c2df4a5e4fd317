"""Unsound plans are found, and the rule that made one is named."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import InternalError
from penstock.functions.expr import AggregateCall, FieldAccess, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph import specs as s
from penstock.plan import nodes as n
from penstock.plan import optimizer
from penstock.plan.plan_check import PlanChecker
from penstock.types import logical as t
from tests.plan.test_physical import BIGINT, STRING, count_by, join, plan, scan, sink

replace = msgspec.structs.replace
TRUE = Literal(True, t.BooleanType(nullable=False))
SOURCE = scan("a")
PROJECT = n.Project(
    input=SOURCE, expressions=(InputRef(1, BIGINT), InputRef(3, STRING)), schema=t.Schema.of(("v", BIGINT), ("w", STRING))
)  # fmt: skip
FILTER = n.Filter(
    input=SOURCE, condition=make_call("=", [InputRef(0, BIGINT), InputRef(1, BIGINT)]), schema=SOURCE.schema
)
GROUPED = count_by(SOURCE, 0)
JOIN = replace(join(SOURCE, SOURCE, None), left_keys=(0,), right_keys=(0,))
UNION = n.Union_(inputs=(PROJECT, PROJECT), schema=PROJECT.schema)
TOP = n.TopN(input=PROJECT, partition=(1,), order=(s.SortKey(0),), last=1, schema=PROJECT.schema)
SORT = n.Sort(input=PROJECT, order=(s.SortKey(0),), schema=PROJECT.schema)
WIDER = t.Schema.of(("v", BIGINT), ("w", STRING), ("x", BIGINT))
OTHER = t.Schema.of(("v", STRING), ("w", STRING))
WINDOW = n.WindowAggregate(
    input=SOURCE,
    window=s.WindowSpec(kind="tumble", time=2, size_us=1),
    keys=(),
    aggregates=(),
    window_columns=("end",),
    schema=t.Schema.of(("window_end", t.TimestampType(3))),
)
ROW = t.RowType((t.Field("a", BIGINT),))

UNSOUND = {
    "a column that is not there": replace(PROJECT, expressions=(InputRef(4, BIGINT), InputRef(3, STRING))),
    "a column of another type": replace(PROJECT, expressions=(InputRef(3, BIGINT), InputRef(3, STRING))),
    "swapped columns": replace(PROJECT, expressions=PROJECT.expressions[::-1]),
    "a missing expression": replace(PROJECT, expressions=PROJECT.expressions[:1]),
    "a column in a call": replace(FILTER, condition=make_call("IS NULL", [InputRef(9, BIGINT)])),
    "a condition that is none": replace(FILTER, condition=InputRef(0, BIGINT)),
    "a filter with other columns": replace(FILTER, schema=WIDER),
    "a field that is not there": replace(
        FILTER, condition=make_call("IS NULL", [FieldAccess(Literal(None, ROW), 1, BIGINT)])
    ),
    "two columns of one name": replace(PROJECT, schema=t.Schema.of(("v", BIGINT), ("v", STRING))),
    "a group key": replace(GROUPED, keys=(4,)),
    "a group key of another type": replace(GROUPED, keys=(3,)),
    "an aggregate's argument": replace(
        GROUPED, aggregates=(AggregateCall("COUNT", (7,), t.BigIntType(False)),)
    ),
    "an aggregate's filter": replace(
        GROUPED, aggregates=(AggregateCall("COUNT", (), t.BigIntType(False), filter=0),)
    ),
    "a lost aggregate": replace(GROUPED, aggregates=()),
    "a join key": replace(JOIN, right_keys=(4,)),
    "join keys of different types": replace(JOIN, right_keys=(3,)),
    "a key of one side": replace(JOIN, right_keys=()),
    "a join condition": replace(JOIN, condition=make_call("IS NULL", [InputRef(8, BIGINT)])),
    "a join's columns": replace(JOIN, schema=SOURCE.schema),
    "a join's time": replace(JOIN, interval=(9, 2, 0, 0)),
    "a union of different rows": replace(UNION, inputs=(PROJECT, replace(PROJECT, schema=OTHER))),
    "a union of wider rows": replace(UNION, inputs=(PROJECT, SOURCE)),
    "a partition": replace(TOP, partition=(2,)),
    "an order": replace(SORT, order=(s.SortKey(2),)),
    "a rank that is not kept": replace(TOP, rank_column=True),
    "a projection of a scan": replace(SOURCE, projection=(0, 1, 2, 7)),
    "a scan without its event time": replace(
        SOURCE, projection=(0,), schema=t.Schema.of(("k", BIGINT))
    ),
    "a side output of nobody": n.SideOutput(input=WINDOW, tag="late", schema=SOURCE.schema),
}  # fmt: skip


def above(node: n.Node) -> n.Project:
    """One column of it, so that the plan's output does not change."""
    return n.Project(input=node, expressions=(TRUE,), schema=t.Schema.of(("t", TRUE.type)))


@pytest.mark.parametrize("what", UNSOUND)
def test_an_unsound_plan_is_found(what: str) -> None:
    sound = sink(above(SOURCE))
    checker = PlanChecker([sound])
    with pytest.raises(InternalError, match="rule 'mine'"):
        checker.after("mine", [replace(sound, input=above(UNSOUND[what]))])


@pytest.mark.parametrize(
    "node", [PROJECT, FILTER, GROUPED, JOIN, UNION, TOP, SORT], ids=lambda x: type(x).__name__
)
def test_a_sound_plan_passes(node: n.Node) -> None:
    checked = PlanChecker([sink(above(SOURCE))]).after("mine", [sink(above(node))])
    assert len(checked) == 1


def test_a_rule_that_changes_the_output_is_found() -> None:
    with pytest.raises(InternalError, match="rule 'mine'") as caught:
        PlanChecker([sink(PROJECT)]).after("mine", [sink(above(PROJECT))])
    assert caught.value.where == "the plan's outputs"


def test_a_lost_sink_is_found() -> None:
    with pytest.raises(InternalError, match="rule 'mine'"):
        PlanChecker([sink(PROJECT), sink(PROJECT)]).after("mine", [sink(PROJECT)])


def test_a_rule_that_loses_watermarks_is_found() -> None:
    silent = replace(SOURCE, table=replace(SOURCE.table, watermark=None))
    with pytest.raises(InternalError, match="rule 'mine'") as caught:
        PlanChecker([sink(above(SOURCE))]).after("mine", [sink(above(silent))])
    assert caught.value.expected == "watermarks of table 'a'"


def test_a_rule_of_the_optimizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        optimizer, "prune", lambda roots, **_: tuple(replace(r, input=UNSOUND["a group key"]) for r in roots)
    )
    with pytest.raises(InternalError, match="rule 'column pruning'") as caught:
        optimizer.optimize(plan(sink(GROUPED, modes=("retract",))))
    assert caught.value.where == "Aggregate"
