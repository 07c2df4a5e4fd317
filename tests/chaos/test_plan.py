"""What a seed means."""

from tests.chaos.faults import KINDS
from tests.chaos.plan import plan
from tests.chaos.run import groups
from tests.chaos.workloads import NAMES

WEIGHTED = [name for name, kind in KINDS.items() if kind.weight]


def test_a_seed_means_the_same_faults_every_time() -> None:
    for name in NAMES:
        assert plan(7, name, 25, WEIGHTED) == plan(7, name, 25, WEIGHTED[::-1])
    assert plan(7, "q5", 25, WEIGHTED) != plan(8, "q5", 25, WEIGHTED)
    assert plan(7, "q5", 25, WEIGHTED) != plan(7, "q8", 25, WEIGHTED)


def test_a_shorter_run_is_the_beginning_of_a_longer_one() -> None:
    assert plan(3, "q18", 25, WEIGHTED).faults[:10] == plan(3, "q18", 10, WEIGHTED).faults


def test_every_kind_with_a_weight_comes() -> None:
    thrown = {fault.kind for seed in range(40) for fault in plan(seed, "q5", 25, WEIGHTED).faults}
    assert thrown == set(WEIGHTED)


def test_kinds_without_a_weight_come_in_turn() -> None:
    away = ["away-nats", "away-valkey", "away-masters"]
    faults = plan(1, "q5", 5, away).faults
    assert [f.kind for f in faults] == [*sorted(away), *sorted(away)[:2]]
    assert {f.lasts_s for f in faults} == {60.0}
    assert not any(f.doubled for f in faults)


def test_doubled_faults_are_thrown_with_the_one_before() -> None:
    faults = plan(1, "flights", 50, WEIGHTED).faults
    found = list(groups(faults))
    assert [f for group in found for f in group] == faults
    assert any(len(group) > 1 for group in found)
    assert all([f.doubled for f in group] == [i > 0 for i in range(len(group))] for group in found)
