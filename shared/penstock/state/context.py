"""The part of an operator's context that its keyed state uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.metrics import MetricGroup
    from penstock.state.epochs import Epochs
    from penstock.state.memory import StateMemory


class StateContext(Protocol):
    """The part of an ``OperatorContext`` that state uses.

    ``name``: the operator's, for errors. ``now_ms`` and ``wake_at``: processing time, milliseconds since
    1970. ``local_dir``: a private folder on the local disk. ``memory``: the memory account of the slot.
    ``epochs``: the task's.
    """

    @property
    def name(self) -> str: ...

    @property
    def max_parallelism(self) -> int: ...

    @property
    def metrics(self) -> MetricGroup: ...

    @property
    def local_dir(self) -> Path: ...

    @property
    def memory(self) -> StateMemory: ...

    @property
    def epochs(self) -> Epochs: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def wake_at(self) -> Callable[[int], None]: ...
