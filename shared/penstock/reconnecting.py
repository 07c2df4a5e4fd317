"""The NATS client of services and connectors: nothing that a server says or a network does
closes it for good. nats-py ends a client on most ``-ERR`` lines (a subject that is too long,
a slow consumer, an expired login); here each of them is told, and the client connects again.
"""

from __future__ import annotations

import asyncio

import nats.errors
from nats.aio.client import Client

#: Errors after which the server keeps the connection.
_HARMLESS = ("permissions violation", "invalid subject", "invalid publish subject")
_PAUSE_S = 0.5


class ReconnectingClient(Client):
    """Connect it with ``max_reconnect_attempts=-1``; ``error_cb`` hears why it was disconnected."""

    async def _process_err(self, err_msg: str) -> None:
        text = err_msg.strip().strip("'")
        err = nats.errors.Error(f"the server says: {text}")
        self._err = err
        await self._error_cb(err)
        if not any(harmless in text.lower() for harmless in _HARMLESS):
            await self._process_op_err(err)

    async def _attempt_reconnect(self) -> None:
        """An error that nats-py does not expect (of a half-read greeting, of a callback) ends one
        attempt, not all that would follow."""
        while True:
            try:
                await super()._attempt_reconnect()
                return
            except Exception as err:
                await self._error_cb(err)
            if self.is_closed or self.is_connected:
                return
            self._status = Client.RECONNECTING
            await asyncio.sleep(_PAUSE_S)
