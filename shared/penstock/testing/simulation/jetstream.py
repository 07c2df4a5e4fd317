"""A model of the part of JetStream that the connector uses: streams, conditional and deduplicated publishing,
atomic batches, consumers. The model is a pure core; ``nats_server`` speaks the protocol.

``tests/connectors/nats/test_jetstream_model.py`` runs the same scripts on this model and on a real server.
Streams survive the server's end; batches that were not committed and consumers do not.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.bus.subjects import matches

#: The greatest number of messages in an atomic batch.
MAX_BATCH = 1_000
#: A batch that gets no message for this long is discarded.
BATCH_IDLE_NS = 10_000_000_000
#: How long a stream remembers message ids, unless its configuration says otherwise.
DUPLICATE_WINDOW_NS = 120_000_000_000

Headers = Mapping[str, str]


class Refused(Exception):
    """An error response of the API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.answer = {"error": {"code": code, "err_code": err_code, "description": description}}


@dataclass(frozen=True)
class Stored:
    sequence: int
    time_ns: int
    subject: str
    headers: Headers
    data: bytes


@dataclass
class _Batch:
    messages: list[tuple[str, Headers, bytes]] = field(default_factory=list)
    heard_ns: int = 0


class Stream:
    def __init__(self, config: dict[str, Any], now_ns: int) -> None:
        self.config = config
        self._created = datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat()
        self.messages: list[Stored] = []
        self._last_of: dict[str, int] = {}
        self._ids: dict[str, tuple[int, int]] = {}

    @property
    def last_sequence(self) -> int:
        return len(self.messages)

    def takes(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.config["subjects"])

    def last_of(self, subject: str) -> int:
        return self._last_of.get(subject, 0)

    def behind(self, sequence: int, subject: str) -> Sequence[Stored]:
        """The messages after ``sequence`` that match the filter ``subject``."""
        return [m for m in self.messages[sequence:] if matches(subject, m.subject)]

    def check(self, subject: str, headers: Headers) -> None:
        """Raises ``Refused`` unless the conditions in ``headers`` hold."""
        expected = headers.get("Nats-Expected-Last-Sequence")
        if expected is not None and int(expected) != self.last_sequence:
            raise Refused(400, 10071, f"wrong last sequence: {self.last_sequence}")
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None and int(expected) != self.last_of(subject):
            raise Refused(400, 10071, f"wrong last sequence: {self.last_of(subject)}")
        expected = headers.get("Nats-Expected-Last-Msg-Id")
        if expected is not None and expected != self._last_id():
            raise Refused(400, 10070, f"wrong last msg ID: {self._last_id()}")

    def repeats(self, headers: Headers, now_ns: int) -> int | None:
        """The sequence of an earlier message with the same id; None if there is none."""
        found = self._ids.get(headers.get("Nats-Msg-Id", ""))
        window = self.config.get("duplicate_window") or DUPLICATE_WINDOW_NS
        return found[0] if found is not None and now_ns - found[1] < window else None

    def store(self, subject: str, headers: Headers, data: bytes, now_ns: int) -> int:
        sequence = self.last_sequence + 1
        self.messages.append(Stored(sequence, now_ns, subject, dict(headers), data))
        self._last_of[subject] = sequence
        if "Nats-Msg-Id" in headers:
            self._ids[headers["Nats-Msg-Id"]] = (sequence, now_ns)
        return sequence

    def info(self) -> dict[str, Any]:
        first = 1 if self.messages else 0
        state = {"messages": len(self.messages), "first_seq": first, "last_seq": self.last_sequence}
        return {"config": dict(self.config), "created": self._created, "state": state}

    def _last_id(self) -> str:
        return self.messages[-1].headers.get("Nats-Msg-Id", "") if self.messages else ""


class JetStream:
    """The model of a server's JetStream. ``publish`` and ``api`` return the server's responses.
    ``on_store(stream, messages)`` is called with the messages that were stored together."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.streams: dict[str, Stream] = {}
        self._batches: dict[tuple[str, str], _Batch] = {}
        self.on_store: list[Callable[[str, Sequence[Stored]], None]] = []

    def restarted(self) -> None:
        """The server was restarted: everything that was only in its memory is lost."""
        self._batches.clear()

    def stream_of(self, subject: str) -> str | None:
        return next((name for name, stream in self.streams.items() if stream.takes(subject)), None)

    # -- publishing ---------------------------------------------------------------------

    def publish(self, subject: str, headers: Headers, data: bytes) -> dict[str, Any] | None:
        """Publish a message; returns the acknowledgement or an error response, or None for a message of a
        batch that is not complete yet. KeyError when no stream takes the subject."""
        name = self.stream_of(subject)
        if name is None:
            raise KeyError(subject)
        stream = self.streams[name]
        try:
            if "Nats-Batch-Id" in headers:
                return self._batched(name, stream, subject, headers, data)
            now_ns = self._now_ns()
            repeated = stream.repeats(headers, now_ns)
            if repeated is not None:
                return {"stream": name, "seq": repeated, "duplicate": True}
            stream.check(subject, headers)
            stored = self._store(name, stream, [(subject, headers, data)])
        except Refused as err:
            return {**err.answer, "stream": name, "seq": 0}
        return {"stream": name, "seq": stored[-1].sequence}

    def _batched(
        self, name: str, stream: Stream, subject: str, headers: Headers, data: bytes
    ) -> dict[str, Any] | None:
        if not stream.config.get("allow_atomic"):
            raise Refused(400, 10174, "atomic publish is disabled")
        key, now_ns = (name, headers["Nats-Batch-Id"]), self._now_ns()
        number = int(headers["Nats-Batch-Sequence"])
        batch = self._batches.get(key)
        if batch is None or now_ns - batch.heard_ns > BATCH_IDLE_NS:
            if number != 1:
                raise Refused(400, 10176, "atomic publish batch is incomplete")
            batch = self._batches[key] = _Batch()
        batch.heard_ns = now_ns
        batch.messages.append((subject, headers, data))
        if number != len(batch.messages):
            del self._batches[key]
            raise Refused(400, 10176, "atomic publish batch is incomplete")
        if number > MAX_BATCH:
            del self._batches[key]
            raise Refused(400, 10199, f"atomic publish batch is too large: {MAX_BATCH}")
        if headers.get("Nats-Batch-Commit") != "1":
            return None
        del self._batches[key]
        for one, head, _ in batch.messages:
            if "Nats-Msg-Id" in head and stream.repeats(head, now_ns) is not None:
                raise Refused(400, 10201, "atomic publish batch contains duplicate message id")
            stream.check(one, head)
        stored = self._store(name, stream, batch.messages)
        return {"stream": name, "seq": stored[-1].sequence, "batch": key[1], "count": len(stored)}

    def _store(
        self, name: str, stream: Stream, messages: Sequence[tuple[str, Headers, bytes]]
    ) -> Sequence[Stored]:
        first = stream.last_sequence
        for subject, headers, data in messages:
            stream.store(subject, headers, data, self._now_ns())
        stored = stream.messages[first:]
        for listener in self.on_store:
            listener(name, stored)
        return stored

    # -- the API --------------------------------------------------------------------------

    def api(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Call the API. ``verb``: the subject after ``$JS.API.``; KeyError for a call that is not
        modelled."""
        kind, _, name = verb.partition(".")
        action, _, name = name.partition(".")
        try:
            match (kind, action):
                case ("STREAM", "NAMES"):
                    return self._names(body)
                case ("STREAM", "CREATE"):
                    return self._create(name, dict(body))
                case ("STREAM", "UPDATE"):
                    self._stream(name).config = dict(body)
                    return self._stream(name).info()
                case ("STREAM", "INFO"):
                    return self._info(name, body)
                case ("STREAM", "MSG"):
                    return self._message(self._stream(name.removeprefix("GET.")), body)
        except Refused as err:
            return err.answer
        raise KeyError(verb)

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise Refused(404, 10059, "stream not found")
        return self.streams[name]

    def _names(self, body: Mapping[str, Any]) -> dict[str, Any]:
        subject = body.get("subject")
        return {
            "streams": [n for n, s in sorted(self.streams.items()) if subject is None or s.takes(subject)]
        }

    def _create(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        config.setdefault("subjects", [name])
        known = self.streams.get(name)
        if known is not None and known.config != config:
            raise Refused(400, 10058, "stream name already in use with a different configuration")
        self.streams.setdefault(name, Stream(config, self._now_ns()))
        return self.streams[name].info()

    def _info(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        info = self._stream(name).info()
        wanted = body.get("subjects_filter")
        if wanted is not None:
            counts: dict[str, int] = {}
            for message in self.streams[name].behind(0, wanted):
                counts[message.subject] = counts.get(message.subject, 0) + 1
            page = sorted(counts.items())[body.get("offset", 0) :]
            info["state"]["subjects"] = dict(page)
            info["total"] = len(counts)
        return info

    def _message(self, stream: Stream, body: Mapping[str, Any]) -> dict[str, Any]:
        match body:
            case {"last_by_subj": subject}:
                found = stream.behind(0, subject)[-1:]
            case {"next_by_subj": subject, **more}:
                found = stream.behind(max(0, int(more.get("seq", 1)) - 1), subject)[:1]
            case _:
                at = int(body["seq"])
                found = stream.messages[at - 1 : at]
        if not found:
            raise Refused(404, 10037, "no message found")
        message = found[0]
        told: dict[str, Any] = {
            "subject": message.subject,
            "seq": message.sequence,
            "data": base64.b64encode(message.data).decode(),
            "time": datetime.fromtimestamp(message.time_ns / 1e9, UTC).isoformat(),
        }
        if message.headers:
            told["hdrs"] = base64.b64encode(encode_headers(message.headers)).decode()
        return {"message": told}


def encode_headers(headers: Headers, status: str = "") -> bytes:
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"NATS/1.0{' ' if status else ''}{status}\r\n{lines}\r\n".encode()


def decode_headers(data: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in data.decode().split("\r\n")[1:] if line)
    return {key: value.strip() for key, _, value in pairs}
