"""The contents of a window with a Python function: keyed state under (key, window)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import normalizer
from penstock.state.descriptors import ListStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.operators.window_functions import WindowCall
    from penstock.state.states import Scope
    from penstock.types import logical as t


class WindowContents:
    """The contents of the window in ``scope.key``: one accumulator, or all elements."""

    def __init__(self, kind: str, call: WindowCall, backend: Any, scope: Scope, record: t.Schema) -> None:
        self._kind = kind
        self._function = call.function
        if kind == "process":
            desc: Any = ListStateDescriptor("window-contents", call.state_type)
        else:
            desc = ValueStateDescriptor("window-contents", call.state_type)
        self._state = backend.state(desc, scope=scope, namespaced=True)
        reduce = getattr(call.function, "reduce", call.function)
        normalize = normalizer(record)
        self._reduce = reduce if normalize is None else lambda a, b: normalize(reduce(a, b))

    def add(self, row: Any) -> None:
        """Add an element."""
        state = self._state
        if self._kind == "process":
            state.add(row)
            return
        accumulator = state.value()
        if self._kind == "reduce":
            state.update(row if accumulator is None else self._reduce(accumulator, row))
        else:
            if accumulator is None:
                accumulator = self._function.create_accumulator()
            state.update(self._function.add(row, accumulator))

    def is_empty(self) -> bool:
        """Whether the window has no contents."""
        return not self._state.get() if self._kind == "process" else self._state.value() is None

    def result(self) -> Any:
        """The elements, the reduced value, or the result of the aggregate function."""
        if self._kind == "process":
            return self._state.get()
        value = self._state.value()
        return self._function.get_result(value) if self._kind == "aggregate" else value

    def take(self) -> Any:
        """Remove the contents and return them; None if there are none."""
        found = (self._state.get() or None) if self._kind == "process" else self._state.value()
        self._state.clear()
        return found

    def merge(self, contents: Sequence[Any]) -> None:
        """Set the contents of the current window to those of several windows, as ``take`` returned them."""
        if not contents:
            return
        merged = contents[0]
        for other in contents[1:]:
            if self._kind == "process":
                merged = merged + other
            elif self._kind == "reduce":
                merged = self._reduce(merged, other)
            else:
                merged = self._function.merge(merged, other)
        self._state.update(merged)

    def clear(self) -> None:
        """Remove the contents."""
        self._state.clear()
