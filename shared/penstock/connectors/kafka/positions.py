"""The options that say where reading a partition starts and ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PAIR = re.compile(r"partition:(\d+),offset:(\d+)")

#: mode option → (value, the option it needs)
_NEEDS = (
    ("scan.startup.mode", "specific-offsets", "scan.startup.specific-offsets"),
    ("scan.startup.mode", "timestamp", "scan.startup.timestamp-millis"),
    ("scan.bounded.mode", "specific-offsets", "scan.bounded.specific-offsets"),
    ("scan.bounded.mode", "timestamp", "scan.bounded.timestamp-millis"),
)


def specific_offsets(value: str, option: str, owner: str) -> dict[int, int]:
    """``partition:0,offset:42;partition:1,offset:300`` as partition → offset."""
    found: dict[int, int] = {}
    for part in value.split(";"):
        match = _PAIR.fullmatch(part.strip())
        if match is None or int(match[1]) in found:
            raise ConnectorError(
                f"option '{option}' is not a list of partitions and offsets",
                expected="partition:0,offset:42;partition:1,offset:300, each partition once",
                got=repr(part),
                where=owner,
            )
        found[int(match[1])] = int(match[2])
    return found


def check_modes(options: Mapping[str, Any], owner: str) -> None:
    """ConnectorError if a mode is given without the option that it needs, or the option without the mode."""
    for mode, value, needed in _NEEDS:
        if mode not in options:
            continue
        if (options[mode] == value) != (options[needed] is not None):
            raise ConnectorError(
                f"option '{needed}' belongs to '{mode}' = '{value}'",
                expected="both or neither",
                got=f"'{mode}' = '{options[mode]}', '{needed}' = {options[needed]}",
                where=owner,
                remedy=f"set '{needed}'" if options[needed] is None else f"set '{mode}' = '{value}'",
            )
        if value == "specific-offsets" and options[needed] is not None:
            specific_offsets(options[needed], needed, owner)
