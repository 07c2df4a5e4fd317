"""Connects to NATS, with different errors for a server that does not answer and for one that refuses the
user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.nats.client import connect
from penstock.connectors.nats_core.settings import OWNER
from penstock.errors import BrokerError, ConnectorError

if TYPE_CHECKING:
    from nats.aio.client import Client


async def connected(url: str, name: str) -> Client:
    """A client that reconnects for ever. BrokerError if the server does not answer; ConnectorError if the
    server refuses the user, because waiting does not mend that."""
    try:
        return await connect(url, name)
    except BrokerError as err:
        if "auth" not in (err.got or "").lower():
            raise
        raise ConnectorError(
            "NATS refuses the user",
            expected="a user and password, or token, that the server knows",
            got=err.got,
            where=f"{OWNER}, option 'url'",
            remedy="correct the credentials in 'url' (or nats.url)",
        ) from err
