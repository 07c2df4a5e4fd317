"""What stands around a function of a program: it gives the function a whole row, or the pandas objects of a batch or group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.api.user_functions import AggregateFunction, ScalarFunction
from penstock.columnar.accumulator_rows import new_accumulator
from penstock.columnar.rows import make_row
from penstock.table.pandas_values import compact, series_of

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def _to_pandas(array: Any) -> Any:
    """An Arrow array as a Series; rows as a DataFrame with a column for each of their fields, and, as in PyFlink, with
    the fields of a row in a row in its place."""
    import pandas as pd
    import pyarrow as pa

    if not pa.types.is_struct(array.type):
        return series_of(array)
    parts = [_to_pandas(column) for column in array.flatten()]
    named = [
        part.rename(field.name) if isinstance(part, pd.Series) else part
        for part, field in zip(parts, array.type, strict=True)
    ]
    return pd.concat(named, axis=1)


def _of_pandas(value: Any) -> Any:
    """A Series as an Arrow array; a DataFrame, or a tuple of Series, as rows whose fields are in its order."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(value, pd.DataFrame):
        value = tuple(value.iloc[:, i] for i in range(value.shape[1]))
    if isinstance(value, tuple):
        columns = [pa.Array.from_pandas(column).to_pylist() for column in value]
        return list(zip(*columns, strict=True))
    if len(value) and value.dtype == object and value.map(lambda x: isinstance(x, (dict, list, tuple))).any():
        return value.where(value.notna(), None).tolist()  # Arrow would guess other types for maps and rows
    return pa.Array.from_pandas(value)


class PandasScalar(ScalarFunction):
    """Wraps a function of pandas Series and DataFrames, so that it can be called with Arrow arrays."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, context: Any) -> None:
        if hasattr(self._function, "open"):
            self._function.open(context)

    def close(self) -> None:
        if hasattr(self._function, "close"):
            self._function.close()

    def eval(self, *arrays: Any) -> Any:
        called = getattr(self._function, "eval", self._function)
        return _of_pandas(called(*map(_to_pandas, arrays)))


class PandasAggregate(AggregateFunction):
    """Collects the rows of a group, and calls a function with the group's Series and DataFrames."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, context: Any) -> None:
        if hasattr(self._function, "open"):
            self._function.open(context)

    def close(self) -> None:
        if hasattr(self._function, "close"):
            self._function.close()

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *arrays: Any) -> None:
        accumulator.append(list(map(compact, arrays)))

    def merge(self, accumulator: Any, accumulators: Any) -> None:
        for other in accumulators:
            accumulator.extend(other)

    def get_value(self, accumulator: Any) -> Any:
        if not accumulator:
            return None  # before the first row of a group
        return _plain(self._value([_joined(parts) for parts in zip(*accumulator, strict=True)]))

    def _value(self, series: list[Any]) -> Any:
        function = self._function
        if not hasattr(function, "accumulate"):
            return function(*series)
        accumulator = new_accumulator(function)
        changed = function.accumulate(accumulator, *series)
        return function.get_value(accumulator if changed is None else changed)


def _joined(parts: Sequence[Any]) -> Any:
    """The rows of a group as one Series or DataFrame. Snapshots of older versions hold them as such."""
    import pandas as pd
    import pyarrow as pa

    if all(isinstance(part, pa.Array) for part in parts):
        return _to_pandas(pa.concat_arrays(parts))
    made = [_to_pandas(part) if isinstance(part, pa.Array) else part for part in parts]
    return pd.concat(made, ignore_index=True)


def _plain(value: Any) -> Any:
    """NumPy's number as Python's, and pandas' missing value as NULL."""
    import pandas as pd

    return None if value is pd.NA else value.item() if hasattr(value, "item") else value
