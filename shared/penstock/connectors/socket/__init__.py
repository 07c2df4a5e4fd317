"""``socket``: records of a TCP connection."""

from penstock.connectors.socket.connector import SocketConnector

__all__ = ["SocketConnector"]
