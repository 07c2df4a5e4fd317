"""A TCP server in a thread: sends what it is told to each connection, and keeps what each connection sends."""

from __future__ import annotations

import array
import fcntl
import select
import socket
import termios
import threading
import time
from typing import Any


class TcpServer:
    """``greeting``: sent to each connection, which is closed then; None: connections stay open and are read."""

    def __init__(self, greeting: bytes | None = None, port: int = 0) -> None:
        self._greeting = greeting
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self.received: list[bytearray] = []
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        try:
            while True:
                if not select.select([self._socket], [], [], 0.05)[0]:
                    continue
                with self._lock:
                    # Whoever asks for what is unread sees a connection either waiting or kept.
                    try:
                        connection, _ = self._socket.accept()
                    except BlockingIOError:
                        continue  # it was reset before it was taken
                    connection.setblocking(True)
                    self.connections.append(connection)
                    kept = bytearray()
                    self.received.append(kept)
                threading.Thread(target=self._serve, args=(connection, kept), daemon=True).start()
        except (OSError, ValueError):
            return  # the server was closed

    def _serve(self, connection: socket.socket, kept: bytearray) -> None:
        try:
            if self._greeting is not None:
                connection.sendall(self._greeting)
                connection.close()
                return
            while True:
                if not select.select([connection], [], [], 0.05)[0]:
                    continue
                with self._lock:
                    data = connection.recv(1 << 16, socket.MSG_DONTWAIT)
                    kept += data
                if not data:
                    connection.close()
                    return
        except (OSError, ValueError):
            return

    def send(self, data: bytes) -> None:
        """To all open connections."""
        for connection in self.connections:
            connection.sendall(data)

    def text(self) -> bytes:
        """What all connections sent, one behind the other: all that this machine has taken from them."""
        while self._unread():
            time.sleep(0.001)
        with self._lock:
            return b"".join(map(bytes, self.received))

    def _unread(self) -> bool:
        with self._lock:
            if self._socket.fileno() >= 0 and select.select([self._socket], [], [], 0)[0]:
                return True
            left = array.array("i", [0])
            for connection in self.connections:
                if connection.fileno() >= 0:
                    fcntl.ioctl(connection.fileno(), termios.FIONREAD, left)
                    if left[0]:
                        return True
        return False

    def close(self) -> None:
        with self._lock:
            self._socket.close()
        for connection in self.connections:
            connection.close()

    def __enter__(self) -> TcpServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
