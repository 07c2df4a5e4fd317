"""What stands around a function of a program: it gives the function a whole row, or the pandas objects of a batch or group."""

from __future__ import annotations

from typing import Any

from penstock.api.user_functions import AggregateFunction, ScalarFunction
from penstock.columnar.accumulator_rows import new_accumulator
from penstock.columnar.rows import make_row


def _row(value: Any) -> Any:
    """A ROW as a named tuple, the form in which functions over whole rows get it."""
    return make_row(tuple(value), value.values()) if isinstance(value, dict) else value


class OverRows:
    """Wraps a function of any kind, so that it gets its row as a named tuple."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def eval(self, record: Any) -> Any:
        return getattr(self._function, "eval", self._function)(_row(record))

    def accumulate(self, accumulator: Any, record: Any) -> Any:
        return self._function.accumulate(accumulator, _row(record))

    def retract(self, accumulator: Any, record: Any) -> Any:
        return self._function.retract(accumulator, _row(record))


class AsyncOverRows(OverRows):
    async def eval(self, record: Any) -> Any:
        return await getattr(self._function, "eval", self._function)(_row(record))


class PandasScalar(ScalarFunction):
    """Wraps a function of pandas Series, so that it can be called with Arrow arrays."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, context: Any) -> None:
        if hasattr(self._function, "open"):
            self._function.open(context)

    def eval(self, *arrays: Any) -> Any:
        import pyarrow as pa

        called = getattr(self._function, "eval", self._function)
        return pa.Array.from_pandas(called(*(array.to_pandas() for array in arrays)))


class PandasAggregate(AggregateFunction):
    """Collects the rows of a group, and calls a function with the group's pandas Series."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *arrays: Any) -> None:
        accumulator.append([array.to_pandas() for array in arrays])

    def merge(self, accumulator: Any, accumulators: Any) -> None:
        for other in accumulators:
            accumulator.extend(other)

    def get_value(self, accumulator: Any) -> Any:
        if not accumulator:
            return None  # before the first row of a group
        import pandas as pd

        series = [pd.concat(parts, ignore_index=True) for parts in zip(*accumulator, strict=True)]
        return _plain(self._value(series))

    def _value(self, series: list[Any]) -> Any:
        function = self._function
        if not hasattr(function, "accumulate"):
            return function(*series)
        accumulator = new_accumulator(function)
        changed = function.accumulate(accumulator, *series)
        return function.get_value(accumulator if changed is None else changed)


def _plain(value: Any) -> Any:
    """NumPy's number as Python's."""
    return value.item() if hasattr(value, "item") else value
