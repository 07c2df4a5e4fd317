"""Reads the records that a TCP server sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.connectors.socket.settings import OPTIONS, OWNER, address
from penstock.errors import BrokerError, ConnectorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.away import Away
    from penstock.connectors.base import TableInfo

_READ_BYTES = 64 << 10
#: The longest record in bytes. If no delimiter comes within this length, the delimiter is wrong.
MOST_RECORD_BYTES = 64 << 20


class SocketReader(ReceivingReader):
    """Reads at most once: the server does not send records again after a failure. The position counts
    records."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        super().__init__(OWNER, f"{OWNER}, {address(table.options)}")
        self._bounded = self._options["scan.bounded.mode"] == "end-of-stream"
        self._delimiter = bytes([self._options["byte-delimiter"]])

    async def receive(self, place: Place, away: Away) -> None:
        reader, writer = await asyncio.open_connection(self._options["hostname"], self._options["port"])
        try:
            away.answered()
            await self._records(place, reader)
        finally:
            writer.transport.abort()
        if not self._bounded:
            raise BrokerError(
                "the sender closed the connection",
                expected="a connection that stays open, with 'scan.bounded.mode' = 'unbounded'",
                where=self._where,
                remedy="nothing: Penstock connects again; set 'scan.bounded.mode' = 'end-of-stream' for a table that ends",
            )

    async def _records(self, place: Place, reader: asyncio.StreamReader) -> None:
        count = (place.position or {}).get("records", 0)
        rest = b""
        while chunk := await reader.read(_READ_BYTES):
            *records, rest = (rest + chunk).split(self._delimiter)
            for data in records:
                count += 1
                await self.put(place, Arrived(data, f"{self._where}, record {count}"))
            if len(rest) > MOST_RECORD_BYTES:
                raise ConnectorError(
                    "a record has no end",
                    expected=f"the byte {self._options['byte-delimiter']} after at most {MOST_RECORD_BYTES} bytes",
                    got=f"{len(rest)} bytes without it",
                    where=self._where,
                    remedy="set 'byte-delimiter' to what the sender writes behind each record",
                )
        if rest:
            await self.put(place, Arrived(rest, f"{self._where}, record {count + 1}"))

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        return {"records": (place.position or {}).get("records", 0) + len(messages)}

    def caught_up(self, split_id: str) -> bool:
        place = self._places[split_id]
        # A bounded table may have more records under way until its end has come.
        return place.done if self._bounded else not place.waiting
