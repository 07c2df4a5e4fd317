"""The time of a partition, out of the values of its columns."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectorError, PenstockError
from penstock.functions.dateformat import date_parser
from penstock.functions.parsing import parse_timestamp
from penstock.functions.zones import instant_us
from penstock.plugins import IMPORT_PATH, Register, function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.connectors.filesystem.partitions import Partitioning, Texts

EXTRACTOR = "partition.time-extractor."
ZONE = "sink.partition-commit.watermark-time-zone"
_WHERE = "connector 'filesystem'"
_EPOCH = datetime.datetime(1970, 1, 1)

_EXTRACTORS: Register[Callable[..., Any]] = Register(
    "partition time extractor", "penstock.partition_time_extractors", builtin={}, make=function,
    expected="a class with a method extract(partition_keys, partition_values) that gives a datetime", error=ConnectorError,
)  # fmt: skip


class PartitionTimes:
    """Folder of a partition → its time (ms since the epoch). ``extract``: keys and values → wall-clock µs, None if they hold no
    time; ``zone``: the time zone of these times."""

    def __init__(
        self, partitioning: Partitioning, extract: Callable[[Texts], int | None], zone: str, expected: str
    ) -> None:
        self._partitioning = partitioning
        self._extract = extract
        self._zone = zone
        self._expected = expected
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, options: Mapping[str, Any], partitioning: Partitioning) -> PartitionTimes:
        """By a table's typed options; ConnectorError for a pattern that names no partition column, a formatter with an unknown
        letter, or a class that cannot be imported."""
        zone = options[ZONE]
        if options[f"{EXTRACTOR}kind"] == "custom":
            return cls(partitioning, _custom(options, partitioning), zone, "a datetime from the extractor")
        pattern = options[f"{EXTRACTOR}timestamp-pattern"] or f"${partitioning.keys[0]}"
        names = re.findall(r"\$(\w+)", pattern)
        if not names or any(name not in partitioning.keys for name in names):
            raise ConnectorError(
                f"option '{EXTRACTOR}timestamp-pattern' names no partition column, or another name",
                expected="a text with " + ", ".join(f"${key}" for key in partitioning.keys),
                got=repr(pattern),
                where=_WHERE,
                remedy=f"write it as '${partitioning.keys[0]} 00:00:00'",
            )
        formatter = options[f"{EXTRACTOR}timestamp-formatter"]
        parse = _parser(formatter)

        def extract(texts: Texts) -> int | None:
            values = dict(zip(partitioning.keys, texts, strict=True))
            if any(values[name] is None for name in names):
                return None
            return parse(re.sub(r"\$(\w+)", lambda m: values[m[1]] or "", pattern))

        return cls(partitioning, extract, zone, f"{pattern} as {formatter or 'yyyy-MM-dd[ HH:mm:ss]'}")

    def instant_ms(self, folder: str) -> int:
        """The partition's time. ConnectorError if its values hold none."""
        found = self._known.get(folder)
        if found is None:
            us = self._extract(self._partitioning.texts("", f"{folder}/file"))
            if us is None:
                raise ConnectorError(
                    f"the partition '{folder}' has no time, which 'sink.partition-commit.trigger' = 'partition-time' needs",
                    expected=self._expected,
                    got=folder,
                    where=f"{_WHERE}, partition commit",
                    remedy=f"set '{EXTRACTOR}timestamp-pattern' and '{EXTRACTOR}timestamp-formatter', filter such rows out, "
                    "or use the trigger 'process-time'",
                )
            found = self._known[folder] = int(instant_us(us, self._zone)) // 1000
        return found


def _parser(formatter: str | None) -> Callable[[str], int | None]:
    if formatter is None:
        return lambda text: parse_timestamp(text, 6)
    try:
        parser = date_parser(formatter)
    except PenstockError as err:
        raise ConnectorError(
            f"option '{EXTRACTOR}timestamp-formatter': {err.message}",
            expected=err.expected or "a pattern such as yyyyMMdd",
            got=repr(formatter),
            where=_WHERE,
            remedy="use the letters that DATE_FORMAT knows",
        ) from err

    def parse(text: str) -> int | None:
        found = parser.parse(text)
        return None if found is None else found[0]

    return parse


def _custom(options: Mapping[str, Any], partitioning: Partitioning) -> Callable[[Texts], int | None]:
    path = options[f"{EXTRACTOR}class"]
    if path is None:
        raise ConnectorError(
            f"option '{EXTRACTOR}class' is missing",
            expected=f"with '{EXTRACTOR}kind' = 'custom', the import path of a class: 'package.module:Class'",
            got="no such option",
            where=_WHERE,
            remedy=f"add '{EXTRACTOR}class'",
        )
    made = _EXTRACTORS.find(
        IMPORT_PATH + path.removeprefix(IMPORT_PATH), where=f"{_WHERE}, option '{EXTRACTOR}class'"
    )()

    def extract(texts: Texts) -> int | None:
        found = made.extract(list(partitioning.keys), list(texts))
        if not isinstance(found, datetime.datetime) or found.tzinfo is not None:
            raise ConnectorError(
                f"the extractor '{path}' gave no time",
                expected="a datetime without a time zone",
                got=repr(found),
                where=f"{_WHERE}, option '{EXTRACTOR}class'",
                remedy="return the partition's local time",
            )
        return (found - _EPOCH) // datetime.timedelta(microseconds=1)

    return extract
