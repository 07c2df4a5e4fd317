"""Runs enumerators and lookup sources in their helper process: each call gets one answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.helper.context import failure
from penstock.connectors.helper.messages import Answer, Call, Open, Opened, ToHelper, decoded, encoded
from penstock.errors import InternalError
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.base import Connector
    from penstock.connectors.helper.context import HelperContext


class _Calls:
    """Runs calls concurrently, as in a slot."""

    def __init__(self, context: HelperContext, send: Callable[..., None]) -> None:
        self.context = context
        self.send = send
        self._running: set[asyncio.Task[None]] = set()

    def received(self, message: ToHelper, payload: memoryview) -> None:
        if not isinstance(message, Call):
            raise InternalError("a message that this part does not know", got=repr(message))
        task = asyncio.get_running_loop().create_task(self._called(message, payload))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _called(self, message: Call, payload: memoryview) -> None:
        try:
            answer, rows = await self.call(message, payload)
        except Exception as err:
            self.send(failure(err, message.call))
            return
        self.context.tell_metrics()
        self.send(answer, rows)

    async def call(self, message: Call, payload: memoryview) -> tuple[Answer, Any]:
        raise NotImplementedError


class EnumeratorPart(_Calls):
    """Runs a connector's enumerator in the helper process."""

    def __init__(
        self, connector: Connector, context: HelperContext, _: Open, send: Callable[..., None]
    ) -> None:
        super().__init__(context, send)
        self._enumerator = connector.enumerator(context.table)

    async def open(self) -> Opened:
        """Do nothing: an enumerator is not opened."""
        return Opened()

    async def call(self, message: Call, payload: memoryview) -> tuple[Answer, Any]:
        if message.arguments["pinned"]:
            self._enumerator.pinned = True
        found = await self._enumerator.discover(self.context.source, set(message.arguments["known"]))
        return Answer(call=message.call, splits=tuple(found)), b""

    async def close(self) -> None:
        """Close the enumerator."""
        await self._enumerator.close()


class LookupPart(_Calls):
    """Runs a connector's lookup source in the helper process."""

    def __init__(
        self, connector: Connector, context: HelperContext, _: Open, send: Callable[..., None]
    ) -> None:
        super().__init__(context, send)
        self._source = connector.lookup(context.table)

    async def open(self) -> Opened:
        """Open the lookup source."""
        await self._source.open(self.context.source)
        return Opened()

    async def call(self, message: Call, payload: memoryview) -> tuple[Answer, Any]:
        if message.method == "load":
            rows = await self._source.load()
        else:
            keys = msgspec.convert(message.arguments["schema"], Schema)
            rows = await self._source.lookup(decoded(keys, payload))
        return Answer(call=message.call, schema=rows.schema), encoded(rows)

    async def close(self) -> None:
        """Close the lookup source."""
        await self._source.close()
