"""HTTP connections with time limits, so that a client which sends half a request does not keep a connection
for ever."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock_services.common.security.tls import name_of_client

#: Seconds between a connection, or the first byte of a request, and the end of its head.
HEAD_S = 10.0
#: Seconds for the body. Handlers that read a body have shorter limits, after which they send an error.
BODY_S = 75.0


class TimedConnection(H11Protocol):
    """Closes the connection if the client stops in the middle of a request, or sends none. Between requests
    uvicorn's own keep-alive limit applies."""

    _late: asyncio.TimerHandle | None = None
    #: The state of the client, in h11's terms, for which ``_late`` was set.
    _awaited: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (name := name_of_client(transport)) is not None:
            self.app_state = {**self.app_state, "certificate_name": name}
        # An answer is written in two pieces, head and body. The second must not wait until the client
        # acknowledges the first (some 40 ms).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await(h11.IDLE, HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None, 0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are no HTTP. A handler may run already, for the head of the same request: it is told that
        the client has gone, because its own answer cannot follow this one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()  # in the middle of an answer

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._await(state, BODY_S)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._await(state, HEAD_S)
        else:
            self._await(None, 0)

    def _await(self, state: Any, seconds: float) -> None:
        if state is self._awaited:
            return
        if self._late is not None:
            self._late.cancel()
        self._awaited = state
        self._late = None if state is None else self.loop.call_later(seconds, self.transport.close)
