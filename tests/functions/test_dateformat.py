from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.functions.dateformat import date_parser, format_us, tokens

EPOCH = np.datetime64("1970-01-01", "us")
PATTERNS = {
    "yyyy-MM-dd": "%Y-%m-%d", "HH:mm": "%H:%M", "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%M:%S",
    "yyyy-MM-dd HH:mm:ss.SSSSSS": "%Y-%m-%d %H:%M:%S.%f", "yyyyMMdd'T'HHmm": "%Y%m%dT%H%M",
}  # fmt: skip


def us(moment: datetime) -> int:
    return int((np.datetime64(moment, "us") - EPOCH).astype(np.int64))


@pytest.mark.parametrize("pattern", PATTERNS)
@given(
    moments=st.lists(
        st.one_of(st.none(), st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1))), max_size=12
    )
)
@settings(max_examples=30, deadline=None)
def test_formats_as_strftime_and_parses_back(pattern: str, moments: list[datetime | None]) -> None:
    values = np.array([0 if m is None else us(m) for m in moments], np.int64)
    valid = np.array([m is not None for m in moments], np.bool_)
    got = format_us(values, None if valid.all() else valid, pattern).to_pylist()
    assert got == [None if m is None else m.strftime(PATTERNS[pattern]) for m in moments]
    if "SSSSSS" in pattern:
        assert [date_parser(pattern).parse(text) for text in got if text] == [
            (us(m), None) for m in moments if m
        ]


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [
        ("dd/MM/yyyy", "29/02/2024", datetime(2024, 2, 29)),
        ("dd/MM/yyyy", "31/02/2024", datetime(2024, 2, 29)),
        ("dd/MM/yyyy", "32/02/2024", None),
        ("yyyy-MM-dd hh:mm a", "2024-02-09 01:04 PM", datetime(2024, 2, 9, 13, 4)),
        ("d MMM yy", "9 Feb 24", datetime(2024, 2, 9)),
        ("yyyy-MM-dd", "2024-13-01", None),
        ("yyyy-MM-dd", "2024-01-01 tail", None),
        ("HH:mm", "24:00", None),
    ],
)
def test_parse(pattern: str, text: str, want: datetime | None) -> None:
    found = date_parser(pattern).parse(text)
    assert (None if found is None else found[0]) == (None if want is None else us(want))


def test_roll_over_and_offset() -> None:
    assert date_parser("yyyy-MM-dd").parse("2023-02-29", roll=True) == (us(datetime(2023, 3, 1)), None)
    assert date_parser("yyyy-MM-dd HH:mm Z").parse("2024-01-01 00:00 +0130") == (
        us(datetime(2024, 1, 1)),
        5_400_000_000,
    )


def test_zone_letters_follow_the_instant() -> None:
    summer, winter = us(datetime(2024, 7, 1, 12)), us(datetime(2024, 1, 1, 12))
    got = format_us(np.array([summer, winter]), None, "HH:mm z XXX", "America/New_York").to_pylist()
    assert got == ["08:00 EDT -04:00", "07:00 EST -05:00"]


@pytest.mark.parametrize("pattern", ["bogus", "yyyy{", "'open", "yyyy-BB"])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(SqlError):
        tokens(pattern)
