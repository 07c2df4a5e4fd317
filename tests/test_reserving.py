"""A reserved port is its server's alone."""

from __future__ import annotations

import socket

import pytest

from penstock.reserving import port_of, reserve_port


def listening(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_only_who_asks_for_it_by_number_gets_it_again_and_again() -> None:
    with reserve_port() as held:
        port = port_of(held)
        for _ in range(2):  # the server is started again
            with listening(port) as server:
                with socket.create_connection(("127.0.0.1", port)) as client:
                    accepted, _ = server.accept()
                    accepted.sendall(b"x")
                    assert client.recv(1) == b"x"
                accepted.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
        with socket.socket() as without, pytest.raises(OSError, match="in use"):
            without.bind(("127.0.0.1", port))


def test_nobody_is_given_it_by_chance() -> None:
    """Asked for any port as often as there are ports, the system gives others."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first, last = map(int, file.read().split())
    with reserve_port() as held:
        for _ in range(last - first):
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                assert port_of(other) != port_of(held)
