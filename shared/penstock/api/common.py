"""Small words of the API: rows, durations, watermark strategies."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import make_row
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable


def Row(*values: Any, **named: Any) -> tuple[Any, ...]:
    """A row: ``Row(1, "a")`` by position, ``Row(id=1, name="a")`` with attributes."""
    if values and named:
        raise SpecError("a row by position and by name at once", expected="Row(1, 2) or Row(a=1, b=2)")
    return make_row(tuple(named), named.values()) if named else tuple(values)


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time, whole microseconds."""

    us: int

    @classmethod
    def of_millis(cls, n: float) -> Duration:
        return cls(round(n * 1_000))

    @classmethod
    def of_seconds(cls, n: float) -> Duration:
        return cls(round(n * 1_000_000))

    @classmethod
    def of_minutes(cls, n: float) -> Duration:
        return cls(round(n * 60_000_000))

    @classmethod
    def of_hours(cls, n: float) -> Duration:
        return cls(round(n * 3_600_000_000))

    @classmethod
    def of_days(cls, n: float) -> Duration:
        return cls(round(n * 86_400_000_000))

    milliseconds, seconds, minutes, hours, days = of_millis, of_seconds, of_minutes, of_hours, of_days

    def to_milliseconds(self) -> int:
        return self.us // 1_000

    def __neg__(self) -> Duration:
        return Duration(-self.us)


#: Flink has both names.
Time = Duration


def duration_us(value: Duration | dt.timedelta | int, what: str) -> int:
    """µs of a Duration, timedelta, or whole number of milliseconds."""
    if isinstance(value, Duration):
        return value.us
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1_000
    raise SpecError(
        f"{what} is no duration",
        expected="Time.seconds(5), a timedelta, or milliseconds",
        got=repr(value),
    )


class RuntimeExecutionMode(enum.Enum):
    """For ``env.set_runtime_mode``."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class TimestampAssigner:
    """``extract_timestamp(value, record_timestamp)`` → event time in ms."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class WatermarkStrategy:
    """How far behind the highest event time the watermark stays, and what the event time
    is: an assigner (ms), a column, or what the source says."""

    delay_us: int = 0
    assigner: Any = None
    column: str | None = None
    idle_timeout_ms: int | None = None

    @classmethod
    def for_monotonous_timestamps(cls) -> WatermarkStrategy:
        return cls()

    @classmethod
    def for_bounded_out_of_orderness(cls, max_out_of_orderness: Any) -> WatermarkStrategy:
        return cls(delay_us=duration_us(max_out_of_orderness, "max_out_of_orderness"))

    def with_timestamp_assigner(
        self, assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """One that only reads a field (``lambda row, _: row.ts``) costs no Python per record."""
        return replace(self, assigner=assigner, column=None)

    def with_timestamp_column(self, name: str) -> WatermarkStrategy:
        """Event time is a column: TIMESTAMP, TIMESTAMP_LTZ, or whole milliseconds."""
        return replace(self, column=name, assigner=None)

    def with_idleness(self, idle_timeout: Any) -> WatermarkStrategy:
        """A split without rows for so long, and with none waiting, holds no watermark back."""
        return replace(self, idle_timeout_ms=duration_us(idle_timeout, "idle_timeout") // 1_000)
