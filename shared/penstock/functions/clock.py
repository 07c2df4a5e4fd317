"""The clock: CURRENT_TIMESTAMP and similar functions, PROCTIME, UNIX_TIMESTAMP().

The clock is read once per batch, so that all rows of a batch have the same time. Tests may replace ``now_us``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.functions.calendar import DAY_US
from penstock.functions.inference import string_literal
from penstock.functions.signature import FunctionDef, Resolution, literal_value, register
from penstock.functions.temporal_texts import bind_unix_timestamp, resolve_unix_timestamp
from penstock.functions.vector import Scalar
from penstock.functions.zones import local_us
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.expr import Call


def now_us() -> int:
    """Wall clock, µs since the epoch."""
    return time.time_ns() // 1000


def _reader(name: str, type_: t.LogicalType, value: Callable[[int, str], int]) -> None:
    """A function without arguments: ``value(UTC now in µs, session zone)``."""

    def resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        # The optional precision of CURRENT_TIMESTAMP(3) and LOCALTIME(0) is the type's own.
        call.count(0, 1)
        call.extra.append(string_literal(call.zone))
        return call.types, type_.not_null

    def bind(call: Call) -> Any:
        zone = literal_value(call, len(call.args) - 1) or "UTC"
        return lambda args, n: Scalar(call.type, value(now_us(), zone))

    register(FunctionDef(name, resolve, bind, deterministic=False))


def _local(us: int, zone: str) -> int:
    return int(local_us(np.array([us], np.int64), zone)[0]) // 1000 * 1000


def _instant(us: int, zone: str) -> int:
    return us // 1000 * 1000


for _name in ("CURRENT_TIMESTAMP", "NOW", "CURRENT_ROW_TIMESTAMP", "PROCTIME"):
    _reader(_name, t.TimestampLtzType(3), _instant)
_reader("LOCALTIMESTAMP", t.TimestampType(3), _local)
_reader("CURRENT_DATE", t.DateType(), lambda us, zone: _local(us, zone) // DAY_US)
for _name in ("CURRENT_TIME", "LOCALTIME"):
    _reader(_name, t.TimeType(0), lambda us, zone: _local(us, zone) % DAY_US // 1_000_000 * 1_000_000)


def _bind_unix(call: Call) -> Any:
    if call.args:
        return bind_unix_timestamp(call)
    return lambda args, n: Scalar(call.type, now_us() // 1_000_000)


register(FunctionDef("UNIX_TIMESTAMP", resolve_unix_timestamp, _bind_unix, deterministic=False, costly=True))
