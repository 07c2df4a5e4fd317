"""The two parts of a hybrid table: their names, options and connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import Connector, TableInfo
from penstock.connectors.registry import connector_of, table_info
from penstock.secrets import unresolved

if TYPE_CHECKING:
    from collections.abc import Mapping

HISTORY, LIVE = "history", "live"
PARTS = (HISTORY, LIVE)


def part_options(options: Mapping[str, str], part: str) -> dict[str, str]:
    """The options of one part, in the form that its connector takes; ``on-error`` is the table's."""
    prefix = f"{part}."
    own = {
        key.removeprefix(prefix): value
        for key, value in unresolved(options).items()
        if key.startswith(prefix)
    }
    if "on-error" in options:
        own["on-error"] = options["on-error"]
    return own


def part_of(table: TableInfo, part: str) -> tuple[Connector, TableInfo]:
    """(connector, table) of one part of a hybrid table."""
    options = part_options(table.options, part)
    return connector_of(options, where=f"connector 'hybrid', part '{part}'"), table_info(
        table.schema, options
    )


def is_live(split_id: str) -> bool:
    """Whether a split of a hybrid source belongs to the live part."""
    return split_id.startswith(f"{LIVE}:")


def part_named(part: str, inner: str) -> str:
    """The id in the hybrid table of a split of ``part``."""
    return f"{part}:{inner}"
