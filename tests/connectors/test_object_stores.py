"""Tables of files in object stores: Azure's and S3's protocols by servers that run here, and what each error of a store says."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError, ObjectStoreError
from penstock.store import open_store, probe_conditional_create
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


@pytest.fixture(scope="module", params=["shared_azurite", "shared_minio"])
def server(request):
    return request.getfixturevalue(request.param)


def rows(first, last):
    return [(i, f"name-{i}") for i in range(first, last)]


def options(url, store, **more):
    return {
        "connector": "filesystem",
        "path": url,
        "format": "json",
        **{f"fs.{k}": v for k, v in store.items()},
        **more,
    }


@pytest.mark.parametrize("more", [
    {"format": "parquet"},
    {"sink.compression": "zstd", "sink.rolling-policy.rollover-interval": "1 h"},
])  # fmt: skip
async def test_rows_show_once_over_a_restart(server, harness, more):
    opts = options(f"{server.url}/{len(more)}", server.options, **more)
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, rows(0, 5_000)))
    state = await writer.begin_checkpoint(1)
    await writer.commit(1)
    writer.write(Batch.of(SCHEMA, rows(5_000, 6_000)))
    await writer.begin_checkpoint(2)  # not complete
    await writer.close()
    writer = await harness.writer(SCHEMA, opts, state, attempt=2)
    writer.write(Batch.of(SCHEMA, rows(5_000, 7_000)))
    writer.watermark(2**63 - 1)
    await writer.begin_checkpoint(3)
    await writer.commit(3)
    await writer.close()
    validate_table(
        SCHEMA, {k: v for k, v in opts.items() if not k.startswith("sink.")}, role="source", where="table 't'"
    )
    assert sorted(await harness.read_all(SCHEMA, opts)) == rows(0, 7_000)
    assert sorted(await harness.read_all(SCHEMA, {**opts, "path": f"{opts['path']}/part-*"})) == rows(
        0, 7_000
    )
    files, path = (await harness.writer(SCHEMA, opts))._files, opts["path"]
    names = {info.path.removeprefix(path).split("-")[0] for info in files.list(path)}
    assert names == {"/part"}


async def test_a_store_of_checkpoints(server):
    store = open_store(f"{server.url}/checkpoints", server.options)
    await probe_conditional_create(store)
    await store.put("jobs/a/1", b"one")
    assert await store.create("jobs/a/1", b"two") is False
    assert await store.get_range("jobs/a/1", 1, 2) == b"ne"
    assert await store.list("jobs/") == [("jobs/a/1", 3)]
    await store.delete(["jobs/a/1", "jobs/none"])
    assert await store.list("") == []


async def test_a_bucket_that_is_not_there_is_named(server, harness):
    with pytest.raises(ConnectorError, match="no such bucket"):
        validate_table(
            SCHEMA,
            options(server.url.replace("penstock", "nowhere"), server.options),
            role="source",
            where="table 't'",
        )
    writer = await harness.writer(SCHEMA, options(server.url.replace("penstock", "nowhere"), server.options))
    writer.write(Batch.of(SCHEMA, rows(0, 5)))
    with pytest.raises((ConnectorError, ObjectStoreError), match="nowhere"):
        await writer.begin_checkpoint(1)
    await writer.close()


def test_refused_credentials_are_named(server):
    [key] = {"account_key", "secret_access_key"} & server.options.keys()
    wrong = {**server.options, key: "d3Jvbmc="}
    with pytest.raises(ConnectorError, match="refuses these credentials"):
        validate_table(SCHEMA, options(server.url, wrong), role="source", where="table 't'")


@pytest.fixture
def answering():
    """A server of S3's protocol that answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        answer = (200, "")

        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, code = self.answer
            body = f"<Error><Code>{code}</Code><Message>it is so</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield Handler, {
        "endpoint": f"http://127.0.0.1:{running.server_address[1]}", "allow_http": "true", "region": "us-east-1",
        "access_key_id": "me", "secret_access_key": "mine",
    }  # fmt: skip
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        ((403, "AccessDenied"), ConnectorError, "refuses these credentials"),
        ((401, "InvalidToken"), ConnectorError, "refuses these credentials"),
        ((404, "NoSuchBucket"), ConnectorError, "no such bucket"),
        ((400, "Strange"), ObjectStoreError, "object storage failed"),
    ],
)
async def test_what_a_store_answers_is_said(harness, answering, answer, kind, word):
    handler, store = answering
    handler.answer = answer
    opts = options("s3://bucket/rows", store)
    with pytest.raises(kind, match=word) as read:
        validate_table(SCHEMA, opts, role="source", where="table 't'")
    assert "s3://bucket/rows" in str(read.value)
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, rows(0, 5)))
    with pytest.raises(kind) as written:
        await writer.begin_checkpoint(1)
    assert "s3://bucket/rows" in str(written.value)
    await writer.close()
