"""Options and checks of the ``hybrid`` connector.

``history.<option>`` and ``live.<option>`` are the options of two tables with the same columns;
``switch.column`` and ``switch.at`` separate the two if they overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.hybrid.cut import Cut
from penstock.connectors.hybrid.parts import HISTORY, LIVE, PARTS, part_of, part_options
from penstock.connectors.hybrid.settings import OPTIONS
from penstock.connectors.registry import connector_of
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping


class HybridConnector(DeclaredConnector):
    """The source ``hybrid``: a bounded history, then a live stream."""

    name = "hybrid"
    runs = "native"
    roles = ("source",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        if "format" in table.options:
            raise ConnectorError(
                "a hybrid table has no format of its own",
                expected="'history.format' and 'live.format'",
                got=f"'format' = '{table.options['format']}'",
                where="connector 'hybrid'",
                remedy="say it for each part",
            )
        for part in PARTS:
            connector, info = part_of(table, part)
            if connector.name == self.name:
                raise ConnectorError(
                    f"'{part}.connector' = 'hybrid'",
                    expected="a connector that reads something itself",
                    got="a hybrid table within another",
                    where="connector 'hybrid'",
                )
            try:
                connector.validate(info, role=role)
            except ConnectorError as err:
                err.where = f"connector 'hybrid', part '{part}'" + (f": {err.where}" if err.where else "")
                raise
            if (mode := connector.source_mode(info)) != "append":
                raise UnsupportedError(
                    f"a hybrid table whose part '{part}' is a changelog",
                    expected="two parts of inserts alone",
                    got=f"'{part}.connector' = '{connector.name}' with a changelog ({mode})",
                    where="connector 'hybrid'",
                    remedy="read the changelog as a table of its own",
                )
        history, info = part_of(table, HISTORY)
        if not history.is_bounded(info):
            raise ConnectorError(
                "the history of a hybrid table does not end",
                expected="a bounded table",
                got=f"'history.connector' = '{history.name}', unbounded with these options",
                where="connector 'hybrid'",
                remedy="bound it (history.scan.bounded.mode, no history.source.monitor-interval)",
            )
        if Cut.of(table.options, table.schema) is not None:
            self._reaches_back(table)

    def _reaches_back(self, table: TableInfo) -> None:
        """Refuses a live part that begins now if there is a cut, because the rows between the cut and now
        would be missing."""
        if part_options(table.options, LIVE).get("scan.startup.mode") == "latest":
            raise ConnectorError(
                "the live part of a hybrid table does not reach back to the cut",
                expected="'live.scan.startup.mode' = earliest, or a position before the cut",
                got="'live.scan.startup.mode' = 'latest' with 'switch.at'",
                where="connector 'hybrid'",
                remedy="leave out 'switch.column' and 'switch.at' if the history holds all that was published "
                "so far; else let live begin earlier",
            )

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        out = dict(options)
        for part in PARTS:
            own = part_options(options, part)
            if "connector" not in own:
                continue  # ``validate`` reports it
            found = connector_of(own, where=where).resolved(own, where=f"{where}, part '{part}'")
            out.update({f"{part}.{key}": value for key, value in found.items()})
        return out

    def is_bounded(self, table: TableInfo) -> bool:
        live, info = part_of(table, LIVE)
        return live.is_bounded(info)

    def source_guarantee(self, table: TableInfo) -> str:
        parts = [part_of(table, part) for part in PARTS]
        found = {connector.source_guarantee(info) for connector, info in parts}
        order = ("at-most-once", "at-least-once", "exactly-once")
        return next(word for word in order if word in found)

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.hybrid.source import HybridEnumerator

        return HybridEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.hybrid.source import HybridReader

        return HybridReader(table)
