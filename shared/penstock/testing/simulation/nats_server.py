"""A NATS server with JetStream as a simulated process, for the real client library.

The server speaks the text protocol over simulated sockets. A broken connection, a server that is killed
between two messages of a batch, or an answer that never comes therefore affects a client as in the real
world. There are no clusters, no accounts and no flow control.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.bus.subjects import matches
from penstock.errors import InternalError
from penstock.testing.simulation.jetstream import JetStream, Stored, decode_headers, encode_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.testing.simulation.jetstream import Headers
    from penstock.testing.simulation.sockets import Listener, SimSocket
    from penstock.testing.simulation.world import Process, World

_API = "$JS.API."
_NEXT = "CONSUMER.MSG.NEXT."


@dataclass
class _Pull:
    inbox: str
    left: int
    ended: bool = False


@dataclass
class _Consumer:
    """A consumer of a stream. ``position``: sequence of the last message considered; ``sent``: number of
    messages delivered."""

    name: str
    stream: str
    subject: str
    position: int
    sent: int = 0
    pulls: deque[_Pull] = field(default_factory=deque)


@dataclass
class NatsFaults:
    """``lose``: probability that a response (of the API, to a publication) is never sent."""

    lose: float = 0.0


class SimNats:
    """The server; one process after another may run it. ``listen``: opens its port for a process.
    ``jetstream``: its streams, which outlive the process."""

    def __init__(self, world: World, listen: Callable[[Process], Listener]) -> None:
        self.world = world
        self.faults = NatsFaults()
        self.jetstream = JetStream(lambda: world.wall_ms() * 1_000_000)
        self._listen = listen
        self.connections: list[_Connection] = []
        self._consumers: dict[str, _Consumer] = {}
        self._numbers = 0
        self.jetstream.on_store.append(self._stored)

    async def main(self, process: Process) -> None:
        """Serve until the process is killed."""
        self.connections.clear()
        self._consumers.clear()
        self.jetstream.restarted()
        listener = self._listen(process)
        loop = asyncio.get_running_loop()
        while True:
            sock = await listener.accept()
            await loop.create_connection(lambda sock=sock: _Connection(self, sock), sock=sock)  # type: ignore[call-overload]

    # -- messages -------------------------------------------------------------------------

    def published(self, subject: str, reply: str, headers: Headers, data: bytes) -> None:
        if subject.startswith(_API):
            self._api(subject.removeprefix(_API), reply, data)
            return
        heard = self.route(subject, reply, headers, data)
        try:
            answer = self.jetstream.publish(subject, headers, data)
        except KeyError:
            if reply and not heard:
                self.route(reply, "", {}, b"", status="503")
            return
        if answer is not None:
            self._answer(reply, answer)

    def route(self, subject: str, reply: str, headers: Headers, data: bytes, status: str = "") -> bool:
        """Deliver a message to every subscription of ``subject``; returns False when there is none."""
        heard = False
        for connection in list(self.connections):
            heard |= connection.deliver(subject, reply, headers, data, status)
        return heard

    def _answer(self, reply: str, answer: dict[str, Any]) -> None:
        if not reply:
            return
        if self.faults.lose and self.world.random.random() < self.faults.lose:
            self.world.trace("nats", "lost", f"an answer to {reply}")
            return
        self.route(reply, "", {}, msgspec.json.encode(answer))

    def _api(self, verb: str, reply: str, data: bytes) -> None:
        body = msgspec.json.decode(data) if data else {}
        if verb.startswith(_NEXT):
            self._pull(verb.rsplit(".", 1)[1], reply, body)
        elif verb.startswith("CONSUMER.CREATE."):
            self._answer(reply, self._create_consumer(body))
        elif verb.startswith("CONSUMER.DELETE."):
            self._answer(reply, {"success": self._consumers.pop(verb.rsplit(".", 1)[1], None) is not None})
        else:
            self._answer(reply, self.jetstream.api(verb, body))

    # -- consumers ------------------------------------------------------------------------

    def _create_consumer(self, body: dict[str, Any]) -> dict[str, Any]:
        config = body["config"]
        stream = self.jetstream.streams.get(body["stream_name"])
        if stream is None:
            return {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
        match config["deliver_policy"]:
            case "all":
                position = 0
            case "by_start_sequence":
                position = config["opt_start_seq"] - 1
            case other:
                raise InternalError("not modelled", got=f"deliver_policy {other}")
        self._numbers += 1
        made = _Consumer(
            f"c{self._numbers}", body["stream_name"], config.get("filter_subject", ">"), position
        )
        self._consumers[made.name] = made
        return {
            "name": made.name,
            "config": config,
            "delivered": {"consumer_seq": 0, "stream_seq": position},
            "num_pending": len(stream.behind(position, made.subject)),
        }

    def _pull(self, name: str, inbox: str, body: dict[str, Any]) -> None:
        consumer = self._consumers.get(name)
        if consumer is None:
            self.route(inbox, "", {}, b"", status="503")
            return
        pull = _Pull(inbox, body["batch"])
        consumer.pulls.append(pull)
        loop = asyncio.get_running_loop()
        loop.call_later(body["expires"] / 1e9, self._expire, consumer, pull)
        beat_s = body["idle_heartbeat"] / 1e9

        def beat() -> None:
            if not pull.ended and self._consumers.get(name) is consumer:
                self.route(inbox, "", {}, b"", status="100 Idle Heartbeat")
                loop.call_later(beat_s, beat)

        loop.call_later(beat_s, beat)
        self._pump(consumer)

    def _expire(self, consumer: _Consumer, pull: _Pull) -> None:
        if not pull.ended:
            pull.ended = True
            consumer.pulls.remove(pull)
            left = {"Nats-Pending-Messages": str(pull.left), "Nats-Pending-Bytes": "0"}
            self.route(pull.inbox, "", left, b"", status="408 Request Timeout")

    def _stored(self, stream: str, messages: Sequence[Stored]) -> None:
        self.world.trace("nats", "stored", f"{stream} {messages[-1].sequence} {len(messages)}")
        for consumer in list(self._consumers.values()):
            if consumer.stream == stream:
                self._pump(consumer)

    def _pump(self, consumer: _Consumer) -> None:
        stream = self.jetstream.streams[consumer.stream]
        waiting = stream.behind(consumer.position, consumer.subject)
        for at, message in enumerate(waiting):
            if not consumer.pulls:
                return
            pull = consumer.pulls[0]
            consumer.position, consumer.sent = message.sequence, consumer.sent + 1
            place = f"1.{message.sequence}.{consumer.sent}.{message.time_ns}.{len(waiting) - at - 1}"
            reply = f"$JS.ACK.{consumer.stream}.{consumer.name}.{place}"
            self.route_to(pull.inbox, message.subject, reply, message)
            pull.left -= 1
            if not pull.left:
                pull.ended = True
                consumer.pulls.popleft()

    def route_to(self, inbox: str, subject: str, reply: str, message: Stored) -> None:
        """Deliver a message of a stream to the subscription of ``inbox``, with the message's own subject."""
        for connection in list(self.connections):
            connection.deliver(inbox, reply, message.headers, message.data, shown=subject)


class _Connection(asyncio.Protocol):
    def __init__(self, server: SimNats, sock: SimSocket) -> None:
        self._server = server
        self.sock = sock
        self._buffer = bytearray()
        self._subscriptions: dict[bytes, str] = {}
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._server.connections.append(self)
        info = {
            "server_id": "simulated", "server_name": "simulated", "version": "2.12.0", "proto": 1, "go": "",
            "host": "simulated", "port": 4222, "headers": True, "max_payload": 1 << 20, "jetstream": True,
        }  # fmt: skip
        transport.write(b"INFO " + msgspec.json.encode(info) + b"\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._server.connections:
            self._server.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._command():
            pass

    def _command(self) -> bool:
        """Take one command from the buffer; returns False when the buffer has no complete command."""
        line, found, _ = self._buffer.partition(b"\r\n")
        if not found:
            return False
        words = bytes(line).split()
        verb, taken = words[0].upper(), len(line) + 2
        if verb in (b"PUB", b"HPUB"):
            size = int(words[-1])
            if len(self._buffer) < taken + size + 2:
                return False
            body = bytes(self._buffer[taken : taken + size])
            del self._buffer[: taken + size + 2]
            self._publish(words, body, headed=verb == b"HPUB")
            return True
        del self._buffer[:taken]
        match verb:
            case b"PING":
                self._transport.write(b"PONG\r\n")
            case b"SUB":
                self._subscriptions[words[-1]] = words[1].decode()
            case b"UNSUB":
                self._subscriptions.pop(words[1], None)
            case b"CONNECT" | b"PONG":
                pass
            case _:
                raise InternalError("not modelled", got=repr(bytes(line[:80])))
        return True

    def _publish(self, words: list[bytes], body: bytes, *, headed: bool) -> None:
        reply = words[2].decode() if len(words) == (5 if headed else 4) else ""
        at = int(words[-2]) if headed else 0
        headers = decode_headers(body[:at]) if headed else {}
        self._server.published(words[1].decode(), reply, headers, body[at:])

    def deliver(
        self, subject: str, reply: str, headers: Headers, data: bytes, status: str = "", shown: str = ""
    ) -> bool:
        heard = False
        for sid, pattern in list(self._subscriptions.items()):
            if not matches(pattern, subject):
                continue
            heard = True
            to = f"{shown or subject} {sid.decode()}{' ' if reply else ''}{reply}"
            if headers or status:
                head = encode_headers(headers, status)
                line = f"HMSG {to} {len(head)} {len(head) + len(data)}\r\n".encode()
                self._transport.write(line + head + data + b"\r\n")
            else:
                self._transport.write(f"MSG {to} {len(data)}\r\n".encode() + data + b"\r\n")
        return heard
