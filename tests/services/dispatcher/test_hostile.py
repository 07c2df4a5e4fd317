"""What strangers send: each is answered with an error that is theirs, over REST and on the bus."""

from __future__ import annotations

import json
import re

import pytest

from penstock.messages import layout
from penstock.messages.cluster import Failed
from penstock_services.common.connections import TimedConnection

DEEP = 35_000
IDS = ["a" * 4_200, "*", "%3E", "a.b", "a%20b", "a%0d%0aPUB%20x%201%0d%0ay", "%C2%B2", "..%2f..%2fetc", "%00"]


def paths() -> list[tuple[str, str]]:
    """(method, path with its parameters) of every route, from the program itself."""
    from tests.services.dispatcher.conftest import routes

    return sorted((method, path) for method, path in routes() if "{" in path and "{rest" not in path)


async def said(front, method: str, path: str, **more) -> int:
    """The status; its answer is an error of ours that is not ours to mend."""
    reply = await front.http.request(method, path, **more)
    assert 200 <= reply.status_code < 500, f"{method} {path[:80]}: {reply.text[:500]}"
    return reply.status_code


@pytest.mark.parametrize(("method", "path"), paths(), ids=lambda v: v)
async def test_ids_that_are_none_reach_neither_bus_nor_store(front, method, path):
    known = await front.submit()
    for bad in IDS:
        for part in re.findall(r"{(\w+)}", path):
            filled = path.replace(f"{{{part}}}", bad).replace("{job}", known)
            filled = re.sub(r"{\w+}", "x", filled)
            query = "?mode=cancel" if method == "PATCH" else ""
            status = await said(front, method, filled + query)
            if part == "job":
                assert status in (400, 404), filled[:80]


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("exceptions?maxExceptions=²", True),
        ("exceptions?maxExceptions=-1", True),
        ("exceptions?maxExceptions=" + "9" * 5_000, True),
        ("exceptions?maxExceptions=", True),
        ("exceptions?maxExceptions=٣", True),
        ("results?wait_ms=²", True),
        ("results?wait_ms=1e3", True),
        ("results?after=../../etc/passwd", True),
        ("results?after=jobs/JOB/results/x", True),
        ("results?after=jobs/JOB/results/1-²", True),
        ("results?after=jobs/JOB/results/1-" + "9" * 5_000, True),
        ("dead-letters?limit=²", True),
        ("dead-letters?limit=" + "1" * 31, True),
        ("dead-letters?after=%00", False),
        ("metrics?get=" + "a," * 10_000, False),
    ],
)
async def test_query_parameters(front, path, refused):
    job_id = await front.submit()
    status = await said(front, "GET", f"/jobs/{job_id}/{path.replace('JOB', job_id)}")
    assert (status == 400) is refused


@pytest.mark.parametrize("path", ["checkpoints", "savepoints", "stop"])
@pytest.mark.parametrize(
    "body",
    [b"[" * 60_000, b'{"":' * 12_000 + b"1" + b"}" * 12_000, b"[]", b"\xff", b'{"triggerId": 5}', b'{"triggerId": "../x"}'],
    ids=["open brackets", "deep", "a list", "no text", "a number", "a path"],
)  # fmt: skip
async def test_bodies_of_requests(front, path, body):
    job_id = await front.submit()
    assert await said(front, "POST", f"/jobs/{job_id}/{path}", content=body) == 400


async def test_a_disposal_is_asked_for_by_its_id(front):
    assert await said(front, "GET", "/savepoint-disposal/..%2fjobs") in (400, 404)
    assert await said(front, "GET", "/savepoint-disposal/" + "a" * 5_000) == 400


SPECS = [
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'{"job_graph": {"vertices": ' + b"[" * 900 + b"]" * 900 + b"}}",
    b'{"sql": "SELECT 1", "job_id": "' + b"a" * 5_000 + b'"}',
    b'{"sql": "SELECT 1", "job_id": "../../etc"}',
    b'{"type": "submit-job", "command_id": "x", "spec": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"type": "submit-job", "spec": {"sql": 1}}',
    b'{"type": "submit-job"}',
    b'{"sql": "SELECT 1", "args": ["\\u0000"]}',
    b'{"type": "submit-job", "command_id": "x", "spec": {"sql": "SELECT 1", "args": ["\\ud800"]}}',
    b'{"type": "submit-job", "command_id": "\\ud800", "spec": {"sql": "SELECT 1", "job_id": "x"}}',
    b'{"type": "submit-job", "command_id": "x", "spec": {"sql": "SELECT 1", "args": "\\ud800"}}',
    b'{"type": "submit-job", "command_id": "x", "spec": {"\\ud800": 1}}',
    b'{"type": "submit-job", "command_id": "x", "spec": {"job_graph": {"a": "\\ud800"}}}',
    b"\xff\xfe",
    b"",
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec[:24].decode(errors="replace") or "nothing")
async def test_hostile_specs(front, spec):
    assert await said(front, "POST", "/jobs", content=spec) == 400
    reply = await front.bus.transport().request(front.subjects.jobs_submit, spec, 60)
    error = json.loads(reply)
    assert error["type"] == Failed.__struct_config__.tag
    assert error["error"]["type"] == "SpecError", error
    assert not [key for key, _ in await front.store.list(layout.ACTIVE_PREFIX)]


@pytest.mark.parametrize("verb", ["status", "cancel"])
@pytest.mark.parametrize(
    "data", [b"", b"*", b"a" * 5_000, b"\xff", b'{"job_id": ' + b"[" * DEEP, b'{"job_id": {"a": 1}}', b"{}"]
)
async def test_hostile_ids_on_the_bus(front, verb, data):
    error = json.loads(await front.bus.transport().request(front.subjects.jobs(verb), data, 60))
    assert error["error"]["type"] == "SpecError", error


# -- connections --------------------------------------------------------------------------------


@pytest.fixture
async def served(front, monkeypatch):
    """(host, port) of the dispatcher's own server, whose clients get 50 ms for each part."""
    from penstock_services.common import connections, http
    from penstock_services.common.http_serving import server_config
    from tests.services.dispatcher.conftest import serving

    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    monkeypatch.setattr(http, "BODY_PAUSE_S", 0.05)
    async with serving(server_config(front.rest.app())) as address:
        yield address


HEAD = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (HEAD[:30], b""),
        (HEAD + b"\r\n", b"408"),
        (HEAD + b"\r\n{", b"408"),
        (b"GET /config HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b"200"),
        (b"GET /config HTTP/1.1\r\nHost: x\r\n\r\nGET /conf", b"200"),
    ],
    ids=[
        "nothing",
        "half a head",
        "no body",
        "half a body",
        "a body nobody reads",
        "half of a second request",
    ],
)
async def test_half_a_request_is_not_kept(served, sent, answered):
    import asyncio

    reader, writer = await asyncio.open_connection(*served)
    writer.write(sent)
    reply = await asyncio.wait_for(reader.read(), 120)  # until it is closed
    assert reply[9:12] == answered
    writer.close()


async def test_a_body_that_is_no_http_is_answered_once_and_without_a_complaint(front, caplog):
    import asyncio

    from penstock_services.common.http_serving import server_config
    from tests.services.dispatcher.conftest import serving

    async with serving(server_config(front.rest.app())) as address:
        reader, writer = await asyncio.open_connection(*address)
        # The handler, which wants no body, would answer as well.
        writer.write(b"GET /config HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        reply = await asyncio.wait_for(reader.read(), 120)
        writer.close()
    assert reply[9:12] == b"400"
    assert reply.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_answers_that_are_no_processes_are_not_listed(front, caplog):
    transport = front.bus.transport()
    for data in (b"[" * DEEP, b"\xff", b'{"role": 1}', b""):
        await transport.publish(f"{front.subjects.cluster}.processes.here", data)
    listed = (await front.http.get("/cluster/info")).json()["processes"]
    assert "jm1" in [process["id"] for process in listed]
    assert "handler_failed" not in caplog.text


async def test_the_two_pieces_of_an_answer_do_not_wait_for_each_other(served, monkeypatch):
    import asyncio
    import socket

    accepted = []
    made = TimedConnection.connection_made

    def connection_made(self, transport):
        made(self, transport)
        accepted.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(TimedConnection, "connection_made", connection_made)
    reader, writer = await asyncio.open_connection(*served)
    writer.write(b"GET /config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 120)).startswith(b"HTTP/1.1 200")
    assert accepted == [1]
    writer.close()
