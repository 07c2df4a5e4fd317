"""``AllWindowedStream``: the windows of a stream without keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api import aggregates as agg
from penstock.api.windowed import WindowedStream
from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from typing import Self

    from penstock.api.datastream import DataStream
    from penstock.operators.evictors import Evictor
    from penstock.operators.output_tag import OutputTag
    from penstock.operators.window_functions import Trigger
    from penstock.types import logical as t


class AllWindowedStream:
    """A stream in windows that all its records share; one subtask does the work. Made by ``DataStream.window_all``.

    ``windows``: the windows of the same stream with one key for all records.
    """

    def __init__(self, windows: WindowedStream) -> None:
        self._windows = windows

    def trigger(self, trigger: Trigger) -> Self:
        """Let ``trigger`` say when windows give results, instead of at their end."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Let ``evictor`` drop elements before or after the window's function."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: Any) -> Self:
        """Keep a window for ``time_ms`` (ms or a ``Time``) after its end."""
        self._windows.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records whose windows have all closed to ``output_tag``."""
        self._windows.side_output_late_data(output_tag)
        return self

    def reduce(
        self,
        reduce_function: Any,
        window_function: Any = None,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """One record for each window: all its records, combined by ``reduce_function``.

        Args:
            reduce_function: A ``ReduceFunction``, or a callable of two records.
            window_function: A ``ProcessAllWindowFunction`` or ``AllWindowFunction`` that gets the combined record.
            output_type: Type of what ``window_function`` emits, as in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        return self._windows.reduce(
            reduce_function, _without_key(window_function), output_type, on_error=on_error
        )

    def aggregate(
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: t.LogicalType | None = None,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """The aggregate of each window.

        Args:
            aggregate_function: An ``AggregateFunction``.
            window_function: A ``ProcessAllWindowFunction`` or ``AllWindowFunction`` that gets the result.
            accumulator_type: Type of the accumulator, as in ``WindowedStream.aggregate``.
            output_type: Type of the result, as in ``DataStream.map``.
            on_error: As in ``DataStream.map``.

        Raises:
            UnsupportedError: ``aggregate_function`` is a built-in aggregate.
        """
        if agg.by_name(aggregate_function) is not None:
            raise UnsupportedError(
                "a built-in aggregate over windows of a stream without keys",
                expected="an AggregateFunction",
                got=repr(aggregate_function),
                remedy="write it in SQL (env.sql_query), or key_by a constant",
            )
        return self._windows.aggregate(
            aggregate_function,
            window_function=_without_key(window_function),
            accumulator_type=accumulator_type,
            output_type=output_type,
            on_error=on_error,
        )

    def apply(
        self, window_function: Any, output_type: t.LogicalType | None = None, *, on_error: str = "fail"
    ) -> DataStream:
        """The records that ``window_function`` emits for each window.

        Args:
            window_function: An ``AllWindowFunction``, or a callable of window and records.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        return self._windows.process(_WithoutKey(window_function), output_type, on_error=on_error)

    def process(
        self,
        process_window_function: Any,
        output_type: t.LogicalType | None = None,
        *,
        on_error: str = "fail",
    ) -> DataStream:
        """The records that ``process_window_function`` emits for each window.

        Args:
            process_window_function: A ``ProcessAllWindowFunction``.
            output_type: As in ``DataStream.map``.
            on_error: As in ``DataStream.map``.
        """
        return self._windows.process(_WithoutKey(process_window_function), output_type, on_error=on_error)


def _without_key(function: Any) -> Any:
    return None if function is None else _WithoutKey(function)


class _WithoutKey:
    """A window function of a stream without keys as a ``ProcessWindowFunction``, which gets the one key."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, context: Any) -> None:
        opener = getattr(self.function, "open", None)
        if opener is not None:
            opener(context)

    def close(self) -> None:
        closer = getattr(self.function, "close", None)
        if closer is not None:
            closer()

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        if hasattr(self.function, "process"):
            return self.function.process(context, elements)
        return getattr(self.function, "apply", self.function)(context.window(), elements)

    def clear(self, context: Any) -> None:
        clear = getattr(self.function, "clear", None)
        if clear is not None:
            clear(context)
