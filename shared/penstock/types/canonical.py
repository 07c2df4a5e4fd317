"""Keys of any Python type: which keys are equal, and the bytes that decide their key group.

A key without a declared type is compared by its *canonical bytes*, not by ``hash`` and ``==`` of its class:
these may differ between processes, and may change with the program. Two keys are equal if their types and their
parts are equal:

* int, float, bool, str, bytes, None, Decimal, date, time, datetime, timedelta, UUID: the value; an
  int and a float are different keys, −0.0 is 0.0, NaN is one key, Decimal('1.0') is Decimal('1.00'),
  a datetime with a zone is its instant;
* tuple (named ones too), list, set, dict: their elements; sets and dicts without order;
* a member of an enumeration: its class and its value; IntEnum, StrEnum and other subclasses of a
  type above: the value, as Python compares them;
* dataclass, msgspec Struct, attrs class, pydantic model: the class (module and qualified name) and
  the fields that its equality compares.

Any other class is refused by name. Without equality every record would have a key of its own, and the fields
that a hand-written ``__eq__`` compares are unknown here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import struct
import sys
import types
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_EPOCH = dt.datetime(1970, 1, 1)
_US = dt.timedelta(microseconds=1)
#: Python compares and hashes values of these types in the same way as canonical bytes would.
_DIRECT = frozenset({str, bytes, int, type(None)})


class RawKey:
    """A key that compares and hashes by its canonical bytes. ``value`` is the user's object."""

    __slots__ = ("_hash", "canonical", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.canonical = canonical(value)
        # The hash is used only in this process. A member of an IntEnum has the hash of the int that it equals.
        cls: Any = type(value)
        direct = _direct(cls)
        self._hash = hash(self.canonical if direct is None else direct(value))

    def __eq__(self, other: object) -> bool:
        if type(other) is RawKey:
            return self.canonical == other.canonical
        return type(other) in _DIRECT and self.canonical == canonical(other)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.value)


def dictionary_key(value: Any) -> Any:
    """The key that stands for a RAW value in dictionaries: the value itself, or a ``RawKey``."""
    return value if type(value) in _DIRECT else RawKey(value)


def equal_keys(a: Any, b: Any) -> bool:
    """Whether two RAW values are the same key; values that cannot be keys are compared by ``==``."""
    if a is b:
        return True
    if type(a) in _DIRECT and type(a) is type(b):
        return bool(a == b)
    try:
        return canonical(a) == canonical(b)
    except UnsupportedError:
        return bool(a == b)


def user_key(key: Any) -> Any:
    """The user's key for a result of ``dictionary_key``, also inside a key of several parts."""
    if type(key) is RawKey:
        return key.value
    if type(key) is tuple:
        return tuple(map(user_key, key))
    return key


def canonical(value: Any) -> bytes:
    """The canonical bytes of a key.

    Raises:
        UnsupportedError: the class of the value, or of a part, cannot be a key; the error names it.
    """
    out = bytearray()
    try:
        _write(value, out)
    except RecursionError:
        raise _refused(value, "it contains itself, or is nested too deeply") from None
    return bytes(out)


def _write(value: Any, out: bytearray) -> None:
    cls: Any = type(value)
    writer = _writer(cls)
    if writer is None:
        raise _refused(value, _why_not(cls))
    writer(value, out)


def _sized(tag: bytes, data: bytes, out: bytearray) -> None:
    out += tag
    out += len(data).to_bytes(4, "little")
    out += data


def _int(value: int, out: bytearray) -> None:
    number = int(value)
    _sized(b"i", number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True), out)


def _float(value: float, out: bytearray) -> None:
    number = float(value)
    out += b"f" + struct.pack("<d", float("nan") if number != number else number + 0.0)


def _decimal(value: decimal.Decimal, out: bytearray) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return _sized(b"d", str(value).encode(), out)
    number = int("".join(map(str, digits)))
    while number and number % 10 == 0:
        number, exponent = number // 10, exponent + 1
    text = f"{'-' if sign and number else ''}{number}e{exponent if number else 0}"
    return _sized(b"d", text.encode(), out)


def _datetime(value: dt.datetime, out: bytearray) -> None:
    offset = value.utcoffset()
    local = value.replace(tzinfo=None, fold=0)
    if offset is None:
        out += b"t" + ((local - _EPOCH) // _US).to_bytes(8, "little", signed=True)
    else:
        out += b"z" + ((local - offset - _EPOCH) // _US).to_bytes(8, "little", signed=True)


def _time(value: dt.time, out: bytearray) -> None:
    offset = value.utcoffset()
    _sized(b"h", f"{value.replace(tzinfo=None, fold=0).isoformat()} {offset}".encode(), out)


def _items(tag: bytes, items: Sequence[Any], out: bytearray) -> None:
    out += tag
    out += len(items).to_bytes(4, "little")
    for item in items:
        _write(item, out)


def _unordered(tag: bytes, items: Iterable[bytes], out: bytearray) -> None:
    _sized(tag, b"".join(sorted(items)), out)


def _set(value: Iterable[Any], out: bytearray) -> None:
    _unordered(b"S", (canonical(item) for item in value), out)


def _dict(value: dict[Any, Any], out: bytearray) -> None:
    _unordered(b"D", (canonical((k, v)) for k, v in value.items()), out)


_WRITERS: dict[type, Callable[[Any, bytearray], Any]] = {
    type(None): lambda value, out: out.extend(b"n"),
    bool: lambda value, out: out.extend(b"T" if value else b"F"),
    int: _int,
    float: _float,
    str: lambda value, out: _sized(b"s", str.__str__(value).encode("utf-8", "surrogatepass"), out),
    bytes: lambda value, out: _sized(b"b", bytes(value), out),
    decimal.Decimal: _decimal,
    dt.datetime: _datetime,  # before date: datetime is a subclass of date
    dt.date: lambda value, out: out.extend(b"a" + value.toordinal().to_bytes(4, "little")),
    dt.time: _time,
    dt.timedelta: lambda value, out: out.extend(b"u" + (value // _US).to_bytes(10, "little", signed=True)),
    uuid.UUID: lambda value, out: out.extend(b"g" + value.bytes),
    tuple: lambda value, out: _items(b"(", value, out),
    list: lambda value, out: _items(b"[", value, out),
    frozenset: _set,
    set: _set,
    dict: _dict,
}


@lru_cache(maxsize=4096)
def _writer(cls: type) -> Callable[[Any, bytearray], Any] | None:
    """The function that writes the values of a class; None if its values cannot be keys."""
    found = _WRITERS.get(cls)
    if found is not None:
        return found
    fields = _compared_fields(cls)
    if fields is not None:
        head = _head(cls)
        return lambda value, out: _items(b"c" + head, fields(value), out)
    for base, writer in _WRITERS.items():
        if issubclass(cls, base) and cls.__eq__ is base.__eq__:  # type: ignore[comparison-overlap]  # plain functions of the classes
            return writer
    if issubclass(cls, enum.Enum) and cls.__eq__ is object.__eq__:
        head = _head(cls)
        return lambda value, out: _items(b"e" + head, (value.value,), out)
    if _is_numpy(cls):
        return lambda value, out: _write(value.item(), out)
    return None


@lru_cache(maxsize=4096)
def _direct(cls: type) -> Callable[[Any], Any] | None:
    """A function from values of a class to the str, bytes or int that they equal; None if they equal none."""
    writer = _writer(cls)
    for base, to in ((str, str.__str__), (bytes, bytes), (int, int)):
        if writer is _WRITERS[base]:
            return to
    if _is_numpy(cls) and cls.__name__.startswith(("int", "uint", "str", "bytes")):
        return lambda value: value.item()
    return None


def python_number(value: Any) -> Any:
    """NumPy's numbers and strings as Python's; any other value unchanged."""
    return value.item() if _is_numpy(type(value)) else value


def _head(cls: Any) -> bytes:
    out = bytearray()
    _sized(b"", f"{cls.__module__}.{cls.__qualname__}".encode(), out)
    return bytes(out)


def _is_numpy(cls: type) -> bool:
    return issubclass(cls, (np.bool_, np.integer, np.floating, np.str_, np.bytes_))


def _compared_fields(cls: type) -> Callable[[Any], list[Any]] | None:
    """A function that returns the field values which the generated equality of a class compares; None without
    such equality."""
    if dataclasses.is_dataclass(cls):
        names = [f.name for f in dataclasses.fields(cls) if f.compare]
        if not cls.__dataclass_params__.eq or not _is_generated(cls, names):  # type: ignore[attr-defined]
            return None
        return lambda value: [getattr(value, name) for name in names]
    if hasattr(cls, "__struct_config__"):
        # A hand-written __eq__ is a function, a generated one is not.
        if not cls.__struct_config__.eq or not isinstance(cls.__eq__, types.WrapperDescriptorType):
            return None
        fields = cls.__struct_fields__  # type: ignore[attr-defined]
        return lambda value: [getattr(value, name) for name in fields]
    if "__attrs_attrs__" in vars(cls):
        chosen = [a.name for a in cls.__attrs_attrs__ if a.eq]  # type: ignore[attr-defined]
        if not _is_generated(cls, chosen):
            return None
        return lambda value: [getattr(value, name) for name in chosen]
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        if cls.__eq__ is not pydantic.BaseModel.__eq__:
            return None
        names = list(cls.model_fields)  # type: ignore[attr-defined]
        return lambda value: [
            *(getattr(value, name) for name in names),
            value.__pydantic_extra__,
            value.__pydantic_private__,
        ]
    return None


def _is_generated(cls: type, fields: Sequence[str]) -> bool:
    """Whether a class decorator generated ``__eq__``: its code is in no file, and reads exactly these fields."""
    code = getattr(cls.__eq__, "__code__", None)
    return (
        code is not None
        and code.co_filename.startswith(("<string>", "<attrs"))
        and set(code.co_names) - {"__class__", "NotImplemented"} == set(fields)
    )


def _why_not(cls: type) -> str:
    if cls.__eq__ is object.__eq__:  # type: ignore[comparison-overlap]  # plain functions of the classes
        return "it has no equality by value: every record would be a key of its own"
    return "it compares by an __eq__ of its own, which other processes cannot be sure of"


def _refused(value: Any, why: str) -> UnsupportedError:
    cls = type(value)
    return UnsupportedError(
        f"a value of the class '{cls.__module__}.{cls.__qualname__}' cannot be a key: {why}",
        expected="str, int, float, bool, bytes, Decimal, date, time, datetime, timedelta, UUID, None, an Enum, a "
        "dataclass, msgspec Struct, attrs class or pydantic model, or a tuple, list, set or dict of them",
        got=f"{value!r:.80}",
        remedy="return the fields that make it equal as a tuple from the key selector, or make the class a "
        "dataclass",
    )
