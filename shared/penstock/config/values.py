"""The forms of values: each function converts a text, and raises SpecError if the text does not fit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import SpecError, nearest
from penstock.time_zones import ZONES_EXPECTED, find_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_UNITS_MS = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_UNITS_BYTES = {
    "": 1, "b": 1, "bytes": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2,
    "g": 1024**3, "gb": 1024**3, "t": 1024**4, "tb": 1024**4,
}  # fmt: skip


def _with_unit(text: str, units: Mapping[str, int], what: str) -> int | None:
    found = re.fullmatch(r"\s*(-?)\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if not found or found[3].lower() not in units:
        return None
    value = round(float(found[2]) * units[found[3].lower()])
    if found[1] and value:
        raise SpecError(f"a negative {what}", expected="0 or more", got=repr(text))
    return value


def parse_duration_ms(text: str) -> int:
    """``"10 s"`` → 10000 milliseconds. Raises SpecError if the text is no duration."""
    value = _with_unit(str(text), _UNITS_MS, "duration")
    if value is None:
        raise SpecError("not a duration", expected="e.g. '200 ms', '10 s', '3 h'", got=repr(text))
    return value


def parse_bytes(text: str) -> int:
    """``"64 mb"`` → 67108864 bytes. Raises SpecError if the text is no size."""
    value = _with_unit(str(text), _UNITS_BYTES, "size")
    if value is None:
        raise SpecError("not a size", expected="e.g. '64 mb', '1 gb'", got=repr(text))
    return value


def parse_bool(text: str) -> bool:
    """``true`` or ``false``, in any case.

    Raises:
        SpecError: ``text`` is neither.
    """
    lowered = str(text).strip().lower()
    if lowered not in ("true", "false"):
        raise SpecError("not a boolean", expected="true or false", got=repr(text))
    return lowered == "true"


def parse_int(text: str) -> int:
    """A whole number.

    Raises:
        SpecError: ``text`` is none.
    """
    try:
        return int(str(text))
    except ValueError:
        raise SpecError("not a whole number", expected="e.g. 4", got=repr(text)) from None


def parse_number(text: str) -> float:
    """A finite number. Raises SpecError if the text is none."""
    try:
        number = float(str(text))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SpecError("not a number", expected="e.g. 1.5", got=repr(text))
    return number


def parse_time_zone(text: str) -> str:
    """The name of a region or a fixed offset, unchanged. Raises SpecError if this machine knows no such zone."""
    if find_zone(str(text)) is None:
        raise SpecError("unknown time zone", expected=ZONES_EXPECTED, got=repr(text))
    return str(text)


#: The greatest parallelism of a vertex, because key groups are numbered with 15 bits.
MOST_SUBTASKS = 32_768


def parse_parallelism(text: str) -> int:
    """A parallelism from 1 to ``MOST_SUBTASKS``. Raises SpecError for anything else."""
    value = parse_int(text)
    if not 1 <= value <= MOST_SUBTASKS:
        raise SpecError("not a parallelism", expected=f"1 to {MOST_SUBTASKS}", got=str(text))
    return value


def parse_max_parallelism(text: str) -> int:
    """A number of key groups from 1 to ``MOST_SUBTASKS``, or -1: chosen. Raises SpecError for anything else."""
    value = parse_int(text)
    if value != -1 and not 1 <= value <= MOST_SUBTASKS:
        raise SpecError(
            "not a number of key groups", expected=f"1 to {MOST_SUBTASKS}, or -1: chosen", got=str(text)
        )
    return value


#: Spark's driver does not start with less memory.
_LEAST_SPARK_BYTES = 450 * 1024**2


def parse_java_memory(text: str) -> str:
    """``2g`` or ``1500m``, unchanged, since Java reads the text itself. Raises SpecError for another form or
    below 450 MiB."""
    found = re.fullmatch(r"(\d+)([kKmMgGtT]?)", str(text))
    if not found:
        raise SpecError("not a size as Java writes it", expected="e.g. 2g, 1500m", got=repr(text))
    if int(found[1]) * _UNITS_BYTES[found[2].lower()] < _LEAST_SPARK_BYTES:
        raise SpecError("too little memory for Spark", expected="450m or more", got=str(text))
    return str(text)


_SPARK_MASTER = re.compile(r"spark://.|k8s://.|yarn$|local(\[(\d+|\*)(, *\d+)?\])?$")


def parse_spark_master(text: str) -> str:
    """The master of a Spark cluster, or an empty text. Raises SpecError for anything else."""
    if text and _SPARK_MASTER.match(str(text)) is None:
        raise SpecError(
            "not the master of a Spark",
            expected="spark://host:port, k8s://…, yarn or local[n]; a server at sc://… is named by spark.remote",
            got=repr(text),
        )
    return str(text)


def parse_spark_remote(text: str) -> str:
    """The address ``sc://…`` of a Spark Connect server, or an empty text. Raises SpecError for anything else."""
    if text and not str(text).startswith("sc://"):
        raise SpecError(
            "not the address of a Spark Connect server", expected="sc://host:port", got=repr(text)
        )
    return str(text)


#: Schemes of the object stores that ``penstock.store`` opens.
_STORES = ("file", "memory", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https")


def parse_folder(text: str) -> str:
    """A folder below the cluster's object store, or the URL of an object store. Raises SpecError for anything
    else."""
    scheme, separator, _ = str(text).partition("://")
    if not str(text).strip() or (separator and scheme.lower() not in _STORES):
        raise SpecError(
            "neither a folder nor an object store's URL",
            expected="a folder's name, file:///folder, s3://bucket/prefix, gs://… or az://…",
            got=repr(text),
        )
    return str(text)


_PROVIDED = re.compile(r"[\w.-]+|(python:)?[\w.]+:[\w.]+")


def parse_provided(text: str) -> str:
    """The name or the import path of something that a package may provide. Whether it exists is not checked
    here. Raises SpecError for any other text."""
    if not _PROVIDED.fullmatch(str(text)):
        raise SpecError(
            "neither a name nor an import path",
            expected="a name, or package.module:attribute",
            got=repr(text),
        )
    return str(text)


@dataclass(frozen=True)
class OneOf:
    """Accepts one of ``values``, in any case, and returns it as it is written in ``values``. Raises SpecError
    otherwise."""

    values: tuple[str, ...]

    def __call__(self, text: str) -> str:
        for value in self.values:
            if str(text).lower() == value.lower():
                return value
        raise SpecError(
            "not one of the known values",
            expected=" | ".join(self.values),
            got=repr(text),
            remedy=nearest(str(text), self.values),
        )


def one_of(*values: str) -> OneOf:
    """A parser that accepts the texts ``values``."""
    return OneOf(values)


def refused(why: str) -> Callable[[str], str]:
    """A parser for a key of Flink that has no meaning in Penstock. It always raises SpecError with the reason
    ``why``."""

    def parse(text: str) -> str:
        raise SpecError(f"this key cannot be set: {why}", got=repr(text), remedy="leave it out")

    return parse
