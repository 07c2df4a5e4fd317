"""What the name of a time zone means."""

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

ZONES_EXPECTED = "a region such as 'America/New_York', 'UTC', or an offset such as 'GMT+08:00'"
_UTC_NAMES = frozenset({"UTC", "Z", "GMT", "Etc/UTC", "UTC+00:00", "GMT+00:00"})
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?$")


def is_utc(zone: str) -> bool:
    """Whether the name means UTC."""
    return zone in _UTC_NAMES


@lru_cache(maxsize=256)
def find_zone(zone: str) -> tzinfo | None:
    """The zone of a region name or of a fixed offset (``GMT+08:00``); None if there is none."""
    try:
        match = _OFFSET.match(zone)
        if match:
            sign, hours, minutes = match.groups()
            offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
            return timezone(-offset if sign == "-" else offset)
        return ZoneInfo("UTC" if is_utc(zone) else zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
