"""An S3 that accepts ``If-None-Match: *`` and overwrites all the same, as some imitations
do. Runs in a container of its own; standard library only.
"""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Overwriting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes] = {}

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        self._answer(404) if found is None else self._answer(200, found)

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self._answer(204)

    def do_POST(self) -> None:  # delete many
        keys = re.findall(rb"<Key>.*?</Key>", self.rfile.read(int(self.headers["Content-Length"])))
        deleted = b"".join(b"<Deleted>" + key + b"</Deleted>" for key in keys)
        self._answer(200, b"<DeleteResult>" + deleted + b"</DeleteResult>")


if __name__ == "__main__":
    ThreadingHTTPServer(("0.0.0.0", 9000), Overwriting).serve_forever()
