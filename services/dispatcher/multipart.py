"""The file in a body of ``multipart/form-data``, as browsers, curl and Flink's clients send one. Pure."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser

from penstock.errors import SpecError

_BREAK = b"\r\n"


def uploaded_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """(file name without folders, content) of the one part that is a file. Raises SpecError for another body."""
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_param("boundary")
    if head.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise SpecError(
            "no file is uploaded",
            expected="multipart/form-data with a boundary",
            got=repr(content_type[:120]),
            where="header 'Content-Type'",
            remedy="curl -F jarfile=@jobs.zip URL/jars/upload",
        )
    found = [part for part in _parts(body, boundary.encode("latin-1", "replace")) if part[0]]
    if len(found) != 1:
        raise SpecError("an upload has one file", expected="one part with a file name", got=str(len(found)))
    name, content = found[0]
    return name.replace("\\", "/").rsplit("/", 1)[-1], content


def _parts(body: bytes, boundary: bytes) -> list[tuple[str, bytes]]:
    """(file name, or an empty text, and content) of each part."""
    delimiter = _BREAK + b"--" + boundary
    pieces = (_BREAK + body).split(delimiter)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise SpecError(
            "the uploaded body is not whole",
            expected="parts up to the closing boundary",
            got=f"{len(body)} bytes",
        )
    parts = []
    for piece in pieces[1:-1]:
        head, separator, content = piece.removeprefix(_BREAK).partition(_BREAK + _BREAK)
        if not separator:
            raise SpecError("a part of the uploaded body has no head", got=repr(piece[:80]))
        parts.append((BytesHeaderParser().parsebytes(head + _BREAK + _BREAK).get_filename() or "", content))
    return parts
