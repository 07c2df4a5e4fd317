"""The conformance kit of operators, on some that Penstock brings along and on two of somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.functions.expr import AggregateCall
from penstock.plan import nodes as n
from penstock.testing.conformance.base import run_kit
from penstock.testing.operators import OperatorConformance
from penstock.types import logical as t
from tests.plan.outside import test_outside as outside
from tests.plan.outside.debounce.node import Debounce
from tests.plan.outside.delta.node import delta

BIGINT = t.BigIntType(False)
PAIR = t.Schema.of(("k", t.VarCharType()), ("v", BIGINT))
NUMBERS = [(f"key {i * i % 11}", i % 7) for i in range(60)]


class TestDebounce(OperatorConformance):
    def schemas(self) -> list[t.Schema]:
        return [outside.SCHEMA]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [outside.ROWS[:80]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return outside.debounce(inputs[0])

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return list(outside.debounced(rows[0]).elements())


class ForgetfulDebounce(Debounce, frozen=True, kw_only=True, tag="forgetful"):
    """Does not say that it reads its time."""

    reads = ("keys",)


class TestDelta(OperatorConformance):
    def schemas(self) -> list[t.Schema]:
        return [outside.SCHEMA]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [outside.ROWS[:80]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        return delta(inputs[0], (0,), 2)

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return list(outside.differences(rows[0]).elements())


class TestAggregate(OperatorConformance):
    takes_updates = True

    def schemas(self) -> list[t.Schema]:
        return [PAIR]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [NUMBERS]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        calls = (AggregateCall("SUM", (1,), t.BigIntType()), AggregateCall("COUNT", (), BIGINT))
        schema = t.Schema.of(("k", t.VarCharType()), ("total", t.BigIntType()), ("n", BIGINT))
        return n.Aggregate(input=inputs[0], keys=(0,), aggregates=calls, schema=schema)

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        keys = dict.fromkeys(k for k, _ in rows[0])
        found = {key: [v for k, v in rows[0] if k == key] for key in keys}
        return [(key, sum(values), len(values)) for key, values in found.items()]


class TestJoin(OperatorConformance):
    config = {"table.exec.join.unbounded-state": "allow"}

    def schemas(self) -> list[t.Schema]:
        return [PAIR, PAIR]

    def rows(self) -> list[list[tuple[Any, ...]]]:
        return [NUMBERS[:30], NUMBERS[20:50]]

    def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
        names = ("k", "v", "k0", "v0")
        types = [*PAIR.types, *PAIR.types]
        schema = t.Schema.of(*zip(names, types, strict=True))
        return n.Join(
            left=inputs[0], right=inputs[1], kind="inner", left_keys=(0,), right_keys=(0,), schema=schema
        )

    def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return [(*a, *b) for a in rows[0] for b in rows[1] if a[0] == b[0]]


def test_a_node_that_forgets_what_it_reads_fails() -> None:
    class Forgetful(TestDebounce):
        def node(self, inputs: tuple[n.Node, ...]) -> n.Node:
            source = inputs[0]
            return ForgetfulDebounce(
                input=source, keys=(0,), time=1, quiet_us=20 * outside.SECOND, schema=source.schema
            )

    failed = [failure.check for failure in run_kit(Forgetful, only="columns")]
    assert failed == ["test_columns_that_nobody_reads_may_go"]


def test_a_wrong_reference_is_found() -> None:
    class Wrong(TestDelta):
        def expected(self, rows: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
            return super().expected(rows)[1:]

    failures = run_kit(Wrong, only="spread")
    assert [failure.check for failure in failures] == ["test_spread_over_subtasks"]
    assert "1 are too many" in str(failures[0])


@pytest.mark.parametrize("kit", [TestDebounce, TestDelta])
def test_time_to_live_is_checked(kit: type[OperatorConformance]) -> None:
    """The check is not passed over: both operators have a time to live."""
    op = kit()._alone({"table.exec.state.ttl": "1000"})
    assert op.spec.own().ttl_ms == 1000  # type: ignore[attr-defined]
