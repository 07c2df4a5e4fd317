"""The S3 way, against an imitation of S3 in this process: one that honours conditional
creates, and one that overwrites silently, as some do.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from penstock.errors import ObjectStoreError
from penstock.store import job_log, open_store, probe_conditional_create
from penstock.store.objects import ObstoreStore

LISTING = """<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"""
ENTRY = (
    "<Contents><Key>{}</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<ETag>x</ETag></Contents>"
)


class S3(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def key(self):
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if (
            self.server.honest
            and self.headers.get("If-None-Match") == "*"
            and self.key in self.server.objects
        ):
            return self.answer(412)
        self.server.objects[self.key] = data
        return self.answer(200, ETag='"1"')

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            prefix = query.get("prefix", [""])[0]
            found = sorted((k, v) for k, v in self.server.objects.items() if k.startswith(prefix))
            text = LISTING.format("".join(ENTRY.format(k, len(v)) for k, v in found))
            return self.answer(200, text.encode(), Content_Type="application/xml")
        if (data := self.server.objects.get(self.key)) is None:
            return self.answer(404)
        headers = {"ETag": '"1"', "Last_Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if wanted := self.headers.get("Range"):
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            last = min(last, len(data) - 1)
            headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            return self.answer(206, data[first : last + 1], **headers)
        return self.answer(200, data, **headers)

    def do_POST(self):  # delete many
        import re

        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>(.*?)</Key>", body)
        for key in keys:
            self.server.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self.answer(200, f'<?xml version="1.0"?><DeleteResult>{deleted}</DeleteResult>'.encode())


@pytest.fixture(params=[True])
def store(request):
    server = ThreadingHTTPServer(("127.0.0.1", 0), S3)
    server.objects, server.honest = {}, request.param
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    options = {
        "endpoint": f"http://127.0.0.1:{server.server_port}",
        "access_key_id": "key",
        "secret_access_key": "secret",
        "region": "us-east-1",
        "allow_http": "true",
        "virtual_hosted_style_request": "false",
    }
    made = open_store("s3://bucket/some/prefix", options)
    made.server = server
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


async def test_the_port_on_s3(store):
    assert isinstance(store.base, ObstoreStore)
    await store.put("a/1", b"hello")
    assert list(store.server.objects) == ["some/prefix/a/1"]
    assert await store.get("a/1") == b"hello"
    assert await store.get_range("a/1", 1, 3) == b"ell"
    assert await store.create("a/2", b"x") is True
    assert await store.create("a/2", b"y") is False
    assert await store.list("a/") == [("a/1", 5), ("a/2", 1)]
    await store.delete(["a/1", "a/absent"])
    assert await store.list("") == [("a/2", 1)]
    with pytest.raises(KeyError):
        await store.get("a/1")


async def test_the_decision_log_on_s3(store):
    await probe_conditional_create(store)
    assert await job_log(store, "j").lead("a", 1) == 1
    assert await job_log(store, "j").lead("b", 2) == 2


@pytest.mark.parametrize("store", [False], indirect=True)
async def test_an_imitation_that_overwrites_is_refused(store):
    with pytest.raises(ObjectStoreError, match="does not honour conditional creates"):
        await probe_conditional_create(store)


def test_an_unknown_option_is_named():
    with pytest.raises(ObjectStoreError, match="bogus_key") as err:
        open_store("s3://b/p", {"bogus_key": "1"})
    assert "Debug" not in str(err.value)
