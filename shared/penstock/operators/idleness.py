"""How a source, or an input, is without rows."""

from __future__ import annotations

from enum import IntEnum


class Idleness(IntEnum):
    """Whether an input has rows, or may have some at any moment."""

    ACTIVE = 0
    #: It has none and holds nothing back.
    IDLE = 1
    #: It has none, and nobody said that other sources may go on without it. Other subtasks of the same source do,
    #: but an operator with several inputs waits for it: its next rows would be late there.
    QUIET = 2
