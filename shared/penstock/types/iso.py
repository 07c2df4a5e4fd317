"""Times and timestamps of ISO 8601 as every version of Python that is supported reads them.

Python 3.14 reads the hour 24 as the midnight of the next day, which earlier versions refuse, as Flink does. So the same
text would be another value, or none, on another interpreter.
"""

from __future__ import annotations

import datetime as dt
import re

#: The hour 24 of a time, and of a timestamp: there behind what separates it from its date.
_OF_TIME = re.compile(r"^T?24")
_OF_TIMESTAMP = re.compile(r"[^\d\-:.,+W]24(:|\d|$)")


def time_of(text: str) -> dt.time:
    """The time. Raises ValueError for any other text, and for the hour 24."""
    return dt.time.fromisoformat(_without_hour_24(text, _OF_TIME))


def datetime_of(text: str) -> dt.datetime:
    """The date and time, with its zone if it has one. Raises ValueError for any other text, and for the hour 24."""
    return dt.datetime.fromisoformat(_without_hour_24(text, _OF_TIMESTAMP))


def _without_hour_24(text: str, hour_24: re.Pattern[str]) -> str:
    if hour_24.search(text):
        raise ValueError("hour must be in 0..23")
    return text
