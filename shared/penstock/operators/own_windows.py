"""Window assigners that a program defines: their windows, and how windows merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import FunctionError
from penstock.operators.process_context import MIN_LONG
from penstock.operators.user_code import RuntimeContext
from penstock.operators.window_contexts import Window, user_window
from penstock.operators.window_functions import GLOBAL_END, CountWindow, GlobalWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.operators.operator import OperatorContext
    from penstock.state.backend import KeyedStateBackend

_MS = 1_000


class WindowAssignerContext:
    """``context`` of ``WindowAssigner.assign_windows``: the clock, and the state of the record's key."""

    def __init__(self, ctx: OperatorContext, backend: Any) -> None:
        self._ctx = ctx
        self._runtime = RuntimeContext(ctx, backend)

    def get_current_processing_time(self) -> int:
        """The current processing time, ms since the epoch."""
        return self._ctx.now_ms()

    def get_runtime_context(self) -> RuntimeContext:
        """The runtime context, whose state is that of the record's key."""
        return self._runtime


class MergeCallback:
    """``callback`` of ``MergingWindowAssigner.merge_windows``. Keeps what ``merge`` was told, in ``groups``."""

    def __init__(self) -> None:
        self.groups: list[tuple[list[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        """The windows ``to_be_merged`` are the one window ``merge_result`` from now on."""
        self.groups.append((list(to_be_merged), merge_result))


class OwnWindows:
    """Asks a program's assigner. ``assigner``: its own ``WindowAssigner``; ``ctx``, ``backend``: the operator's."""

    def __init__(self, assigner: Any, ctx: OperatorContext, backend: Any) -> None:
        self._assigner = assigner
        self._backend: KeyedStateBackend = backend
        self._context = WindowAssignerContext(ctx, backend)
        self._where = f"{type(assigner).__name__}, operator '{ctx.name}'"

    @property
    def merging(self) -> bool:
        """Whether the assigner merges windows."""
        return hasattr(self._assigner, "merge_windows")

    def assign(self, row: Any, time_us: int, key: Any) -> list[Window]:
        """The windows of a record at ``time_us``.

        Raises:
            FunctionError: The assigner gives something else than windows.
        """
        self._backend.scope.key = key
        time_ms = MIN_LONG if time_us == -(2**63) else time_us // _MS
        return [self._stored(w) for w in self._assigner.assign_windows(row, time_ms, self._context)]

    def merged(self, known: list[Window], new: Window) -> tuple[list[Window], Window]:
        """(the known windows that become one with ``new``, that one)."""
        callback = MergeCallback()
        self._assigner.merge_windows([user_window(w) for w in dict.fromkeys([*known, new])], callback)
        for parts, result in callback.groups:
            stored = [self._stored(w) for w in parts]
            if new in stored:
                return [w for w in known if w in stored], self._stored(result)
        return [w for w in known if w == new], new

    def _stored(self, window: Any) -> Window:
        if isinstance(window, CountWindow):
            return window.id, GLOBAL_END
        if isinstance(window, GlobalWindow):
            return -(2**63), GLOBAL_END
        if isinstance(window, TimeWindow):
            start, end = window
            if isinstance(start, int) and isinstance(end, int) and start < end:
                return start * _MS, end * _MS
        raise FunctionError(
            "a window assigner gave no window",
            expected="TimeWindow(start, end) in ms with start < end, CountWindow(id) or GlobalWindow()",
            got=repr(window),
            where=self._where,
        )


def touching(known: list[Window], new: Window) -> tuple[list[Window], Window]:
    """Sessions: (the known windows that ``new`` overlaps or touches, the window that covers all of them)."""
    touched = [w for w in known if w[0] <= new[1] and new[0] <= w[1]]
    return touched, (min([new[0], *(w[0] for w in touched)]), max([new[1], *(w[1] for w in touched)]))
