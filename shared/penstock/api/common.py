"""Small classes of the API: durations, instants, watermark strategies."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.columnar.rows import Row
from penstock.errors import SpecError, UnsupportedError
from penstock.jobgraph.specs.parts import FOR_EVER_US

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Duration",
    "Instant",
    "Row",
    "RuntimeExecutionMode",
    "Time",
    "TimestampAssigner",
    "WatermarkStrategy",
    "duration_us",
]


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time, whole microseconds."""

    us: int

    @classmethod
    def of_nanos(cls, nanos: int) -> Duration:
        """``nanos`` nanoseconds, cut to whole microseconds."""
        return cls(nanos // 1_000)

    @classmethod
    def of_millis(cls, millis: float) -> Duration:
        """``millis`` milliseconds."""
        return cls(round(millis * 1_000))

    @classmethod
    def of_seconds(cls, seconds: float) -> Duration:
        """``seconds`` seconds."""
        return cls(round(seconds * 1_000_000))

    @classmethod
    def of_minutes(cls, minutes: float) -> Duration:
        """``minutes`` minutes."""
        return cls(round(minutes * 60_000_000))

    @classmethod
    def of_hours(cls, hours: float) -> Duration:
        """``hours`` hours."""
        return cls(round(hours * 3_600_000_000))

    @classmethod
    def of_days(cls, days: float) -> Duration:
        """``days`` days of 24 hours."""
        return cls(round(days * 86_400_000_000))

    milliseconds, seconds, minutes, hours, days = of_millis, of_seconds, of_minutes, of_hours, of_days

    def to_milliseconds(self) -> int:
        """Whole milliseconds; the rest is cut."""
        return self.us // 1_000

    def __neg__(self) -> Duration:
        return Duration(-self.us)


#: Flink has both names.
Time = Duration


@dataclass(frozen=True, order=True)
class Instant:
    """A point in time: whole ``seconds`` since the epoch, and ``nanos`` nanoseconds after them."""

    seconds: int
    nanos: int

    @classmethod
    def of_epoch_milli(cls, epoch_milli: int) -> Instant:
        """The point ``epoch_milli`` milliseconds after the epoch."""
        return cls(epoch_milli // 1_000, epoch_milli % 1_000 * 1_000_000)

    def to_epoch_milli(self) -> int:
        """Milliseconds since the epoch; the rest is cut."""
        return self.seconds * 1_000 + self.nanos // 1_000_000

    def to_datetime(self) -> dt.datetime:
        """The point in UTC, as a column of points in time keeps it.

        Raises:
            ValueError: It has digits below the microsecond.
        """
        if self.nanos % 1_000:
            raise ValueError(f"{self} has digits below the microsecond")
        return _EPOCH + dt.timedelta(seconds=self.seconds, microseconds=self.nanos // 1_000)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def duration_us(value: Duration | dt.timedelta | int, what: str) -> int:
    """Microseconds of ``value``: a Duration, a timedelta, or a whole number of milliseconds.

    Raises:
        SpecError: ``value`` is something else; the error calls it ``what``.
    """
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
    """When results are emitted: see ``StreamExecutionEnvironment.set_runtime_mode``."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class TimestampAssigner:
    """Gives records their event time: ``extract_timestamp``. A plain function of the same arguments may be
    used instead."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of ``value`` in ms since the epoch. ``record_timestamp``: the event time that the
        record has so far, ms."""
        raise NotImplementedError


@dataclass(frozen=True)
class WatermarkStrategy:
    """How event times are found, and how far the watermark stays behind the highest of them.

    Args:
        delay_us: How far the watermark stays behind the highest event time, µs.
        assigner: A ``TimestampAssigner`` or function that gives the event time in ms.
        column: The column that holds the event time, instead. With neither, the source's own timestamp counts.
        idle_timeout_ms: A split without rows for this long holds no watermark back. None: the environment's
            ``table.exec.source.idle-timeout``.
        generator: The program's own ``WatermarkGenerator``, or what makes one, instead of the delay.
    """

    delay_us: int = 0
    assigner: Any = None
    column: str | None = None
    idle_timeout_ms: int | None = None
    generator: Any = None

    @classmethod
    def for_generator(cls, generator_supplier: Any) -> WatermarkStrategy:
        """Watermarks are what the program's own generator says.

        ``generator_supplier``: a ``WatermarkGenerator``, its class, or a callable that makes one. One step behind the source asks
        it, in each subtask; it may say a watermark after each record.
        """
        return cls(generator=generator_supplier)

    @classmethod
    def no_watermarks(cls) -> WatermarkStrategy:
        """No watermark before the end of the input. Records keep event times: windows of a bounded input fire at its end.

        Such a stream is never idle (unless ``with_idleness`` says so), so a stream that is united with it waits for it.
        """
        return cls(delay_us=FOR_EVER_US, idle_timeout_ms=0)

    @classmethod
    def for_monotonous_timestamps(cls) -> WatermarkStrategy:
        """Event times never go back: no delay."""
        return cls()

    @classmethod
    def for_bounded_out_of_orderness(cls, max_out_of_orderness: Any) -> WatermarkStrategy:
        """A record's event time is at most ``max_out_of_orderness`` behind the highest (a Duration, timedelta or ms)."""
        return cls(delay_us=duration_us(max_out_of_orderness, "max_out_of_orderness"))

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Event times are what ``timestamp_assigner`` gives, in ms.

        An assigner that only reads a field (``lambda row, _: row.ts``) costs no Python per record.
        """
        return replace(self, assigner=timestamp_assigner, column=None)

    def with_timestamp_column(self, name: str) -> WatermarkStrategy:
        """Event times are the column ``name``: TIMESTAMP, TIMESTAMP_LTZ, or whole milliseconds."""
        return replace(self, column=name, assigner=None)

    def with_watermark_alignment(
        self, watermark_group: str, max_allowed_watermark_drift: Any, update_interval: Any = 1_000
    ) -> WatermarkStrategy:
        """Flink's way to let fast sources wait for slow ones.

        Args:
            watermark_group: The sources that wait for each other.
            max_allowed_watermark_drift: How far a source may be ahead of the others.
            update_interval: Time between two comparisons of the sources.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"watermark alignment of the group '{watermark_group}'",
            expected="sources that are read as fast as the job takes their rows",
            got=f"a drift of at most {max_allowed_watermark_drift!r}, looked at every {update_interval!r}",
            remedy="leave it out: rows of fast sources wait in the state of windows and joins, which may be larger than memory",
        )

    def with_idleness(self, idle_timeout: Any) -> WatermarkStrategy:
        """A split holds no watermark back when it had no rows for ``idle_timeout`` and none wait in the source."""
        return replace(self, idle_timeout_ms=duration_us(idle_timeout, "idle_timeout") // 1_000)
