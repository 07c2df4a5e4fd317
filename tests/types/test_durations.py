"""Durations in EXPLAIN: words, exact, never 3.6e+06 ms."""

from __future__ import annotations

import pytest

from penstock.types.durations import duration_text, shifted


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (1, "1 µs"),
        (1_500, "1 ms 500 µs"),
        (500_000, "500 ms"),
        (10_000_000, "10 s"),
        (3_600_000_000, "1 h"),
        (5_400_000_000, "1 h 30 min"),
        (-86_400_000_000, "-1 d"),
        (86_400_000_000 * 400 + 1000, "400 d 1 ms"),
    ],
)
def test_durations_in_words(us, text):
    assert duration_text(us) == text


def test_a_shifted_column():
    assert [shifted("ts", us) for us in (-3_600_000_000, 0, 5_000)] == ["ts - 1 h", "ts", "ts + 5 ms"]
