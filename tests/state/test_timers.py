from __future__ import annotations

import random

from penstock.state.timers import TimerQueue


def test_order_is_time_then_key_and_repeats_count_once() -> None:
    queue = TimerQueue()
    for time, key in [(5, "b"), (3, "z"), (5, "a"), (5, "b"), (9, "a")]:
        queue.register(time, key)
    assert len(queue) == 4
    assert queue.next_time == 3
    assert list(queue.due(5)) == [(3, "z"), (5, "a"), (5, "b")]
    assert (len(queue), queue.next_time) == (1, 9)


def test_keys_without_an_order_fire_in_a_stable_one() -> None:
    queue = TimerQueue()
    for key in (("a", None), ("a", 1), ("a", "x")):
        queue.register(1, key)
    assert {key for _, key in queue.due(1)} == {("a", None), ("a", 1), ("a", "x")}


def test_registering_and_deleting_while_firing() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.register(1, "b")
    queue.register(1, "c")
    fired = []
    for time, key in queue.due(10):
        fired.append((time, key))
        if key == "a":
            queue.delete(1, "b")
            queue.register(7, "a2")
            queue.register(0, "late")
            queue.register(11, "not due")
    assert fired == [(1, "a"), (0, "late"), (1, "c"), (7, "a2")]
    assert [pair for pair, _ in queue.pairs()] == [(11, "not due")]


def test_deleted_timers_never_fire() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.delete(1, "a")
    queue.delete(1, "a")
    queue.delete(2, "x")
    assert (len(queue), queue.next_time) == (0, None)
    queue.register(1, "a")
    assert list(queue.due(1)) == [(1, "a")]


def test_random_against_a_set() -> None:
    rng = random.Random(3)
    queue, model = TimerQueue(), set()
    for _ in range(3000):
        time, key = rng.randrange(40), rng.randrange(5)
        if rng.random() < 0.6:
            queue.register(time, key)
            model.add((time, key))
        elif rng.random() < 0.8:
            queue.delete(time, key)
            model.discard((time, key))
        else:
            due = {e for e in model if e[0] <= time}
            assert list(queue.due(time)) == sorted(due)
            model -= due
        assert len(queue) == len(model)
        assert {pair for pair, _ in queue.pairs()} == model
