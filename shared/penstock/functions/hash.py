"""Hashes, encodings and URLs."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from penstock.errors import RecordError
from penstock.functions.signature import (
    ANY,
    AS_INT,
    BIN,
    STR,
    STR_OR_BIN,
    STRING,
    Param,
    define_rows,
)  # fmt: skip
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES = t.VarBinaryType()


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _define_hash(name: str, algorithm: Callable[..., Any], hex_digits: int) -> None:
    define_rows(name, [STR_OR_BIN], t.CharType(hex_digits), lambda v: algorithm(_raw(v)).hexdigest())


for _name, _algorithm, _digits in (
    ("MD5", hashlib.md5, 32), ("SHA1", hashlib.sha1, 40), ("SHA224", hashlib.sha224, 56),
    ("SHA256", hashlib.sha256, 64), ("SHA384", hashlib.sha384, 96), ("SHA512", hashlib.sha512, 128),
):  # fmt: skip
    _define_hash(_name, _algorithm, _digits)

_SHA2 = {224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512}


def _sha2(value: str | bytes, bits: int) -> str:
    if bits not in _SHA2:
        raise RecordError("SHA2 has no such length", expected="224, 256, 384 or 512", got=str(bits))
    return _SHA2[bits](_raw(value)).hexdigest()


define_rows("SHA2", [STR_OR_BIN, AS_INT], t.VarCharType(128), _sha2, fails=True)


def java_hash(value: Any) -> int:
    """Java's hashCode of a string, a number or a boolean."""
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, str):
        units = np.frombuffer(value.encode("utf-16-le", "surrogatepass"), np.uint16)
        out = 0
        for unit in units.tolist():
            out = (31 * out + unit) & 0xFFFFFFFF
    elif isinstance(value, int):
        out = (
            (value ^ (value >> 32)) & 0xFFFFFFFF if not -(1 << 31) <= value < 1 << 31 else value & 0xFFFFFFFF
        )
    elif isinstance(value, float):
        bits = int(np.float64(value).view(np.uint64))
        out = (bits ^ (bits >> 32)) & 0xFFFFFFFF
    else:
        out = java_hash(str(value)) & 0xFFFFFFFF
    return out - (1 << 32) if out >= 1 << 31 else out


define_rows("HASH_CODE", [ANY], t.IntType(), java_hash)


# -- encodings -----------------------------------------------------------------------


_NUMBER_OR_TEXT = Param(
    "an integer, string or binary string",
    lambda type_: (
        t.BigIntType()
        if isinstance(type_, (*t.INTEGERS, t.NullType))
        else type_
        if isinstance(type_, (*t.STRINGS, *t.BINARIES))
        else None
    ),
)


def _hex(value: Any) -> str:
    if isinstance(value, int):
        return format(value & ((1 << 64) - 1), "X")
    return _raw(value).hex().upper()


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text.rjust(len(text) + len(text) % 2, "0"))
    except ValueError:
        return None


define_rows("HEX", [_NUMBER_OR_TEXT], STRING, _hex)
define_rows("UNHEX", [STR], _BYTES, _unhex, nullable=True)
define_rows("TO_BASE64", [STR_OR_BIN], STRING, lambda v: base64.b64encode(_raw(v)).decode())


def _from_base64(value: str | bytes) -> str:
    raw = _raw(value)
    try:
        decoded = base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except binascii.Error as error:
        raise RecordError(f"not base64: {error}", expected="base64 text", got=repr(value)) from error
    return decoded.decode("utf-8", "replace")


define_rows("FROM_BASE64", [STR_OR_BIN], STRING, _from_base64, fails=True)


def _charset(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        raise RecordError(
            f"unknown character set {name!r}", expected="UTF-8, ISO-8859-1 …", got=name
        ) from error


def _encode(text: str, charset: str) -> bytes:
    name = _charset(charset)
    # Java's UTF-16 is big-endian with a mark; Python's is the machine's order.
    if name == "utf-16":
        return b"\xfe\xff" + text.encode("utf-16-be")
    return text.encode(name, "replace")


define_rows("ENCODE", [STR, STR], _BYTES, _encode, fails=True)
define_rows(
    "DECODE", [BIN, STR], STRING, lambda v, charset: v.decode(_charset(charset), "replace"), fails=True
)


# -- URLs ------------------------------------------------------------------------------


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    split = urlsplit(url)
    if not split.scheme:
        return None
    if part == "QUERY" and key is not None:
        found = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", split.query)
        return found[1] if found else None
    user, _, _ = split.netloc.rpartition("@")
    values = {
        "HOST": split.hostname, "PATH": split.path, "QUERY": split.query or None, "REF": split.fragment or None,
        "PROTOCOL": split.scheme, "AUTHORITY": split.netloc, "USERINFO": user or None,
        "FILE": split.path + (f"?{split.query}" if split.query else ""),
    }  # fmt: skip
    return values.get(part)


define_rows("PARSE_URL", [STR, STR, STR], STRING, _parse_url, optional=1, nullable=True)
