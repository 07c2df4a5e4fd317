from __future__ import annotations

from penstock.jobgraph import JobGraph
from penstock.messages.cluster import OfferSlots, SlotOffer
from services.jobmanager.slots import SlotPool, locations, slots_needed, waiting_for
from tests.services.jobmanager.graphs import pipeline, vertex

GROUPS = JobGraph(
    name="g", vertices=(vertex("a", 2), vertex("b", 3), vertex("c", 1, group="heavy")), edges=()
)


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
    assert slots_needed(GROUPS) == 4
    assert slots_needed(pipeline(p=5)) == 5


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
    before = pool.place(GROUPS)
    assert {p: h.allocation_id for p, h in before.items()} == {
        ("default", 0): "a", ("default", 1): "b", ("default", 2): "c", ("heavy", 0): "d",
    }  # fmt: skip
    pool.remove("b")
    pool.offer(offer("tm0", "e"))
    after = {p: h.allocation_id for p, h in pool.place(GROUPS).items()}
    assert after == {("default", 0): "a", ("default", 1): "e", ("default", 2): "c", ("heavy", 0): "d"}


def test_locations_name_every_subtask():
    pool = SlotPool(4)
    pool.offer(offer("tm1", "a", "b", "c", "d"))
    found = locations(GROUPS, pool.place(GROUPS))
    assert found == {"a:0": "a", "a:1": "b", "b:0": "a", "b:1": "b", "b:2": "c", "c:0": "d"}


def test_what_it_waits_for():
    text = waiting_for(GROUPS, 3, total=2, free=1)
    assert text.startswith("3 of 4 slots are missing (3 of group 'default', 1 of group 'heavy')")
    assert "the cluster has 2, 1 of them free" in text
    assert "taskmanager.numberOfTaskSlots" in text
