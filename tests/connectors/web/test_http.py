"""``http`` on real servers of HTTP: the kits, and what they do not ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid

import httpx
import pytest

from penstock.connectors.http.bodies import records, text_at
from penstock.connectors.http.settings import own_keys, seconds_or_duration, status_codes
from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError, RecordError, SpecError
from penstock.testing.conformance import BadTable, LookupConformance, SinkConformance, SourceConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.servers.web_server import WebServer, free_port

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def named(rows):
    return [{"id": i, "name": name} for i, name in rows]


def fresh():
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def web():
    server = WebServer()
    server.start()
    yield server
    server.stop()


def polled(web, name, **more):
    return {
        "connector": "http", "url": f"{web.url}/pages/{name}", "format": "json", "body.pointer": "/data",
        "scan.bounded.mode": "latest", **more,
    }  # fmt: skip


def sink(web, name, **more):
    return {"connector": "http-sink", "url": f"{web.url}/take/{name}", "format": "json", **more}


def hook(**more):
    return {
        "connector": "http",
        "listen": f"127.0.0.1:{free_port()}",
        "path": "/rows",
        "format": "json",
        **more,
    }


def taken(web, name):
    rows = []
    for at, _, body in web.taken:
        if at.split("/")[0] == name:
            found = json.loads(body)
            rows += found if isinstance(found, list) else [found]
    return [(row["id"], row["name"]) for row in rows]


class _Http:
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, web):
        self.web = web

    def connector(self):
        return get_connector("http")


class TestPolling(_Http, SourceConformance):
    many_splits = False

    def options(self):
        name = fresh()
        self.web.rows[name] = named(made(0, 60))
        return polled(self.web, f"{name}?size=7", pagination="link")

    def expected(self):
        return made(0, 60)

    def bad(self):
        name = fresh()
        self.web.rows[name] = [*named(made(1, 1)), {"id": "no number"}, *named(made(2, 1))]
        return BadTable(polled(self.web, name), made(1, 2), 1)

    def live_options(self):
        name = fresh()
        self.web.rows[name] = []
        more = {"pagination": "cursor", "pagination.pointer": "/since", "pagination.resume": "true"}
        return polled(
            self.web, f"{name}?size=7", **more, **{"scan.bounded.mode": "unbounded", "poll.interval": "20 ms"}
        )

    async def publish(self, options, rows):
        name = options["url"].rpartition("/")[2].partition("?")[0]
        self.web.rows[name] += named(rows)


class _Sink(_Http, SinkConformance):
    more: dict[str, str] = {}

    def connector(self):
        return get_connector("http-sink")

    def options(self):
        return sink(self.web, fresh(), **self.more)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        return taken(self.web, options["url"].rpartition("/")[2])


class TestSink(_Sink):
    pass


class TestSinkExactlyOnce(_Sink):
    """The server does a request with a known key only once."""

    more = {"sink.delivery-guarantee": "exactly-once", "http.sink.request.batch.size": "2"}


class TestLookup(_Http, LookupConformance):
    schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("cents", t.DecimalType(9, 2)))

    def connector(self):
        return get_connector("rest-lookup")

    def options(self):
        name = fresh()
        self.web.rows[name] = [
            {"id": i, "name": n, "cents": None if c is None else float(c)} for i, n, c in self.rows()
        ]
        return {
            "connector": "rest-lookup", "url": f"{self.web.url}/find/{name}", "format": "json",
            "gid.connector.http.source.lookup.result-type": "array",
        }  # fmt: skip

    def rows(self):
        from decimal import Decimal

        return [
            (1, "a", Decimal("1.50")),
            (2, "b", None),
            (2, "b again", Decimal("2.00")),
            (None, "none", None),
        ]

    def absent(self):
        return [(77,), (78,)]

    def many_absent(self):
        return [(1000 + i,) for i in range(40)]

    def outage(self, options):
        @contextlib.contextmanager
        def stopped():
            self.web.stop()
            try:
                yield
            finally:
                self.web.start()

        return contextlib.asynccontextmanager(_as_async(stopped))()


def _as_async(made):
    async def entered():
        with made():
            yield

    return entered


# -- pure parts ----------------------------------------------------------------------------------


def test_statuses_are_read_as_the_connectors_of_flink_write_them():
    assert status_codes("2XX, 404,!204") == {*range(200, 300), 404} - {204}
    for wrong in ("two", "9XX", "20"):
        with pytest.raises(SpecError):
            status_codes(wrong)
    assert (seconds_or_duration("30"), seconds_or_duration("2 s"), seconds_or_duration("5 ms")) == (
        30_000,
        2000,
        5,
    )
    assert own_keys({"gid.connector.http.sink.success-codes": "2XX"}) == {"http.sink.success-codes": "2XX"}


@pytest.mark.parametrize(
    ("body", "kind", "pointer", "want"),
    [
        (b'{"a":1}', "record", None, [b'{"a":1}']),
        (b'[{"a":1}, {"a":2}]', "array", None, [b'{"a":1}', b'{"a":2}']),
        (b'{"x":[{"i":[{"a":1}]}]}', "array", "/x/0/i", [b'{"a":1}']),
        (b'{"a/b":{"c":1}}', "record", "/a~1b", [b'{"c":1}']),
        (b"a,1\n\nb,2\n", "lines", None, [b"a,1", b"b,2"]),
        (b"a,1", "record", None, [b"a,1"]),
    ],
)
def test_the_records_of_a_body(body, kind, pointer, want):
    assert records(body, kind, pointer, "here") == want


@pytest.mark.parametrize(
    ("body", "pointer"), [(b"{", None), (b'{"a":1}', None), (b'{"a":1}', "/b"), (b"[1", "/0"), (b"[1]", "/7")]
)
def test_a_body_of_another_shape_is_a_bad_record(body, pointer):
    with pytest.raises(RecordError, match="another shape"):
        records(body, "array", pointer, "here")


def test_the_next_page_is_text_or_nothing():
    assert [text_at(b'{"n":%s}' % v, "/n") for v in (b'"x"', b"7", b"null", b'""')] == ["x", "7", None, None]
    assert text_at(b"{}", "/n") is None
    with pytest.raises(ValueError, match="neither"):
        text_at(b'{"n":{}}', "/n")


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        ("source", {}, "'url' is missing"),
        ("source", {"url": "ftp://x"}, "no address"),
        ("source", {"listen": "127.0.0.1"}, "no address"),
        ("source", {"listen": "0.0.0.0:80"}, "anybody could send"),
        ("source", {"listen": "127.0.0.1:80", "url": "http://x"}, "listens or asks"),
        ("source", {"listen": "127.0.0.1:80", "path": "x"}, "no path"),
        ("source", {"listen": "127.0.0.1:80", "tls.key": "x"}, "certificate and its key"),
        ("source", {"listen": "127.0.0.1:80", "answer": "received", "request-id.header": "X"}, "answered at once"),
        ("source", {"url": "http://x", "pagination": "url"}, "pagination.pointer"),
        ("source", {"url": "http://x", "http.security.cert.server": "/nowhere.pem"}, "certificate cannot be read"),
        ("sink", {"url": "http://x/{id}"}, "one address"),
        ("sink", {"url": "http://x/{idd}", "http.sink.writer.request.mode": "single"}, "names no column"),
        ("sink", {"url": "http://x", "format": "csv", "http.sink.writer.request.mode": "batch"}, "only rows of JSON"),
        ("sink", {"url": "http://x", "http.sink.success-codes": "ok"}, "no status"),
        ("sink", {"url": "http://x", "urll": "y"}, "urll"),
    ],
)  # fmt: skip
def test_wrong_tables_are_refused_at_planning(role, options, said):
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, {"connector": "http", "format": "json", **options}, role=role)


def test_an_address_with_columns_cannot_be_scanned(harness):
    with pytest.raises(ConnectorError, match="can only be looked up"):
        asyncio.run(harness.splits(SCHEMA, {"connector": "http", "url": "http://x/{id}", "format": "json"}))


# -- the sink ------------------------------------------------------------------------------------


def test_a_request_is_repeated_with_its_key(harness, web):
    name = fresh()
    web.repeated = 0

    async def main():
        writer = await harness.writer(SCHEMA, sink(web, name))
        web.fails = [503, 429, 599]
        writer.write(Batch.of(SCHEMA, made(0, 3)))
        await writer.begin_checkpoint(1)
        await writer.close()

    asyncio.run(main())
    assert taken(web, name) == made(0, 3)
    assert web.repeated == 1  # the one whose answer was lost


def test_rows_have_addresses_of_their_own_and_keep_their_order(harness, web):
    name = fresh()
    options = sink(
        web, f"{name}/{{name}}", **{"http.sink.writer.request.mode": "single", "insert-method": "PUT"}
    )
    harness.on_error = "skip"

    async def main():
        writer = await harness.writer(SCHEMA, options)
        writer.write(Batch.of(SCHEMA, [(1, "a/b c"), (2, None), (3, "z")]))
        await writer.begin_checkpoint(1)
        await writer.close()

    asyncio.run(main())
    assert [at for at, *_ in web.taken if at.startswith(name)] == [f"{name}/a/b c", f"{name}/z"]
    assert "no address" in str(harness.bad[0][0])


def test_refused_rows_are_bad_records_and_a_refused_table_is_an_error(harness, web):
    name = fresh()
    harness.on_error = "skip"

    async def main():
        writer = await harness.writer(SCHEMA, sink(web, name, **{"http.sink.request.batch.size": "1"}))
        web.fails = [422]
        writer.write(Batch.of(SCHEMA, made(0, 2)))
        await writer.begin_checkpoint(1)
        web.fails = [403]
        writer.write(Batch.of(SCHEMA, made(2, 1)))
        with pytest.raises(ConnectorError, match="allow the user"):
            await writer.begin_checkpoint(2)
        await writer.close()

    asyncio.run(main())
    assert taken(web, name) == made(1, 1)
    assert [str(error).splitlines()[0] for error, *_ in harness.bad] == [
        str(harness.bad[0][0]).splitlines()[0]
    ]


# -- polling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"pagination": "url", "pagination.pointer": "/next"},
        {"pagination": "cursor", "pagination.pointer": "/cursor"},
    ],
)
def test_pages_are_found_in_the_answer(harness, web, more):
    name = fresh()
    web.rows[name] = named(made(0, 10))
    rows = asyncio.run(harness.read_all(SCHEMA, polled(web, f"{name}?size=3", **more)))
    assert rows == made(0, 10)


async def until(condition):
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def rows_until(reader, count):
    rows = []
    async with asyncio.timeout(30):
        while len(rows) < count:
            fetched = reader.poll()
            if fetched is None:
                await reader.wait()
            else:
                rows += fetched.batch.to_pylist()
    return rows


def test_an_answer_that_has_not_changed_gives_no_rows_again(harness, web):
    name = fresh()
    web.rows[name] = named(made(0, 3))
    options = polled(web, name, **{"scan.bounded.mode": "unbounded", "poll.interval": "20 ms"})

    async def main():
        reader = await harness.reader(SCHEMA, options)
        assert await rows_until(reader, 3) == made(0, 3)
        asked = len(web.asked)
        await until(lambda: len(web.asked) >= asked + 3)
        assert "if-none-match" in web.asked[-1][1]
        left = reader.snapshot()
        await reader.close()
        web.rows[name] = named(made(0, 4))
        reader = await harness.reader(SCHEMA, options, splits=left)
        assert await rows_until(reader, 4) == made(0, 4)  # the whole answer is another one
        await reader.close()

    asyncio.run(main())


def test_a_round_goes_on_from_the_last_cursor(harness, web):
    name = fresh()
    web.rows[name] = named(made(0, 5))
    options = polled(
        web, f"{name}?size=2", pagination="cursor",
        **{"pagination.pointer": "/since", "pagination.resume": "true", "scan.bounded.mode": "unbounded", "poll.interval": "20 ms"},
    )  # fmt: skip

    async def main():
        reader = await harness.reader(SCHEMA, options)
        assert await rows_until(reader, 5) == made(0, 5)
        web.rows[name] = named(made(0, 8))
        assert await rows_until(reader, 3) == made(5, 3)
        await reader.close()

    asyncio.run(main())


def test_a_page_on_another_server_is_refused(harness, web):
    name = fresh()
    web.rows[name] = named(made(0, 10))
    options = polled(web, f"{name}?size=3", pagination="link")
    options["url"] = options["url"].replace("127.0.0.1", "localhost")
    with pytest.raises(ConnectorError, match="another server"):
        # The server tells addresses of the host it was asked by, so ask through another name.
        asyncio.run(_reads_with_host(harness, options, f"127.0.0.1:{web.port}"))


async def _reads_with_host(harness, options, host):
    return await harness.read_all(SCHEMA, {**options, "header.Host": host})


# -- look-ups ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("/one/{name}/{{id}}", {}),
        ("/find/{name}", {"lookup-method": "POST", "http.source.lookup.result-type": "array"}),
    ],
)
def test_keys_stand_in_the_address_or_the_body(harness, web, url, more):
    name = fresh()
    web.rows[name] = named(made(0, 3))
    options = {"connector": "rest-lookup", "url": web.url + url.format(name=name), "format": "json", **more}

    async def main():
        source = get_connector("rest-lookup").lookup(validate_and_table(options))
        await source.open(harness.ctx(SCHEMA, options))
        keys = Batch.of(Schema.of(("id", t.BigIntType())), [(2,), (9,), (0,)])
        found = await source.lookup(keys)
        await source.close()
        return sorted(found.to_pylist())

    assert asyncio.run(main()) == [(0, "name 0"), (2, "name 2")]


def validate_and_table(options):
    from penstock.connectors.registry import table_info

    validate_table(SCHEMA, options, role="source")
    return table_info(SCHEMA, options)


# -- the web hook --------------------------------------------------------------------------------


async def posted(options, json_, *, headers=None, timeout=60.0, path="/rows"):
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(
            f"http://{options['listen']}{path}", json=json_, headers=headers, timeout=timeout
        )


async def ready(options):
    """Waits until the hook listens."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                host, _, port = options["listen"].partition(":")
                _, out = await asyncio.open_connection(host, int(port))
                out.close()
                return
            await asyncio.sleep(0.02)


def complete(reader):
    reader.on_checkpoint_complete(1, reader.snapshot())


def test_a_request_is_answered_when_its_rows_are_in_a_complete_checkpoint(harness):
    options = hook(body="array")

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=2)
        await ready(options)
        answer = asyncio.ensure_future(posted(options, named(made(0, 3))))
        assert await rows_until(reader, 2) == made(0, 2)
        complete(reader)  # holds only two of three rows
        await asyncio.sleep(0.05)
        assert not answer.done()
        assert await rows_until(reader, 1) == made(2, 1)
        assert not answer.done()
        complete(reader)
        assert (await answer).status_code == 200
        await reader.close()

    asyncio.run(main())


def test_a_request_that_comes_again_is_read_once(harness):
    """Also when a checkpoint held only a part of it, and when the job was restored."""
    options = hook(body="array", **{"request-id.header": "X-Id"})

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=2)
        await ready(options)
        lost = asyncio.ensure_future(posted(options, named(made(0, 3)), headers={"X-Id": "r1"}))
        assert await rows_until(reader, 2) == made(0, 2)
        left = reader.snapshot()
        await reader.close()
        assert (await asyncio.gather(lost, return_exceptions=True))[0] is not None
        reader = await harness.reader(SCHEMA, options, splits=left, batch_rows=5)
        await ready(options)
        answers = [
            asyncio.ensure_future(posted(options, named(made(0, 3)), headers={"X-Id": "r1"}))
            for _ in range(2)
        ]
        assert await rows_until(reader, 1) == made(2, 1)
        await until(lambda: complete(reader) or all(a.done() for a in answers))
        assert [a.result().status_code for a in answers] == [200, 200]
        again = asyncio.ensure_future(posted(options, named(made(0, 3)), headers={"X-Id": "r1"}))
        await until(lambda: complete(reader) or again.done())
        assert reader.poll() is None
        assert (await posted(options, {}, timeout=60)).status_code == 400  # no id
        await reader.close()

    asyncio.run(main())


def test_back_pressure_is_503_with_the_time_to_wait(harness):
    options = hook(**{"request.max-pending": "2"})

    async def main():
        reader = await harness.reader(SCHEMA, options, config={"execution.checkpointing.interval": "2500 ms"})
        await ready(options)
        held = [asyncio.ensure_future(posted(options, row)) for row in named(made(0, 2))]
        assert sorted(await rows_until(reader, 2)) == made(0, 2)
        full = await posted(options, named(made(2, 1))[0])
        assert (full.status_code, full.headers["Retry-After"]) == (503, "3")
        complete(reader)
        assert [(await answer).status_code for answer in held] == [200, 200]
        free = asyncio.ensure_future(posted(options, named(made(2, 1))[0]))
        assert await rows_until(reader, 1) == made(2, 1)
        await reader.close()
        assert (await free).status_code == 503  # the reader has ended

    asyncio.run(main())


def test_wrong_requests_are_refused_and_change_nothing(harness):
    options = hook(token="a-token-of-ours", answer="received", **{"request.max-size": "100 b"})
    right = {"Authorization": "Bearer a-token-of-ours"}
    row = named(made(1, 1))[0]

    async def main():
        reader = await harness.reader(SCHEMA, options, metadata=("headers", "url", "remote-address"))
        await ready(options)
        statuses = [
            (await posted(options, row)).status_code,
            (await posted(options, row, headers={"Authorization": "Bearer other"})).status_code,
            (await posted(options, row, headers=right, path="/other")).status_code,
            (await posted(options, {**row, "name": "x" * 200}, headers=right)).status_code,
            (await posted(options, {"id": "no number"}, headers=right)).status_code,
            (await posted(options, row, headers={**right, "Content-Encoding": "gzip"})).status_code,
        ]
        assert reader.poll() is None
        taken = (await posted(options, row, headers={**right, "X-Of": "me"}, path="/rows?a=b")).status_code
        [got] = await rows_until(reader, 1)
        await reader.close()
        return statuses, taken, got

    statuses, taken_, got = asyncio.run(main())
    assert statuses == [401, 401, 404, 413, 400, 415]
    assert taken_ == 202
    headers = dict(got[2])
    assert got[:2] == (1, "name 1")
    assert got[3:] == ("/rows?a=b", "127.0.0.1")
    assert headers["x-of"] == "me"
    assert "authorization" not in headers


def test_a_bad_record_of_a_request_goes_by_the_policy(harness):
    options = hook(body="array", answer="received")
    harness.on_error = "skip"

    async def main():
        reader = await harness.reader(SCHEMA, options)
        await ready(options)
        answer = await posted(options, [*named(made(0, 1)), {"id": "x"}, *named(made(1, 1))])
        assert answer.status_code == 202
        rows = await rows_until(reader, 2)
        await reader.close()
        return rows

    assert asyncio.run(main()) == made(0, 2)
    assert len(harness.bad) == 1


def test_a_hook_without_checkpoints_is_refused(harness):
    with pytest.raises(ConnectorError, match="there are no checkpoints"):
        asyncio.run(harness.reader(SCHEMA, hook(), config={"execution.checkpointing.interval": "0"}))


def test_a_taken_port_is_waited_for(harness, web):
    options = hook()
    options["listen"] = f"127.0.0.1:{web.port}"

    async def main():
        reader = await harness.reader(SCHEMA, options)
        await until(lambda: reader.away() is not None)
        said = reader.away()
        await reader.close()
        return said

    assert "cannot listen" in asyncio.run(main())
