"""An imitation of S3 in this process, in memory, that can be told to err.

Enough of the protocol for obstore: objects, ranges, conditional creates, copies, listings,
bulk deletes, multipart uploads. ``trouble`` says how requests fail: ``refuse`` (503 before
anything is done), ``after`` (done, then 500: the caller cannot know), ``slow``, ``cut`` (done,
and the connection ends in the middle of the answer).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import threading
import time
import uuid
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

import uvicorn

BUCKET = "penstock"
_XML = [(b"content-type", b"application/xml")]


class ObjectStore:
    """``start`` serves on a thread of its own; ``url`` and ``options`` are for the cluster."""

    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self.objects: dict[str, bytes] = {}
        #: (mode, share of the requests that it hits), or None.
        self.trouble: tuple[str, float] | None = None
        self.hit = 0
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._random = random.Random(seed)
        self.url = f"s3://{BUCKET}"
        self.options = {
            "endpoint": f"http://{host}:{port}", "access_key_id": "chaos", "secret_access_key": "chaos",
            "region": "us-east-1", "allow_http": "true", "virtual_hosted_style_request": "false",
            "timeout": "5s", "connect_timeout": "2s",
        }  # fmt: skip
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            host=host,
            port=port,
            log_level="critical",
            lifespan="off",
            timeout_keep_alive=600,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    # -- the server ----------------------------------------------------------------------

    async def _serve(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        mode = self._hits()
        if mode == "refuse":
            status, headers, answer = _error(503, "SlowDown")
        else:
            if mode == "slow":
                await asyncio.sleep(self._random.uniform(0.2, 1.5))
            status, headers, answer = self._answer(scope, body)
            if mode == "after":
                status, headers, answer = _error(500, "InternalError")
        head = scope["method"] == "HEAD"
        length = len(answer) + (mode == "cut")
        headers = [*headers, (b"content-length", b"%d" % length)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if mode == "cut":
            await send({"type": "http.response.body", "body": answer[: len(answer) // 2], "more_body": True})
            return
        await send({"type": "http.response.body", "body": b"" if head else answer})

    def _hits(self) -> str | None:
        trouble = self.trouble
        if trouble is None or self._random.random() >= trouble[1]:
            return None
        self.hit += 1
        return trouble[0]

    def _answer(self, scope: dict[str, Any], body: bytes) -> tuple[int, list[Any], bytes]:
        method, headers = scope["method"], dict(scope["headers"])
        query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
        bucket, _, key = unquote(scope["raw_path"].decode().partition("?")[0]).lstrip("/").partition("/")
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        match method:
            case "PUT" if "uploadId" in query:
                self._uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
                return 200, [(b"etag", _etag(body))], b""
            case "PUT" if b"x-amz-copy-source" in headers:
                return self._copy(unquote(headers[b"x-amz-copy-source"].decode()), key)
            case "PUT":
                return self._put(key, body, create=headers.get(b"if-none-match") == b"*")
            case "POST" if "uploads" in query:
                upload = uuid.uuid4().hex
                self._uploads[upload] = {}
                name = f"<UploadId>{upload}</UploadId><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
                return 200, _XML, _document("InitiateMultipartUploadResult", name)
            case "POST" if "uploadId" in query:
                parts = self._uploads.pop(query["uploadId"][0], {})
                data = b"".join(parts[n] for n in sorted(parts))
                status, _, _ = self._put(key, data, create=headers.get(b"if-none-match") == b"*")
                etag = f"<ETag>{_etag(data).decode()}</ETag>"
                return status, _XML, _document("CompleteMultipartUploadResult", etag)
            case "POST" if "delete" in query:
                keys = [unescape(k) for k in re.findall(r"<Key>(.*?)</Key>", body.decode())]
                for name in keys:
                    self.objects.pop(name, None)
                deleted = "".join(f"<Deleted><Key>{escape(k)}</Key></Deleted>" for k in keys)
                return 200, _XML, _document("DeleteResult", deleted)
            case "DELETE":
                if "uploadId" in query:
                    self._uploads.pop(query["uploadId"][0], None)
                else:
                    self.objects.pop(key, None)
                return 204, [], b""
            case "GET" if not key:
                return self._list(query)
            case "GET" | "HEAD":
                return self._get(key, headers)
        return _error(405, "MethodNotAllowed")

    def _put(self, key: str, body: bytes, *, create: bool) -> tuple[int, list[Any], bytes]:
        if create and key in self.objects:
            return _error(412, "PreconditionFailed")
        self.objects[key] = body
        return 200, [(b"etag", _etag(body))], b""

    def _copy(self, source: str, key: str) -> tuple[int, list[Any], bytes]:
        data = self.objects.get(source.lstrip("/").removeprefix(f"{BUCKET}/"))
        if data is None:
            return _error(404, "NoSuchKey")
        self.objects[key] = data
        return 200, _XML, _document("CopyObjectResult", f"<ETag>{_etag(data).decode()}</ETag>")

    def _get(self, key: str, headers: dict[bytes, bytes]) -> tuple[int, list[Any], bytes]:
        data = self.objects.get(key)
        if data is None:
            return _error(404, "NoSuchKey")
        out = [(b"etag", _etag(data)), (b"last-modified", formatdate(usegmt=True).encode())]
        wanted = re.fullmatch(rb"bytes=(\d*)-(\d*)", headers.get(b"range", b""))
        if not wanted:
            return 200, out, data
        first, last = wanted.groups()
        start = int(first) if first else len(data) - int(last)
        stop = int(last) + 1 if first and last else len(data)
        piece = data[start:stop]
        if not piece:
            return _error(416, "InvalidRange")
        place = b"bytes %d-%d/%d" % (start, start + len(piece) - 1, len(data))
        return 206, [*out, (b"content-range", place)], piece

    def _list(self, query: dict[str, list[str]]) -> tuple[int, list[Any], bytes]:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        keys = sorted(k for k in list(self.objects) if k.startswith(prefix) and k > after)
        page, more = keys[:1000], len(keys) > 1000
        text = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(self.objects.get(k, b''))}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag></Contents>"
            for k in page
        )
        text += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
        if more:
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return 200, _XML, _document("ListBucketResult", text)


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


def _etag(data: bytes) -> bytes:
    return b'"%s"' % hashlib.md5(data, usedforsecurity=False).hexdigest().encode()


def _document(name: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'.encode()


def _error(status: int, code: str) -> tuple[int, list[Any], bytes]:
    return status, _XML, _document("Error", f"<Code>{code}</Code><Message>{code}</Message>")
