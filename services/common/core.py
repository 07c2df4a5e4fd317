"""The vocabulary between a pure core and its actor. No clock, no loop, no I/O here.

A core has one method, ``step(event, now_ms) -> effects``. The actor carries out the effects named here; all
others go to the shell's ``perform``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Core(Protocol):
    """A pure core."""

    def step(self, event: Any, now_ms: int) -> Iterable[Any]:
        """Takes one event and returns the effects, in order. ``now_ms``: milliseconds since 1970, which never
        go back. Raises only if an invariant is broken."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Event: a sender waits for the ``Answer`` of this token to ``message``."""

    token: int
    message: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: the reply to an ``Asked``; an exception is raised in the asker."""

    token: int
    reply: Any


@dataclass(frozen=True, slots=True)
class After:
    """Effect: send ``event`` to the core after ``delay_ms``. With a ``key``, a later ``After`` with the same
    key replaces it, and ``CancelTimer`` cancels it."""

    delay_ms: int
    event: Any
    key: str | None = None


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Effect: cancel the ``After`` with this key, if there is one."""

    key: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: the actor's period has passed (``tick_ms``)."""


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """Event: performing ``effect`` raised ``error``."""

    effect: Any
    error: Exception
