"""Functions of strings: case, parts and characters. Positions count code points from 1.

Frequent functions run on whole Arrow arrays; functions without an exactly matching kernel run row by row.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.parsing import parse_double
from penstock.functions.signature import (
    ANY,
    AS_BIGINT,
    AS_INT,
    STR,
    STR_OR_BIN,
    STRING,
    FunctionDef,
    Resolution,
    alias,
    define,
    define_rows,
    define_values,
    literal_value,
    register,
    resolver,
    rowwise,
    strict_first,
)  # fmt: skip
from penstock.functions.vector import Scalar, is_null, storage_values
from penstock.types import logical as t
from penstock.types.arrow_buffers import value_bytes
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BOOLEAN, INT = t.BooleanType(), t.IntType()


@cache
def empty_text() -> pa.StringScalar:
    """The empty string as an Arrow scalar."""
    # This must not run at import time: the first Arrow scalar imports pandas if that is installed.
    return pa.scalar("", pa.string())


def length_of(type_: t.LogicalType) -> int:
    """The declared length of a string or binary type; the greatest length for any other type."""
    return type_.length if isinstance(type_, (*t.STRINGS, *t.BINARIES)) else t.MAX_VARCHAR


def varchar_of(index: int) -> Callable[[list[t.LogicalType]], t.LogicalType]:
    """A function from argument types to a VARCHAR with the length of argument ``index``."""
    return lambda types: t.VarCharType(length_of(types[index]))


def is_ascii(array: pa.StringArray) -> bool:
    """Whether no text has a byte over 127."""
    return int(value_bytes(array).max(initial=0)) < 128


def _map_text(ascii_kernel: Any, function: Callable[[str], str]) -> Any:
    """Arrow's kernel on ASCII, Python's full case mapping on the rest."""

    def kernel(array: Any) -> Any:
        if is_ascii(array):
            return ascii_kernel(array)
        return pa.array([None if v is None else function(v) for v in array.to_pylist()], pa.string())

    return kernel


define_values("CHAR_LENGTH", [STR], INT, pc.utf8_length)
alias("CHARACTER_LENGTH", "CHAR_LENGTH")
define_values("UPPER", [STR], lambda types: types[0], _map_text(pc.ascii_upper, str.upper))
define_values("LOWER", [STR], lambda types: types[0], _map_text(pc.ascii_lower, str.lower))


def _initcap(text: str) -> str:
    out, inside = [], False
    for char in text:
        word = char.isascii() and char.isalnum()
        out.append(char.lower() if word and inside else char.upper() if word else char)
        inside = word
    return "".join(out)


define_rows("INITCAP", [STR], lambda types: types[0], _initcap)


# -- parts of a string ---------------------------------------------------------------


def substring(text: Any, position: int, length: int | None = None) -> Any:
    """SUBSTRING. Position 0 means 1; a negative position counts from the end; a negative length gives None."""
    if length is not None and length < 0:
        return None
    if position < 0:
        start = len(text) + position
        if start < 0:
            return text[:0]
    else:
        start = max(position - 1, 0)
    return text[start:] if length is None else text[start : start + length]


def _bind_substring(call: Call) -> Any:
    position, length = literal_value(call, 1), literal_value(call, 2)
    constant = position is not None and (len(call.args) == 2 or length is not None)
    if not constant or position < 0 or (length or 0) < 0 or isinstance(call.type, t.VarBinaryType):
        return rowwise(call, substring)
    start = max(position - 1, 0)
    stop = None if length is None else min(start + length, t.MAX_VARCHAR)
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(type_, None)
        return Column(type_, pc.utf8_slice_codeunits(args[0].values, start, stop))

    return run


def _substring_type(types: list[t.LogicalType]) -> t.LogicalType:
    length = length_of(types[0])
    return t.VarBinaryType(length) if isinstance(types[0], t.BINARIES) else t.VarCharType(length)


define("SUBSTRING", [STR_OR_BIN, AS_INT, AS_INT], _substring_type, _bind_substring, optional=1, nullable=True)
alias("SUBSTR", "SUBSTRING")
define_rows("LEFT", [STR, AS_INT], varchar_of(0), lambda s, n: s[: max(n, 0)], nullable=True)
define_rows(
    "RIGHT", [STR, AS_INT], varchar_of(0), lambda s, n: s[max(len(s) - max(n, 0), 0) :], nullable=True
)


def _bind_trim(side: str, text: int, chars: int) -> Callable[[Call], Any]:
    """Arguments ``text`` and ``chars`` by position; no ``chars`` = spaces."""
    functions = {"BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}
    kernels = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}

    def bind(call: Call) -> Any:
        where = literal_value(call, 0) if side == "ANY" else side
        given = len(call.args) > chars
        constant = literal_value(call, chars) if given else " "
        if constant:
            kernel = kernels[where]

            def run(args: Sequence[Vector], n: int) -> Vector:
                if is_null(args[text]):
                    return Scalar(call.type, None)
                return Column(call.type, kernel(args[text].values, characters=constant))

            return run
        function = functions[where]
        return rowwise(
            call, lambda *values: function(values[text], values[chars]) if values[chars] else values[text]
        )

    return bind


def _resolve_trim(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(3)
    if call.constant(0, "the side") not in ("BOTH", "LEADING", "TRAILING"):
        call.fail("BOTH, LEADING or TRAILING")
    return resolver([ANY, STR, STR], varchar_of(2))(call)


register(FunctionDef("TRIM", _resolve_trim, _bind_trim("ANY", 2, 1)))
define("LTRIM", [STR, STR], varchar_of(0), _bind_trim("LEADING", 0, 1), optional=1)
define("RTRIM", [STR, STR], varchar_of(0), _bind_trim("TRAILING", 0, 1), optional=1)
define("BTRIM", [STR, STR], STRING, _bind_trim("BOTH", 0, 1), optional=1)


# -- search --------------------------------------------------------------------------


def _locate(needle: str, text: str, start: int = 1) -> int:
    return text.find(needle, max(start, 1) - 1) + 1


define_rows("POSITION", [STR, STR, AS_INT], INT, _locate, optional=1)
define_rows("LOCATE", [STR, STR, AS_INT], INT, _locate, optional=1)
define_rows("INSTR", [STR, STR], INT, lambda text, needle: text.find(needle) + 1)


def _bind_affix(arrow: Any, function: Any) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        pattern = literal_value(call, 1)
        if isinstance(pattern, str) and isinstance(call.args[0].type, t.STRINGS):
            return strict_first(call, lambda array: arrow(array, pattern))
        return rowwise(call, function)

    return bind


define(
    "STARTSWITH", [STR_OR_BIN, STR_OR_BIN], BOOLEAN, _bind_affix(pc.starts_with, lambda s, p: s.startswith(p))
)
define("ENDSWITH", [STR_OR_BIN, STR_OR_BIN], BOOLEAN, _bind_affix(pc.ends_with, lambda s, p: s.endswith(p)))


# -- characters, numbers, tests, addresses ---------------------------------------------


def _ascii(text: str) -> int:
    first = text[:1].encode()[:1]
    return int(np.int8(np.uint8(first[0]))) if first else 0


define_rows("ASCII", [STR], INT, _ascii)
define_rows("CHR", [AS_BIGINT], STRING, lambda n: "" if n < 0 else chr(n & 0xFF), nullable=True)
define_rows("BIN", [AS_BIGINT], STRING, lambda n: format(n & ((1 << 64) - 1), "b"))


def _is_decimal(text: str) -> bool:
    return parse_double(text) is not None


def _test(name: str, function: Callable[[str], bool]) -> None:
    """Define a test of a string that is FALSE for NULL."""

    def bind(call: Call) -> Any:
        def run(args: Sequence[Vector], n: int) -> Vector:
            found = [v is not None and function(v) for v in storage_values(args[0], n)]
            return Column(call.type, np.array(found, np.bool_))

        return run

    define(name, [STR], BOOLEAN, bind)


_test("IS_ALPHA", str.isalpha)
_test("IS_DIGIT", str.isdigit)
_test("IS_DECIMAL", _is_decimal)


def _url_decode(text: str) -> str | None:
    import re

    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        return None
    return unquote_plus(text, errors="replace")


define_rows("URL_ENCODE", [STR], STRING, lambda s: quote_plus(s, safe="*"), nullable=True)
define_rows("URL_DECODE", [STR], STRING, _url_decode, nullable=True)


def _bind_uuid(call: Call) -> Any:
    return lambda args, n: Column(call.type, pa.array([str(uuid.uuid4()) for _ in range(n)], pa.string()))


define("UUID", [], t.CharType(36), _bind_uuid, nullable=False, deterministic=False)
