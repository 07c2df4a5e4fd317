"""Fields, floors, sums and differences of times against the standard library."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions import calendar
from penstock.functions.intervals import shift_days
from penstock.functions.parsing import days_in_month
from penstock.functions.zones import instant_us, local_us

EPOCH = datetime(1970, 1, 1)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 12, 31))
ANY_MOMENT = st.datetimes(datetime(1600, 1, 1), datetime(2400, 12, 31))


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(st.lists(MOMENTS, min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_fields(moments: list[datetime]) -> None:
    fields = {
        "YEAR": lambda m: m.year, "QUARTER": lambda m: (m.month + 2) // 3, "MONTH": lambda m: m.month, "DAY": lambda m: m.day,
        "DOY": lambda m: m.timetuple().tm_yday, "DOW": lambda m: m.isoweekday() % 7 + 1, "ISODOW": lambda m: m.isoweekday(),
        "WEEK": lambda m: m.isocalendar().week, "ISOYEAR": lambda m: m.isocalendar().year, "HOUR": lambda m: m.hour,
        "MINUTE": lambda m: m.minute, "SECOND": lambda m: m.second, "MILLISECOND": lambda m: m.microsecond // 1000,
        "EPOCH": lambda m: us(m) // 1_000_000,
    }  # fmt: skip
    values = np.array([us(m) for m in moments])
    for name, field in fields.items():
        assert calendar.field_of(name, values).tolist() == [field(m) for m in moments], name


@given(
    st.lists(ANY_MOMENT, min_size=1, max_size=20),
    st.sampled_from(sorted(set(calendar.UNITS) - {"NANOSECOND"})),
)
@settings(max_examples=100, deadline=None)
def test_floor_and_ceiling(moments: list[datetime], unit: str) -> None:
    values = np.array([us(m) for m in moments])
    floor, ceiling = calendar.floor_us(unit, values), calendar.ceil_us(unit, values)
    assert (floor <= values).all()
    assert (values <= ceiling).all()
    assert (calendar.floor_us(unit, floor) == floor).all()
    following = np.where(floor == values, ceiling, calendar.add_units(unit, floor, 1))
    assert (ceiling == following).all()


@given(st.dates(date(1600, 1, 1), date(2400, 1, 1)), st.integers(-2000, 2000))
def test_months_keep_the_day_or_take_the_last(day: date, months: int) -> None:
    moved = date.fromordinal(
        int(shift_days(np.array([(day - EPOCH.date()).days]), months)[0]) + EPOCH.toordinal()
    )
    index = day.year * 12 + day.month - 1 + months
    assert (moved.year, moved.month) == (index // 12, index % 12 + 1)
    assert moved.day == min(day.day, days_in_month(moved.year, moved.month))


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]
)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_zones(zone: str, data: st.DataObject) -> None:
    moments = data.draw(
        st.lists(st.datetimes(datetime(1972, 1, 1), datetime(2037, 1, 1)), min_size=1, max_size=10)
    )
    values = np.array([us(m) for m in moments])
    local = local_us(values, zone)
    info = ZoneInfo(zone)
    for moment, wall in zip(moments, local.tolist(), strict=True):
        assert wall == us(moment.replace(tzinfo=UTC).astimezone(info).replace(tzinfo=None))
    # Wall clocks read back to the same instant, or to the other one of an overlap.
    assert (local_us(instant_us(local, zone), zone) == local).all()


def test_gap_moves_forward_and_overlap_takes_the_earlier() -> None:
    gap, overlap = us(datetime(2024, 3, 10, 2, 30)), us(datetime(2024, 11, 3, 1, 30))
    instants = instant_us(np.array([gap, overlap]), "America/New_York")
    assert instants.tolist() == [us(datetime(2024, 3, 10, 7, 30)), us(datetime(2024, 11, 3, 5, 30))]
    assert instant_us(np.array([overlap]), "America/New_York", standard=True).tolist() == [
        us(datetime(2024, 11, 3, 6, 30))
    ]
