"""The statistics of a file for the Delta log, taken from the file's footer."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pyarrow.types as at

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: A column with a longer text gets no bounds, because a shortened upper bound would be too small.
_LONGEST = 64


def statistics(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """The JSON text of the log's ``stats``: rows, NULLs, and bounds of whole numbers, texts and dates."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in schema:
        if at.is_nested(field.type):
            continue
        bounds = _column(footer, field.name)
        if bounds is None:
            continue
        low, high, null_count = bounds
        nulls[field.name] = null_count
        if low is not None and high is not None and _bounded(field.type):
            shown = _shown(low), _shown(high)
            if not any(isinstance(v, str) and len(v) > _LONGEST for v in shown):
                least[field.name], greatest[field.name] = shown
    return json.dumps(
        {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    )


def _bounded(type_: pa.DataType) -> bool:
    return at.is_integer(type_) or at.is_string(type_) or at.is_date32(type_)


def _shown(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


def _column(footer: pq.FileMetaData, name: str) -> tuple[Any, Any, int] | None:
    """(least, greatest, NULLs) over all row groups; None if a group has no statistics."""
    low = high = None
    null_count = 0
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group)
        at_ = next((i for i in range(rows.num_columns) if rows.column(i).path_in_schema == name), None)
        found = rows.column(at_).statistics if at_ is not None else None
        if found is None or not found.has_null_count:
            return None
        null_count += found.null_count
        if found.null_count == rows.num_rows:
            continue
        if not found.has_min_max:
            return None
        low = found.min if low is None else min(low, found.min)
        high = found.max if high is None else max(high, found.max)
    return low, high, null_count
