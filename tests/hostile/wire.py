"""Hostile bytes on HTTP connections: half requests, headers that are none, bodies that lie about their size, requests
that go on for ever and clients that hang up."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

from tests.hostile.values import DEEP, HOSTILE_TEXTS, Values, encoded, mutated

#: Answers that have no end.
STREAMS = ("/stream", "/jobs/events", "/jobs/{job}/events", "/jobs/{job}/edges/{edge}/tap")
#: Longer than a dispatcher waits for a part of a request.
PATIENCE_S = 90.0


class Wire:
    """Makes connections that misbehave. ``paths``: (method, path) of the API, with ids filled in."""

    def __init__(self, rng: random.Random, host: str, port: int, paths: Sequence[tuple[str, str]]) -> None:
        self._rng = rng
        self._address = (host, port)
        self._host = f"{host}:{port}"
        self._paths = paths
        self._values = Values(rng)

    def request(self) -> bytes:
        """The bytes of a request that somebody should not send."""
        rng = self._rng
        method, path = rng.choice(self._paths)
        if rng.random() < 0.3:
            path += "?" + "&".join(f"{rng.choice(('get', 'after', 'limit', 'wait_ms', 'agg'))}={_quoted(t)}" for t in rng.choices(HOSTILE_TEXTS, k=3))  # fmt: skip
        body = encoded(self._values.json_value())
        head = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", "Connection: close"]
        match rng.randrange(9):
            case 0:
                body = mutated(rng, body)
            case 1:
                body = rng.choice((b"[", b'{"sql":')) * DEEP
            case 2:
                head.append("X: " + "y" * rng.choice((1_000, 70_000)))
            case 3:
                head[0] = rng.choice(
                    (f"{method} {path}", f"FOO {path} HTTP/9.9", "GET http://[::1 HTTP/1.1", "\x00\x01")
                )
            case 4:
                head += ["Transfer-Encoding: chunked"]
                return "\r\n".join([*head, "", ""]).encode("latin-1") + rng.choice(
                    (b"zz\r\n", b"ffffffffffffffff\r\n", b"5\r\nab")
                )
            case 5:
                head[1] = rng.choice(("Host: evil.example", "Host: ", "Host: a\x7fb", "Host: x\r\nHost: y"))
            case 6:
                head += [f"Content-Length: {rng.choice(('-1', '1e3', '9' * 30, '5, 6'))}"]
                return "\r\n".join([*head, "", ""]).encode("latin-1") + body
            case 7:
                head += ["Authorization: Bearer " + "a." * 3_000, "Cookie: " + "=;" * 2_000, "Origin: null"]
        lies = rng.choice((len(body), len(body), len(body) + 100, 10**9))
        head.append(f"Content-Length: {lies}")
        data = "\r\n".join([*head, "", ""]).encode("latin-1", errors="replace") + body
        return data[: rng.randrange(len(data))] if rng.random() < 0.25 else data

    async def once(self) -> tuple[bytes, bytes | None]:
        """(what was sent, the answer; None: the server still holds the connection after ``PATIENCE_S``)."""
        data = self.request()
        reader, writer = await asyncio.open_connection(*self._address)
        answer: bytes | None = b""
        try:
            writer.write(data)
            # A server that has read enough may reset the connection.
            with contextlib.suppress(OSError):
                await writer.drain()
                if self._rng.random() < 0.2:
                    writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        except TimeoutError:
            answer = None
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return data, answer


def filled(
    rng: random.Random, endpoints: Sequence[tuple[str, str]], known: dict[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """(method, path) with values in the place of parameters: known ones, or hostile ones."""
    import re

    def value(match: re.Match[str]) -> str:
        values: Sequence[Any] = known.get(match[1]) or ()
        return _quoted(rng.choice(values) if values and rng.random() < 0.6 else rng.choice(HOSTILE_TEXTS))

    return [(method, re.sub(r"{(\w+)}", value, path)) for method, path in endpoints]


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text.encode(errors="replace"), safe="")
