from __future__ import annotations

import msgspec

from penstock.jobgraph import JobGraph
from penstock.messages.job_master import OfferSlots, SlotOffer
from penstock_services.jobmanager.regions import Layout, regions_of
from penstock_services.jobmanager.slots import SlotPool, locations, waiting_for
from tests.services.jobmanager.graphs import pipeline, vertex

GROUPS = JobGraph(
    name="g", vertices=(vertex("a", 2), vertex("b", 3), vertex("c", 1, group="heavy")), edges=()
)
#: The whole of it restarts together.
FULL = Layout(GROUPS, {"jobmanager.execution.failover-strategy": "full"})


def offer(taskmanager_id: str, *allocations: str) -> OfferSlots:
    return OfferSlots(
        command_id="o",
        job_id="j",
        taskmanager_id=taskmanager_id,
        host="h",
        data_port=1,
        slots=tuple(SlotOffer(allocation_id=a, slot_index=i) for i, a in enumerate(allocations)),
    )


def test_slots_needed_is_the_sum_of_the_groups_parallelism():
    assert FULL.slots_needed == 4
    assert Layout(pipeline(p=5), {}).slots_needed == 5


def test_unconnected_regions_have_slots_of_their_own_and_restart_alone():
    layout = Layout(GROUPS, {})
    assert regions_of(GROUPS) == [frozenset("a"), frozenset("b"), frozenset("c")]
    assert (layout.slots_needed, layout.can_join) == (6, True)
    assert layout.place("a", 0) != layout.place("b", 0)
    assert layout.unit(["b"]) == {"b"}
    layout.join()
    assert (layout.slots_needed, layout.can_join) == (4, False)
    assert layout.place("a", 0) == layout.place("b", 0)
    assert layout.unit(["b"]) == {"a", "b"}, "they share processes"
    assert layout.unit(["c"]) == {"c"}, "a slot sharing group of its own"


def test_one_region_needs_no_more_slots_than_ever():
    layout = Layout(pipeline(p=5), {})
    assert not layout.can_join
    assert layout.unit(["sum"]) == {"enumerate", "read", "sum", "sink"}
    assert Layout(GROUPS, {"jobmanager.execution.failover-strategy": "full"}).unit(["c"]) == {"a", "b", "c"}


def test_a_vertex_may_hold_slots_that_no_subtask_of_its_own_uses():
    spark = msgspec.structs.replace(vertex("spark", 1), slots=3)
    layout = Layout(JobGraph(name="s", vertices=(spark,), edges=()), {})
    assert (layout.slots_needed, layout.together) == (3, True)
    assert len(layout.places()) == 3
    assert layout.place("spark", 0) in layout.places()
    assert not FULL.together


def test_no_more_than_needed_is_taken_and_repeats_are_accepted_again():
    pool = SlotPool(2)
    assert pool.offer(offer("tm1", "a", "b", "c")) == ("a", "b")
    assert pool.offer(offer("tm1", "b", "c")) == ("b",)
    assert pool.missing == 0
    pool.remove("a")
    assert pool.missing == 1
    assert pool.remove("a") is None


def test_a_restart_keeps_the_places_of_the_slots_that_remain():
    pool = SlotPool(4)
    pool.offer(offer("tm1", "a", "b"))
    pool.offer(offer("tm2", "c", "d"))
    before = pool.place(FULL)
    assert {p: h.allocation_id for p, h in before.items()} == {
        ("default", 0): "a", ("default", 1): "b", ("default", 2): "c", ("heavy", 0): "d",
    }  # fmt: skip
    pool.remove("b")
    pool.offer(offer("tm0", "e"))
    after = {p: h.allocation_id for p, h in pool.place(FULL).items()}
    assert after == {("default", 0): "a", ("default", 1): "e", ("default", 2): "c", ("heavy", 0): "d"}


def test_locations_name_every_subtask():
    pool = SlotPool(4)
    pool.offer(offer("tm1", "a", "b", "c", "d"))
    found = locations(GROUPS, FULL, pool.place(FULL))
    assert found == {"a:0": "a", "a:1": "b", "b:0": "a", "b:1": "b", "b:2": "c", "c:0": "d"}


def test_what_it_waits_for():
    text = waiting_for(FULL, 3, total=2, free=1)
    assert text.startswith("3 of 4 slots are missing (3 of group 'default', 1 of group 'heavy')")
    assert "the cluster has 2, 1 of them free" in text
    assert "taskmanager.numberOfTaskSlots" in text
