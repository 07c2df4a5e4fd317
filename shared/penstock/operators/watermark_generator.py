"""Watermark generators that a program defines, under Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import FunctionError
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK
from penstock.operators.process_context import MAX_LONG

if TYPE_CHECKING:
    from typing import Self

    from penstock.operators.user_code import UserFunction

_MS = 1_000


class Watermark(msgspec.Struct, frozen=True, order=True):
    """Says that no record with an event time up to ``timestamp`` (ms) will come."""

    timestamp: int

    def get_timestamp(self) -> int:
        """The timestamp, ms."""
        return self.timestamp


class WatermarkGenerator:
    """Makes watermarks: per record, from time to time, or both. ``WatermarkGenerator[tuple]`` is the same class.

    Each subtask has its own. It has no state in checkpoints: it starts anew after a restart.
    """

    def __class_getitem__(cls, parameters: Any) -> type[Self]:
        return cls

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for each record, before it goes on.

        ``event_timestamp``: its event time, ms; ``output``: ``emit_watermark(Watermark(t))`` lets a watermark follow the record.
        """
        raise NotImplementedError

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called every ``pipeline.auto-watermark-interval``. ``output``: as in ``on_event``."""


class WatermarkOutput:
    """What a generator says: a watermark, and whether its input is idle."""

    def __init__(self) -> None:
        #: The highest watermark so far, µs.
        self.watermark = MIN_WATERMARK
        self.idle = False

    def emit_watermark(self, watermark: Watermark) -> None:
        """No record up to ``watermark`` will come. One below an earlier one is ignored."""
        ms = watermark.timestamp
        # The watermark of ms t is that of its last µs; the highest of all comes with the end of the input.
        found = MAX_WATERMARK - 1 if ms >= MAX_LONG // _MS else ms * _MS + _MS - 1
        self.watermark = max(self.watermark, found)
        self.idle = False

    def mark_idle(self) -> None:
        """Nothing waits for this input until it has a watermark again, or ``mark_active``."""
        self.idle = True

    def mark_active(self) -> None:
        """The input is no longer idle."""
        self.idle = False


def generator_of(function: UserFunction) -> WatermarkGenerator:
    """The generator that the program gave: an instance, or what makes one (a class, or a callable of one context).

    Raises:
        FunctionError: It is no generator.
    """
    found = function.object
    if not hasattr(found, "on_event") or isinstance(found, type):
        found = _made(found)
    if not hasattr(found, "on_event"):
        raise FunctionError(
            "no watermark generator",
            expected="a WatermarkGenerator, or a callable that makes one",
            got=repr(found),
            where=function.where,
        )
    return found


def _made(supplier: Any) -> Any:
    if not callable(supplier):
        return supplier
    code = getattr(supplier, "__code__", None)
    return supplier(None) if code is not None and code.co_argcount == 1 else supplier()
