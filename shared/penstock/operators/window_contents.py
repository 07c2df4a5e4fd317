"""The contents of a window with a Python function: keyed state under (key, window)."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import normalizer
from penstock.operators.evictors import TimestampedValue
from penstock.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.operators.window_functions import WindowCall
    from penstock.state.states import Scope


class WindowContents:
    """The contents of the window in ``scope.key``: one accumulator, or all elements."""

    def __init__(self, kind: str, call: WindowCall, backend: Any, scope: Scope, record: t.Schema) -> None:
        #: Whether all elements are kept; with an evictor they are, each with its time, whatever the function.
        self._timed = call.evictor is not None
        self._listed = kind == "process" or self._timed
        self._kind = kind
        self._function = call.function
        if self._timed:
            element = t.RowType((t.Field("value", call.state_type), t.Field("time", t.BigIntType())))
            desc: Any = ListStateDescriptor("window-elements", element)
        elif kind == "process":
            desc = ListStateDescriptor("window-contents", call.state_type)
        else:
            desc = ValueStateDescriptor("window-contents", call.state_type)
        self._state = backend.state(desc, scope=scope, namespaced=True)
        combine = getattr(call.function, "reduce", call.function)
        normalize = normalizer(record)
        self._reduce = combine if normalize is None else lambda a, b: normalize(combine(a, b))

    def add(self, row: Any, time_ms: int) -> None:
        """Add an element that has the time ``time_ms``."""
        state = self._state
        if self._listed:
            state.add((row, time_ms) if self._timed else row)
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
        return not self._state.get() if self._listed else self._state.value() is None

    def result(self) -> Any:
        """The elements, the reduced value, or the result of the aggregate function."""
        if self._kind == "process":
            return self._state.get()
        value = self._state.value()
        return self._function.get_result(value) if self._kind == "aggregate" else value

    def timed(self) -> list[TimestampedValue]:
        """The elements with their times, of a window with an evictor."""
        return [TimestampedValue(value, time) for value, time in self._state.get()]

    def keep(self, elements: Sequence[TimestampedValue]) -> None:
        """Let ``elements`` be all that the window has."""
        self._state.update([(e.value, e.timestamp) for e in elements])

    def result_of(self, elements: Sequence[Any]) -> Any:
        """As ``result``, of ``elements`` instead of the state. Without elements a reduction gives None."""
        if self._kind == "process":
            return list(elements)
        if self._kind == "reduce":
            return reduce(self._reduce, elements) if elements else None
        accumulator = self._function.create_accumulator()
        for element in elements:
            accumulator = self._function.add(element, accumulator)
        return self._function.get_result(accumulator)

    def take(self) -> Any:
        """Remove the contents and return them; None if there are none."""
        found = (self._state.get() or None) if self._listed else self._state.value()
        self._state.clear()
        return found

    def merge(self, contents: Sequence[Any]) -> None:
        """Set the contents of the current window to those of several windows, as ``take`` returned them."""
        if not contents:
            return
        merged = contents[0]
        for other in contents[1:]:
            if self._listed:
                merged = merged + other
            elif self._kind == "reduce":
                merged = self._reduce(merged, other)
            else:
                merged = self._function.merge(merged, other)
        self._state.update(merged)

    def clear(self) -> None:
        """Remove the contents."""
        self._state.clear()
