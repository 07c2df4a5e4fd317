"""Accumulators of a function: what they add, and names that are taken."""

from __future__ import annotations

import pytest

from penstock.errors import SpecError, UnsupportedError
from penstock.metrics import MetricGroup
from penstock.operators.accumulators import Accumulators, IntCounter, LongCounter


def test_a_counter_goes_on_with_what_it_had() -> None:
    group = MetricGroup()
    known = Accumulators(group, "operator 'x'")
    counter = IntCounter(3)
    counter.add(4)
    assert counter.get_local_value() == 7
    known.add("n", counter)
    counter.add(1)
    assert group.counters == {"n": 8}
    assert known.get("n") is counter
    counter.reset_local()
    assert counter.get_local_value() == group.counters["n"] == 0


@pytest.mark.parametrize("name", ["n", "late", "numRecordsIn"])
def test_names_that_are_taken_are_refused(name: str) -> None:
    group = MetricGroup()
    group.inc("late")
    known = Accumulators(group, "operator 'x'")
    known.add("n", LongCounter())
    with pytest.raises(SpecError, match="a name that is taken"):
        known.add(name, LongCounter())


def test_other_accumulators_and_engines_that_keep_none_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="the accumulator 'm'"):
        Accumulators(MetricGroup(), "x").add("m", [])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="on Spark"):
        Accumulators(MetricGroup(reported=False), "x").add("m", LongCounter())
    with pytest.raises(SpecError, match="no accumulator 'm'"):
        Accumulators(MetricGroup(), "x").get("m")
