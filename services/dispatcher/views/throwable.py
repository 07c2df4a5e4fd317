"""Causes of failures for Flink's clients, which read them as serialized Java objects.

The object is a ``SerializedThrowable`` with a message and a traceback as text, in Java's serialization
stream protocol (version 5). It names only classes that every client has.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import msgspec

from penstock_services.dispatcher.views.common import Kebab

_HEAD = b"\xac\xed\x00\x05"
_NULL, _CLASS, _OBJECT, _STRING, _ARRAY, _BLOCK_END, _LONG_STRING = (
    b"\x70", b"\x72", b"\x73", b"\x74", b"\x75", b"\x78", b"\x7c",
)  # fmt: skip
#: Flags of a class: serializable; and the same for a class whose objects write data of their own at the end
#: (here none).
_SERIALIZABLE, _WRITES = 2, 3
_TEXT = "Ljava/lang/String;"


class Failure(Kebab, frozen=True, kw_only=True):
    """``class``: that of the error. ``stack-trace``: the error as text. ``serialized-throwable``: the same
    for Java."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: bytes
    # Of ours: the error as data.
    error: dict[str, Any] | None = None


def failure(kind: str, text: str, error: dict[str, Any] | None = None) -> Failure:
    """``kind``: the class or the code of the error; ``text``: its text."""
    return Failure(class_=kind, stack_trace=text, serialized_throwable=serialized(kind, text), error=error)


def serialized(kind: str, text: str) -> bytes:
    """A ``SerializedThrowable`` whose message is ``text``."""
    # The object does not contain the original exception, so the client uses the text.
    nothing = _ARRAY + _class("[B", -5984413125824719648, _SERIALIZABLE, ()) + struct.pack(">i", 0)
    values = (_string(text), _string(kind), nothing)
    return _HEAD + _OBJECT + _throwable_class() + _throwable_values(text) + b"".join(values)


def _throwable_values(message: str) -> bytes:
    """The fields of ``Throwable``: cause, message, stack trace, suppressed exceptions."""
    frames = _ARRAY + _class("[Ljava.lang.StackTraceElement;", 163864874655228473, _SERIALIZABLE, ())
    none = _OBJECT + _class("java.util.Collections$EmptyList", 8842843931221139166, _SERIALIZABLE, ())
    return _NULL + _string(message) + frames + struct.pack(">i", 0) + none + _BLOCK_END


@cache
def _throwable_class() -> bytes:
    throwable = _class(
        "java.lang.Throwable",
        -3042686055658047285,
        _WRITES,
        (
            ("L", "cause", "Ljava/lang/Throwable;"),
            ("L", "detailMessage", _TEXT),
            ("[", "stackTrace", "[Ljava/lang/StackTraceElement;"),
            ("L", "suppressedExceptions", "Ljava/util/List;"),
        ),
    )
    exception = _class("java.lang.Exception", -3387516993124229948, _SERIALIZABLE, (), throwable)
    fields = (
        ("L", "fullStringifiedStackTrace", _TEXT),
        ("L", "originalErrorClassName", _TEXT),
        ("[", "serializedException", "[B"),
    )
    name = "org.apache.flink.util.SerializedThrowable"
    return _class(name, 7284183123441947635, _SERIALIZABLE, fields, exception)


def _class(
    name: str, uid: int, flags: int, fields: tuple[tuple[str, str, str], ...], parent: bytes = _NULL
) -> bytes:
    """The description of a class. ``fields``: (type's letter, name, type) in the protocol's order."""
    described = b"".join(letter.encode() + _utf(field) + _string(of) for letter, field, of in fields)
    head = _CLASS + _utf(name) + struct.pack(">qBH", uid, flags, len(fields))
    return head + described + _BLOCK_END + parent


def _utf(text: str) -> bytes:
    data = modified_utf8(text)
    return struct.pack(">H", len(data)) + data


def _string(text: str) -> bytes:
    data = modified_utf8(text)
    if len(data) > 0xFFFF:
        return _LONG_STRING + struct.pack(">q", len(data)) + data
    return _STRING + struct.pack(">H", len(data)) + data


def modified_utf8(text: str) -> bytes:
    """The text in Java's modified UTF-8: NUL is two bytes, and a character above U+FFFF is two surrogates of
    three bytes each."""
    out = bytearray()
    for char in text:
        code = ord(char)
        if code == 0:
            out += b"\xc0\x80"
        elif code > 0xFFFF:
            for unit in struct.unpack(">HH", char.encode("utf-16-be")):
                out += chr(unit).encode("utf-8", "surrogatepass")
        else:
            out += char.encode("utf-8", "surrogatepass")
    return bytes(out)
