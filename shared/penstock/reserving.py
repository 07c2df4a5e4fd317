"""TCP ports for servers that are started as processes of their own.

A port that was free a moment ago may be another's when the server binds it, which is seconds
later where processes start slowly, or minutes later when it is started again.
"""

from __future__ import annotations

import socket


def reserve_port(host: str = "127.0.0.1") -> socket.socket:
    """A socket that holds a free port of ``host`` until it is closed: whoever asks for any port,
    or connects somewhere, is given another one; a server that asks for this one by its number,
    with SO_REUSEADDR as servers do, gets it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held


def port_of(held: socket.socket) -> int:
    return int(held.getsockname()[1])
