"""Finishers: functions that make one value per slot from the slot's values in order of arrival.

They compute LISTAGG, ARRAY_AGG, COLLECT, the JSON aggregates and PERCENTILE. A finisher takes the call, the
columns of values, and n + 1 int64 offsets: the values of slot i are the rows offsets[i] to offsets[i + 1].
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.expr import AggregateCall


def _edge(call: AggregateCall, column: Column, offsets: np.ndarray, at: np.ndarray) -> Column:
    return column.take_or_null(np.where(np.diff(offsets) > 0, at, -1)).cast_type(call.type)


def first_value(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    """The first value of each slot; NULL for a slot without values."""
    return _edge(call, args[0], offsets, offsets[:-1])


def last_value(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    """The last value of each slot; NULL for a slot without values."""
    return _edge(call, args[0], offsets, offsets[1:] - 1)


def _lists(values: pa.Array, offsets: np.ndarray) -> pa.ListArray:
    """One list per slot; NULL for a slot without values."""
    marks = pa.array(offsets.astype(np.int32), mask=np.append(np.diff(offsets) == 0, False))
    return pa.ListArray.from_arrays(marks, values)


def _listagg(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    separator = str(call.constants[0]) if call.constants else ","
    return Column(call.type, pc.binary_join(_lists(args[0].values, offsets), separator))


def _array_agg(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    lists = _lists(args[0].to_external_arrow(), offsets)
    return Column(call.type, lists.cast(external_arrow_type(call.type)))


def _per_slot(
    call: AggregateCall,
    args: list[Column],
    offsets: np.ndarray,
    one: Callable[..., Any],
    *,
    of_nothing: bool = False,
) -> Column:
    """A column of ``one(*lists)`` per slot, where each list holds the slot's values of one argument.

    A slot without rows gives NULL, or ``one`` of empty lists if ``of_nothing``.
    """
    lists = [a.to_pylist() for a in args]
    out = []
    for low, high in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        out.append(one(*(values[low:high] for values in lists)) if high > low or of_nothing else None)
    return Column.of(call.type, out)


def _collect(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    return _per_slot(call, args, offsets, lambda values: list(Counter(values).items()), of_nothing=True)


def _json_value(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None), list, dict)) else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _json_array(absent: bool) -> Callable[[AggregateCall, list[Column], np.ndarray], Column]:
    def one(values: list[Any]) -> str:
        return _json([_json_value(v) for v in values if not (absent and v is None)])

    return lambda call, args, offsets: _per_slot(call, args, offsets, one, of_nothing=True)


def _json_object(absent: bool) -> Callable[[AggregateCall, list[Column], np.ndarray], Column]:
    def one(keys: list[Any], values: list[Any]) -> str:
        pairs = zip(keys, values, strict=True)
        return _json({str(k): _json_value(v) for k, v in pairs if not (absent and v is None)})

    return lambda call, args, offsets: _per_slot(call, args, offsets, one)


def _percentile(call: AggregateCall, args: list[Column], offsets: np.ndarray) -> Column:
    """PERCENTILE: interpolates linearly between the two nearest of the sorted values."""
    wanted = call.constants[0] if call.constants else None

    def one(values: list[Any], *more: list[Any]) -> Any:
        points = wanted if wanted is not None else more[0][0]
        weights = more[-1] if len(more) > (wanted is None) else None
        pairs = sorted(zip(map(float, values), weights or [1] * len(values), strict=True))
        spread = [v for v, w in pairs for _ in range(int(w))]
        if not spread:
            return None

        def at(p: float) -> float:
            position = (len(spread) - 1) * float(p)
            low = int(position)
            high = min(low + 1, len(spread) - 1)
            return spread[low] + (position - low) * (spread[high] - spread[low])

        return [at(p) for p in points] if isinstance(points, (list, tuple)) else at(points)

    return _per_slot(call, args, offsets, one)


#: Function name -> (its finisher, whether it receives NULLs as values).
FINISHERS: dict[str, tuple[Callable[[AggregateCall, list[Column], np.ndarray], Column], bool]] = {
    "LISTAGG": (_listagg, False),
    "STRING_AGG": (_listagg, False),
    "ARRAY_AGG": (_array_agg, True),
    "COLLECT": (_collect, False),
    "PERCENTILE": (_percentile, False),
    "JSON_ARRAYAGG": (_json_array(absent=True), True),
    "JSON_ARRAYAGG_ABSENT_ON_NULL": (_json_array(absent=True), True),
    "JSON_ARRAYAGG_NULL_ON_NULL": (_json_array(absent=False), True),
    "JSON_OBJECTAGG": (_json_object(absent=False), True),
    "JSON_OBJECTAGG_NULL_ON_NULL": (_json_object(absent=False), True),
    "JSON_OBJECTAGG_ABSENT_ON_NULL": (_json_object(absent=True), True),
}
