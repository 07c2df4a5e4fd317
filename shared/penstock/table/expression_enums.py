"""Enumerations that expressions take as arguments."""

from __future__ import annotations

import enum


class TimeIntervalUnit(enum.Enum):
    """Units of ``extract``, ``floor`` and ``ceil``."""

    YEAR = 0
    YEAR_TO_MONTH = 1
    QUARTER = 2
    MONTH = 3
    WEEK = 4
    DAY = 5
    DAY_TO_HOUR = 6
    DAY_TO_MINUTE = 7
    DAY_TO_SECOND = 8
    HOUR = 9
    SECOND = 10
    HOUR_TO_MINUTE = 11
    HOUR_TO_SECOND = 12
    MINUTE = 13
    MINUTE_TO_SECOND = 14


class TimePointUnit(enum.Enum):
    """Units of ``timestamp_diff``."""

    YEAR = 0
    MONTH = 1
    DAY = 2
    HOUR = 3
    MINUTE = 4
    SECOND = 5
    QUARTER = 6
    WEEK = 7
    MILLISECOND = 8
    MICROSECOND = 9


class JsonType(enum.Enum):
    """The kind of JSON that ``is_json`` asks for."""

    VALUE = 0
    SCALAR = 1
    ARRAY = 2
    OBJECT = 3


class JsonExistsOnError(enum.Enum):
    """The answer of ``json_exists`` for a text that is not JSON."""

    TRUE = 0
    FALSE = 1
    UNKNOWN = 2
    ERROR = 3


class JsonValueOnEmptyOrError(enum.Enum):
    """The result of ``json_value`` if there is no value at the path, or if the text is not JSON."""

    NULL = 0
    ERROR = 1
    DEFAULT = 2


class JsonQueryWrapper(enum.Enum):
    """Whether ``json_query`` puts its result into an array."""

    WITHOUT_ARRAY = 0
    CONDITIONAL_ARRAY = 1
    UNCONDITIONAL_ARRAY = 2


class JsonQueryOnEmptyOrError(enum.Enum):
    """The result of ``json_query`` if there is nothing at the path, or if the text is not JSON."""

    NULL = 0
    EMPTY_ARRAY = 1
    EMPTY_OBJECT = 2
    ERROR = 3


class JsonOnNull(enum.Enum):
    """Whether a JSON object or array keeps a NULL or leaves it out (ABSENT)."""

    NULL = 0
    ABSENT = 1
