"""Session time zones: offsets by zoneinfo, computed once per quarter of an hour that occurs.

Local times follow Java: in a gap the time moves forward by the gap's length; in an overlap the earlier offset
counts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.errors import SqlError
from penstock.time_zones import ZONES_EXPECTED, find_zone, is_utc

_BUCKET_US = 900_000_000
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def require_zone(zone: str) -> tzinfo:
    """The zone of a name. Raises SqlError if there is none."""
    found = find_zone(zone)
    if found is None:
        raise SqlError(
            f"unknown time zone {zone!r}",
            expected=ZONES_EXPECTED,
            got=repr(zone),
            remedy="set table.local-time-zone to one of these",
        )
    return found


@lru_cache(maxsize=65536)
def _bucket_offset_us(zone: str, bucket: int) -> int:
    try:
        moment = _EPOCH + timedelta(microseconds=bucket * _BUCKET_US)
    except OverflowError:
        moment = _EPOCH
    offset = moment.astimezone(require_zone(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1_000_000)


def offset_us(instants_us: Any, zone: str) -> np.ndarray:
    """The offset of the zone from UTC at each instant, in µs."""
    buckets = np.floor_divide(np.asarray(instants_us, np.int64), _BUCKET_US)
    distinct, inverse = np.unique(buckets, return_inverse=True)
    offsets = np.array([_bucket_offset_us(zone, b) for b in distinct.tolist()], np.int64)
    return offsets[inverse.reshape(buckets.shape)] if len(offsets) else np.zeros(buckets.shape, np.int64)


def local_us(instants_us: Any, zone: str) -> Any:
    """Wall-clock µs in the zone at UTC instants."""
    if is_utc(zone):
        return instants_us
    return instants_us + offset_us(instants_us, zone)


def instant_us(wall_us: Any, zone: str, *, standard: bool = False) -> Any:
    """UTC instants of wall-clock µs in the zone.

    ``standard``: in an overlap the later offset counts (SimpleDateFormat).
    """
    if is_utc(zone):
        return wall_us
    wall_us = np.asarray(wall_us, np.int64)
    before = offset_us(wall_us - _DAY_US, zone)
    after = offset_us(wall_us + _DAY_US, zone)
    with_before, with_after = wall_us - before, wall_us - after
    before_holds = offset_us(with_before, zone) == before
    after_holds = offset_us(with_after, zone) == after
    use_before = before_holds & ~after_holds if standard else before_holds
    return np.where(use_before | ~(before_holds | after_holds), with_before, with_after)
