"""Watermarks per split: what counts, when a split is idle, what is restored."""

from __future__ import annotations

import pytest

from penstock.operators.idleness import Idleness
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.operators.watermarks import SplitWatermarks, WatermarkValve

ALWAYS = lambda split: True  # noqa: E731
NEVER = lambda split: False  # noqa: E731
ACTIVE, IDLE, QUIET = Idleness.ACTIVE, Idleness.IDLE, Idleness.QUIET


def test_the_lowest_split_counts_and_a_new_one_holds_from_the_start() -> None:
    w = SplitWatermarks(1000)
    w.add("a", 0)
    w.add("b", 0)
    w.rows("a", 50, 0)
    assert w.evaluate(10, NEVER) == (MIN_WATERMARK, False)
    w.rows("b", 30, 10)
    assert w.evaluate(20, NEVER) == (30, False)
    assert w.holder() == "b"
    w.add("c", 20)
    assert w.evaluate(30, NEVER) == (30, False)  # never back
    assert w.holder() == "c"
    w.finished("c")
    w.finished("b")
    assert w.evaluate(40, NEVER) == (50, False)


def test_idle_only_after_the_timeout_and_only_when_caught_up() -> None:
    w = SplitWatermarks(1000)
    w.add("slow", 0)
    w.add("fast", 0)
    w.rows("fast", 99, 900)
    assert w.evaluate(999, ALWAYS) == (MIN_WATERMARK, False)
    assert w.evaluate(1000, NEVER) == (MIN_WATERMARK, False)
    assert w.evaluate(1000, ALWAYS) == (99, False)
    w.rows("slow", 120, 1500)  # awake again
    w.rows("fast", 130, 1500)
    assert w.evaluate(1501, ALWAYS) == (120, False)


def test_all_idle_goes_to_the_highest_and_says_so() -> None:
    w = SplitWatermarks(100)
    w.add("a", 0)
    w.add("b", 0)
    w.rows("a", 5, 0)
    w.rows("b", 9, 0)
    assert w.evaluate(500, ALWAYS) == (9, True)


def test_time_without_being_asked_does_not_make_idle() -> None:
    w = SplitWatermarks(1000)
    w.add("a", 0)
    w.rows("a", 5, 0)
    w.not_asked(5000)
    assert w.evaluate(5500, ALWAYS) == (5, False)
    assert w.evaluate(6000, ALWAYS) == (5, True)


def test_zero_turns_idleness_off() -> None:
    w = SplitWatermarks(0)
    w.add("a", 0)
    assert w.evaluate(10**9, ALWAYS) == (MIN_WATERMARK, False)


def test_a_reader_at_the_end_of_its_splits_is_not_idle() -> None:
    """In the moment before it ends: idle, it would let a join drop what the rows that its
    last watermark sets free still need."""
    bounded, watched = SplitWatermarks(0), SplitWatermarks(1000)
    for w in (bounded, watched):
        w.add("a", 0)
        w.rows("a", 7, 0)
        w.finished("a")
        assert w.evaluate(1, ALWAYS) == (7, False)
    assert bounded.evaluate(10_000, ALWAYS)[1] is False
    assert watched.evaluate(999, ALWAYS)[1] is False, "more files may come"
    assert watched.evaluate(1000, ALWAYS)[1] is True


def test_a_split_that_ends_between_two_looks_counts_with_its_last_watermark() -> None:
    w = SplitWatermarks(1000)
    for at, highest in ((0, 5), (10, 20)):
        w.add(f"file {at}", at)
        w.rows(f"file {at}", highest, at)
        w.finished(f"file {at}")
        assert w.evaluate(at + 1, ALWAYS) == (highest, False)


def test_a_reader_without_splits_is_idle_after_the_timeout() -> None:
    """Its first split may have rows that are older than those of the other input of a join."""
    w = SplitWatermarks(1000)
    assert w.evaluate(100, ALWAYS) == (MIN_WATERMARK, False)
    w.not_asked(500)
    assert w.evaluate(1599, ALWAYS) == (MIN_WATERMARK, False)
    assert w.evaluate(1600, ALWAYS) == (MIN_WATERMARK, True)
    assert SplitWatermarks(0).evaluate(10**9, ALWAYS) == (MIN_WATERMARK, False)


@pytest.mark.parametrize("timeout_ms", [0, 1000])
def test_a_reader_that_never_had_a_split_is_idle_at_once_if_others_have_some(timeout_ms: int) -> None:
    w = SplitWatermarks(timeout_ms)
    w.others_have_splits()
    assert w.evaluate(0, ALWAYS) == (MIN_WATERMARK, True)


def test_restored_values_hold() -> None:
    w = SplitWatermarks(1000)
    w.add("a", 0)
    w.rows("a", 70, 0)
    again = SplitWatermarks(1000)
    again.add("a", 0)
    again.rows("a", w.values()["a"], 0)
    assert again.evaluate(1, NEVER) == (70, False)


@pytest.mark.parametrize("n", [1, 3])
def test_a_preset_valve_starts_there(n: int) -> None:
    valve = WatermarkValve(n)
    valve.preset(40)
    assert valve.watermark == 40
    valve.advance(0, 30)
    assert valve.take_changes() == (None, None)
    for i in range(n):
        valve.advance(i, MAX_WATERMARK)
    assert valve.take_changes() == (MAX_WATERMARK, None)


def test_an_ended_input_does_not_end_event_time_for_an_idle_one() -> None:
    """A bounded file beside a quiet stream: the file's end says nothing of the stream."""
    valve = WatermarkValve(2)
    valve.advance(0, 10)
    valve.advance(1, MAX_WATERMARK)
    valve.end(1)
    valve.set_idle(0, IDLE)
    assert valve.watermark == 10
    valve.set_idle(0, ACTIVE)
    valve.end(0)
    assert valve.watermark == MAX_WATERMARK


def test_the_last_watermark_of_one_input_does_not_end_event_time_for_an_idle_one() -> None:
    valve = WatermarkValve(2)
    valve.advance(0, 10)
    valve.set_idle(0, IDLE)
    valve.advance(1, 20)
    assert valve.watermark == 20
    valve.advance(1, MAX_WATERMARK)
    assert valve.watermark == 20
    valve.end(1)
    assert valve.watermark == 20
    valve.set_idle(0, ACTIVE)
    valve.advance(0, 30)
    assert valve.watermark == 30
    valve.advance(0, MAX_WATERMARK)
    assert valve.watermark == MAX_WATERMARK


def test_a_quiet_input_holds_the_others_back_where_it_is_waited_for() -> None:
    """The subtasks of one source go on without the quiet one; the other input of a join does not."""
    gate, join = WatermarkValve(2), WatermarkValve(2, waits_for_quiet=True)
    for valve in (gate, join):
        valve.advance(0, 10)
        valve.advance(1, 20)
        valve.set_idle(0, QUIET)
    assert (gate.watermark, join.watermark) == (20, 10)
    assert gate.idle is join.idle is ACTIVE
    for valve in (gate, join):
        valve.advance(1, MAX_WATERMARK)
        valve.end(1)
    assert (gate.watermark, join.watermark) == (20, 10)
    assert gate.take_changes() == (20, QUIET)
    assert join.take_changes() == (10, QUIET)
    for valve in (gate, join):
        valve.set_idle(0, ACTIVE)
        valve.advance(0, 30)
        assert valve.take_changes() == (30, ACTIVE)


def test_inputs_that_are_idle_in_both_ways_are_quiet_together() -> None:
    valve = WatermarkValve(2, waits_for_quiet=True)
    valve.advance(0, 10)
    valve.advance(1, 20)
    valve.set_idle(1, QUIET)
    valve.set_idle(0, IDLE)
    assert (valve.watermark, valve.idle) == (20, QUIET)
