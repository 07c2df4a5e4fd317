"""The context of an element or timer in a process function, and the timer service.

Users see times in milliseconds, as in Flink; operators use µs.
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
    """Milliseconds of an operator's time in µs. MIN_WATERMARK and MAX_WATERMARK give the lowest and highest int64."""
    if time_us == MIN_WATERMARK:
        return MIN_LONG
    return MAX_LONG if time_us == MAX_WATERMARK else time_us // 1000


def to_us(time_ms: int) -> int:
    """Microseconds of a user's time in ms, limited to MIN_WATERMARK … MAX_WATERMARK."""
    return max(MIN_WATERMARK, min(time_ms * 1000, MAX_WATERMARK))


class TimerService:
    """Registers and deletes timers of the current key. All times are ms.

    Every method that sets or deletes a timer raises UnsupportedError on a stream that is not keyed.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        now_ms: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self._backend = backend
        self._now_ms = now_ms
        self._wake_at = wake_at
        #: The current watermark in µs; the operator sets it.
        self.watermark = MIN_WATERMARK
        #: True if new timers are ignored: at the end of the input in mode BATCH, as in Flink.
        self.quiesced = False

    def current_processing_time(self) -> int:
        """The current processing time, ms since the epoch."""
        return self._now_ms()

    def current_watermark(self) -> int:
        """The current watermark in ms."""
        return to_ms(self.watermark)

    def register_event_time_timer(self, timestamp: int) -> None:
        """Fire when the watermark reaches ``timestamp`` (ms). A timer that is registered twice fires once."""
        backend = self._keyed()
        if self.quiesced:
            return
        backend.event_timers.register(to_us(timestamp), backend.scope.key, backend.journal)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Fire when the clock reaches ``timestamp`` (ms). A timer that is registered twice fires once."""
        backend = self._keyed()
        if self.quiesced:
            return
        backend.processing_timers.register(timestamp, backend.scope.key, backend.journal)
        self._wake_at(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the event-time timer at ``timestamp`` (ms), if there is one."""
        backend = self._keyed()
        backend.event_timers.delete(to_us(timestamp), backend.scope.key, backend.journal)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the processing-time timer at ``timestamp`` (ms), if there is one."""
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
    """``ctx`` of ``process_element`` and ``on_timer``. It is valid only during the call."""

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
        #: Event time of the record, or the time of the timer, in µs; None if there is none.
        self.time_us: int | None = None
        self.domain: TimeDomain | None = None

    def timestamp(self) -> int | None:
        """The event time of the element, or the time of the timer, in ms; None if the element has no event time."""
        return None if self.time_us is None else to_ms(self.time_us)

    def timer_service(self) -> TimerService:
        """Sets, deletes and reads timers of the current key."""
        return self._timer_service

    def get_current_key(self) -> Any:
        """The key of the element or timer."""
        return user_key(self._backend.scope.key)

    def time_domain(self) -> TimeDomain | None:
        """In ``on_timer``: the kind of the timer that fired."""
        return self.domain

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send ``value`` to a side output (the same as ``yield tag, value``)."""
        self._side(tag, value)

    def get_broadcast_state(self, descriptor: Any) -> Any:
        """The broadcast state of ``descriptor``, a map; read-only in ``process_element``.

        Raises:
            UnsupportedError: the function is no broadcast process function.
        """
        if self._broadcast is None:
            raise UnsupportedError(
                "broadcast state outside a broadcast process function",
                expected="KeyedBroadcastProcessFunction on stream.connect(broadcast)",
            )
        return self._broadcast(descriptor)
