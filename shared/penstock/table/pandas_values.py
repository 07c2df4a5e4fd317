"""Arrow's values as pandas has them, without changing a number.

pandas makes a column of integers one of doubles when a NULL is in it, and NumPy does so with a list. Doubles have no
integers of their own beyond ±2⁵³, so a row's number would change because of its neighbours. Only there the columns are of
pandas' ``Int64``, whose missing value is ``pd.NA``; elsewhere they are what programs of PyFlink expect, with NaN.
"""

from __future__ import annotations

from typing import Any

#: Doubles hold every integer up to it.
_EXACT = 1 << 53


def changes(array: Any) -> bool:
    """Whether pandas would show another integer than the Arrow array has, in it or in its lists, maps and rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    type_ = array.type
    if pa.types.is_int64(type_):
        if not array.null_count or array.null_count == len(array):
            return False
        ends = pc.min_max(array).as_py()
        return bool(ends["min"] < -_EXACT or ends["max"] > _EXACT)
    if pa.types.is_struct(type_):
        return any(map(changes, array.flatten()))
    if pa.types.is_map(type_):
        return changes(array.keys) or changes(array.items)
    return pa.types.is_list(type_) and changes(array.flatten())


def series_of(array: Any) -> Any:
    """The Arrow array as a Series that has its very numbers."""
    import pandas as pd
    import pyarrow as pa

    if not changes(array):
        return array.to_pandas()
    if pa.types.is_int64(array.type):
        return array.to_pandas(types_mapper={array.type: pd.Int64Dtype()}.get)
    values = [_cell(array.slice(i, 1)) for i in range(len(array))]
    cells = pd.Series([None] * len(values), dtype=object)
    for i, value in enumerate(values):
        cells.iat[i] = value
    return cells


def _cell(one: Any) -> Any:
    """The only value of an array of lists, maps or rows; its own NULLs are None where a NaN would make doubles of the rest."""
    return _exact(one[0].as_py()) if changes(one) else one.to_pandas().iat[0]


def _exact(value: Any) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return {name: _exact(field) for name, field in value.items()}
    if not isinstance(value, list) or (value and isinstance(value[0], tuple)):
        return value  # a map is a list of its entries, as elsewhere in pandas
    out = np.empty(len(value), dtype=object)
    out[:] = [_exact(element) for element in value]
    return out


def compact(array: Any) -> Any:
    """The array without the values around it in its buffers, for state."""
    return array if array.get_total_buffer_size() <= array.nbytes else array.take(list(range(len(array))))
