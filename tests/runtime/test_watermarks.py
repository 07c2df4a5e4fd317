"""Watermarks per split: what counts, when a split is idle, what is restored."""

from __future__ import annotations

import pytest

from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.operators.watermarks import SplitWatermarks, WatermarkValve

ALWAYS = lambda split: True  # noqa: E731
NEVER = lambda split: False  # noqa: E731


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
    assert w.next_idle_ms() == 1000
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
    assert w.next_idle_ms() is None


def test_a_reader_at_the_end_of_its_splits_is_not_idle() -> None:
    """In the moment before it ends: idle, it would let a join drop what the rows that its
    last watermark sets free still need."""
    bounded, watched = SplitWatermarks(0), SplitWatermarks(1000)
    for w in (bounded, watched):
        w.add("a", 0)
        w.rows("a", 7, 0)
        w.finished("a")
    assert bounded.evaluate(1, ALWAYS)[1] is False
    assert watched.evaluate(1, ALWAYS)[1] is True, "more files may come, or not"


def test_a_reader_without_splits_is_idle() -> None:
    assert SplitWatermarks(1000).evaluate(0, ALWAYS) == (MIN_WATERMARK, True)


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
    valve.set_idle(0, True)
    assert valve.watermark == 10
    valve.set_idle(0, False)
    valve.end(0)
    assert valve.watermark == MAX_WATERMARK


def test_the_last_watermark_of_one_input_does_not_end_event_time_for_an_idle_one() -> None:
    valve = WatermarkValve(2)
    valve.advance(0, 10)
    valve.set_idle(0, True)
    valve.advance(1, 20)
    assert valve.watermark == 20
    valve.advance(1, MAX_WATERMARK)
    assert valve.watermark == 20
    valve.end(1)
    assert valve.watermark == 20
    valve.set_idle(0, False)
    valve.advance(0, 30)
    assert valve.watermark == 30
    valve.advance(0, MAX_WATERMARK)
    assert valve.watermark == MAX_WATERMARK
