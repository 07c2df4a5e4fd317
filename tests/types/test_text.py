import datetime as dt

import numpy as np
import pytest

from penstock.types import logical as t
from penstock.types.text import interval_text, shortest_float


@pytest.mark.parametrize("text", ["320.1", "0.1", "1e-45", "3.4028235e+38", "16777216.0", "-0.0", "inf"])
def test_a_float_shows_its_fewest_digits(text):
    assert repr(shortest_float(float(np.float32(text)))) == text


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (dt.timedelta(days=1), t.DayTimeIntervalType(), "+1 00:00:00.000"),
        (dt.timedelta(hours=26, minutes=3, seconds=4, milliseconds=5), None, "+1 02:03:04.005"),
        (-dt.timedelta(seconds=1), None, "-0 00:00:01.000"),
        (dt.timedelta(0), None, "+0 00:00:00.000"),
        (14, t.YearMonthIntervalType(), "+1-02"),
        (-1, t.YearMonthIntervalType(), "-0-01"),
        (14, t.IntType(), None),
    ],
)
def test_intervals_as_flink_shows_them(value, type_, text):
    assert interval_text(value, type_) == text
