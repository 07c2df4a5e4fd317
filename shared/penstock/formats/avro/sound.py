"""Checks strictly whether bytes are an Avro record.

fastavro is fast but accepts some bytes that are no record: −1 as the number of a branch, any byte as a boolean,
a negative length. So the decoded value is encoded again; if the bytes differ from the original, the original is
checked here byte by byte.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro

_FIXED_BYTES = {"null": 0, "float": 4, "double": 8}


def check(data: bytes, schema: Any, record: Any) -> None:
    """Raise ValueError unless ``data`` is exactly one record of ``schema``.

    Args:
        data: The bytes.
        schema: A schema as ``fastavro.parse_schema`` gives it.
        record: The value that fastavro decoded from the bytes.
    """
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, record)
    if again.getvalue() == data:
        return
    walk = _Walk(data)
    walk.value(schema)
    if walk.at != len(data):
        raise ValueError(f"the record ends at byte {walk.at} of {len(data)}")


class _Walk:
    """Reads the bytes from left to right. ``at`` is the offset of the next byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._named: dict[str, Any] = {}
        self.at = 0

    def value(self, schema: Any) -> None:
        if isinstance(schema, list):
            self.value(schema[self._index(len(schema), "branch of a union")])
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in self._named:
            self.value(self._named[kind])
            return
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = schema
        match kind:
            case "record":
                for field in schema["fields"]:
                    self.value(field["type"])
            case "int" | "long":
                self._number(5 if kind == "int" else 10)
            case "string":
                self._skip(self._length()).decode()
            case "bytes":
                self._skip(self._length())
            case "fixed":
                self._skip(schema["size"])
            case "boolean":
                if self._skip(1) not in (b"\0", b"\1"):
                    raise ValueError(f"byte {self.at - 1} is no boolean")
            case "enum":
                self._index(len(schema["symbols"]), "symbol of an enum")
            case "array":
                self._blocks(lambda: self.value(schema["items"]))
            case "map":
                self._blocks(lambda: self._entry(schema["values"]))
            case _ if kind in _FIXED_BYTES:
                self._skip(_FIXED_BYTES[kind])
            case _:
                self.value(kind)  # {"type": {…}}

    def _entry(self, values: Any) -> None:
        self._skip(self._length()).decode()
        self.value(values)

    def _blocks(self, item: Any) -> None:
        while count := self._number(10):
            end = None
            if count < 0:
                size, count = self._length(), -count
                end = self.at + size
            for _ in range(count):
                item()
            if end is not None and end != self.at:
                raise ValueError(f"a block ends at byte {self.at}, not at byte {end} as its size says")

    def _index(self, count: int, what: str) -> int:
        index = self._number(10)
        if not 0 <= index < count:
            raise ValueError(f"there is no {what} with the number {index}")
        return index

    def _length(self) -> int:
        length = self._number(10)
        if length < 0:
            raise ValueError(f"a length of {length} bytes")
        return length

    def _number(self, most: int) -> int:
        value = 0
        for i in range(most):
            byte = self._skip(1)[0]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError(f"a number of more than {most} bytes")

    def _skip(self, count: int) -> bytes:
        found = self._data[self.at : self.at + count]
        if len(found) < count:
            raise EOFError(f"{count} bytes are wanted at byte {self.at}, {len(found)} are there")
        self.at += count
        return found
