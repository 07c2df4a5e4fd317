"""What a process function sees: the context of an element or timer, and the timer service.

Times that users see are milliseconds, as in Flink; inside they are µs.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.types.canonical import user_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.operators.output_tag import OutputTag
    from penstock.state.backend import KeyedStateBackend

MIN_LONG = -(2**63)
MAX_LONG = 2**63 - 1


class TimeDomain(enum.Enum):
    """Which clock a timer follows."""

    EVENT_TIME = "event-time"
    PROCESSING_TIME = "processing-time"


def to_ms(time_us: int) -> int:
    """The user's milliseconds; "none yet" stays the smallest number, the end of time the largest."""
    if time_us == MIN_WATERMARK:
        return MIN_LONG
    return MAX_LONG if time_us == MAX_WATERMARK else time_us // 1000


def to_us(time_ms: int) -> int:
    """What a timer is kept under. Times beyond what µs can say are the end, or the beginning, of time."""
    return max(MIN_WATERMARK, min(time_ms * 1000, MAX_WATERMARK))


class TimerService:
    """Registers timers of the current key. Times in ms."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        now_ms: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self._backend = backend
        self._now_ms = now_ms
        self._wake_at = wake_at
        #: µs; set by the operator.
        self.watermark = MIN_WATERMARK
        #: New timers are ignored: in mode BATCH at the end, as in Flink.
        self.quiesced = False

    def current_processing_time(self) -> int:
        return self._now_ms()

    def current_watermark(self) -> int:
        return to_ms(self.watermark)

    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire when the watermark reaches ``timestamp``; registering twice fires once."""
        backend = self._keyed()
        if self.quiesced:
            return
        backend.event_timers.register(to_us(timestamp), backend.scope.key, backend.journal)

    def register_processing_time_timer(self, timestamp: int) -> None:
        backend = self._keyed()
        if self.quiesced:
            return
        backend.processing_timers.register(timestamp, backend.scope.key, backend.journal)
        self._wake_at(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        backend = self._keyed()
        backend.event_timers.delete(to_us(timestamp), backend.scope.key, backend.journal)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        backend = self._keyed()
        backend.processing_timers.delete(timestamp, backend.scope.key, backend.journal)

    def _keyed(self) -> KeyedStateBackend:
        if not self._backend.space.types:
            raise UnsupportedError(
                "a timer on a stream that is not keyed",
                expected="timers only after key_by(…)",
                where=f"operator '{self._backend.uid}'",
                remedy="put .key_by(…) before .process(…)",
            )
        return self._backend


class ProcessContext:
    """``ctx`` of ``process_element`` and ``on_timer``. Valid during the call only."""

    __slots__ = ("_backend", "_broadcast", "_side", "_timer_service", "domain", "time_us")

    def __init__(
        self,
        backend: KeyedStateBackend,
        timer_service: TimerService,
        side: Callable[[OutputTag, Any], None],
        broadcast: Callable[[Any], Any] | None = None,
    ) -> None:
        self._backend = backend
        self._timer_service = timer_service
        self._side = side
        self._broadcast = broadcast
        #: Event time of the record (or the firing time), µs; None without one.
        self.time_us: int | None = None
        self.domain: TimeDomain | None = None

    def timestamp(self) -> int | None:
        """Event time of the element, or the time the timer was set for, in ms."""
        return None if self.time_us is None else to_ms(self.time_us)

    def timer_service(self) -> TimerService:
        return self._timer_service

    def get_current_key(self) -> Any:
        return user_key(self._backend.scope.key)

    def time_domain(self) -> TimeDomain | None:
        """In ``on_timer``: which kind of timer fired."""
        return self.domain

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send ``value`` to a side output (the same as ``yield tag, value``)."""
        self._side(tag, value)

    def get_broadcast_state(self, descriptor: Any) -> Any:
        """Broadcast state (a map); read-only in ``process_element``."""
        if self._broadcast is None:
            raise UnsupportedError(
                "broadcast state outside a broadcast process function",
                expected="KeyedBroadcastProcessFunction on stream.connect(broadcast)",
            )
        return self._broadcast(descriptor)
