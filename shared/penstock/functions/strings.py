"""Functions of strings. Positions count code points from 1.

Frequent ones run on whole Arrow arrays; those that no kernel matches exactly run row by row.
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RecordError
from penstock.functions.inference import common_type
from penstock.functions.parsing import parse_double
from penstock.functions.rewrites import SPLIT_TOKENS, TOKEN
from penstock.functions.signature import (
    ANY,
    ARRAY,
    AS_BIGINT,
    AS_INT,
    INTEGER,
    STR,
    STR_OR_BIN,
    STRING,
    FunctionDef,
    Param,
    Resolution,
    alias,
    define,
    define_rows,
    define_values,
    literal_value,
    register,
    resolver,
    rowwise,
    strict,
)  # fmt: skip
from penstock.functions.vector import Scalar, as_column, is_null, storage_values
from penstock.types import logical as t
from penstock.types.arrow_buffers import offsets_and_bytes, recut, validity, value_bytes, value_offsets
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BOOLEAN, INT = t.BooleanType(), t.IntType()
_JOIN_SKIP = pc.JoinOptions(null_handling="skip")


@cache
def _empty() -> pa.StringScalar:
    # Not while importing: the first Arrow scalar imports pandas where that is installed.
    return pa.scalar("", pa.string())


def length_of(type_: t.LogicalType) -> int:
    return type_.length if isinstance(type_, (*t.STRINGS, *t.BINARIES)) else t.MAX_VARCHAR


def varchar_of(index: int) -> Callable[[list[t.LogicalType]], t.LogicalType]:
    """VARCHAR as long as argument ``index`` may be."""
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
    """Position 0 is 1; a negative one counts from the end; a negative length gives None."""
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
            return _first_only(call, lambda array: arrow(array, pattern))
        return rowwise(call, function)

    return bind


def _first_only(call: Call, kernel: Any) -> Any:
    """A strict kernel of the first argument; the others are constants bound already."""
    inner = strict(call, kernel)
    return lambda args, n: inner(args[:1], n)


define(
    "STARTSWITH", [STR_OR_BIN, STR_OR_BIN], BOOLEAN, _bind_affix(pc.starts_with, lambda s, p: s.startswith(p))
)
define("ENDSWITH", [STR_OR_BIN, STR_OR_BIN], BOOLEAN, _bind_affix(pc.ends_with, lambda s, p: s.endswith(p)))


# -- building ------------------------------------------------------------------------


def _bind_concat(call: Call) -> Any:
    def run(args: Sequence[Vector], n: int) -> Vector:
        if any(is_null(a) for a in args):
            return Scalar(call.type, None)
        if isinstance(call.type, t.VarBinaryType):
            return Column(call.type, pc.binary_join_element_wise(*[a.values for a in args], pa.scalar(b"")))
        return Column(call.type, pc.binary_join_element_wise(*[a.values for a in args], _empty()))

    return run


def _concat_type(types: list[t.LogicalType]) -> t.LogicalType:
    total = min(sum(length_of(x) for x in types), t.MAX_VARCHAR)
    if isinstance(types[0], t.BINARIES):
        return t.VarBinaryType(total)
    return t.CharType(total) if all(isinstance(x, t.CharType) for x in types) else t.VarCharType(total)


def _resolve_pipes(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    kinds = {isinstance(x, t.BINARIES) for x in call.types if not isinstance(x, t.NullType)}
    if len(kinds) > 1:
        call.fail("two strings, or two binary strings")
    return resolver([STR_OR_BIN, STR_OR_BIN], _concat_type)(call)


register(FunctionDef("||", _resolve_pipes, _bind_concat))
define("CONCAT", [STR], STRING, _bind_concat, variadic=STR)


def _bind_concat_ws(call: Call) -> Any:
    def run(args: Sequence[Vector], n: int) -> Vector:
        separator, *parts = args
        if is_null(separator):
            return Scalar(call.type, None)
        arrays: list[Any] = [as_column(p, n).values for p in parts]
        if all(a.null_count for a in arrays):
            # Arrow drops a row whose parts are all NULL; it is the empty string.
            missing = np.logical_and.reduce([~as_column(p, n).valid for p in parts])  # type: ignore[operator]
            arrays[0] = pc.if_else(pa.array(missing), _empty(), arrays[0])
        return Column(
            call.type, pc.call_function("binary_join_element_wise", [*arrays, separator.values], _JOIN_SKIP)
        )

    return run


define("CONCAT_WS", [STR, STR], STRING, _bind_concat_ws, variadic=STR)


def _pad(text: str, length: int, pad: str, left: bool) -> str | None:
    if length < 0 or not pad:
        return None
    missing = length - len(text)
    if missing <= 0:
        return text[:length]
    fill = (pad * (missing // len(pad) + 1))[:missing]
    return fill + text if left else text + fill


define_rows("LPAD", [STR, AS_INT, STR], STRING, lambda s, n, p: _pad(s, n, p, True))
define_rows("RPAD", [STR, AS_INT, STR], STRING, lambda s, n, p: _pad(s, n, p, False))
define_rows("REPEAT", [STR, AS_INT], STRING, lambda s, n: s * max(n, 0))
define_values("REVERSE", [STR], STRING, pc.utf8_reverse, nullable=True)


def _bind_replace(call: Call) -> Any:
    search, by = literal_value(call, 1), literal_value(call, 2)
    if search and by is not None:
        return _first_only(call, lambda array: pc.replace_substring(array, pattern=search, replacement=by))
    return rowwise(call, lambda s, a, b: s.replace(a, b))


define("REPLACE", [STR, STR, STR], STRING, _bind_replace)


def _overlay(text: str, by: str, start: int, length: int | None = None) -> str:
    if start <= 0 or start > len(text):
        return text
    length = len(by) if length is None else length
    rest = text[start - 1 + length :] if length > 0 and start + length <= len(text) else ""
    return text[: start - 1] + by + rest


define_rows(
    "OVERLAY", [STR, STR, AS_INT, AS_INT],
    lambda types: t.VarCharType(min(length_of(types[0]) + length_of(types[1]), t.MAX_VARCHAR)),
    _overlay, optional=1,
)  # fmt: skip


def _translate(text: str, source: str, target: str) -> str:
    # The first occurrence of a character in ``source`` counts.
    table: dict[int, str | None] = {}
    for i, char in enumerate(source):
        table.setdefault(ord(char), target[i] if i < len(target) else None)
    return text.translate(table)


define_rows("TRANSLATE", [STR, STR, STR], STRING, _translate)


# -- splitting -----------------------------------------------------------------------


def _split_index(text: str, separator: Any, index: int) -> str | None:
    if not text or index < 0:
        return None
    separator = chr(separator) if isinstance(separator, int) else separator
    tokens = text.split(separator) if separator else _whitespace_tokens(text)
    return tokens[index] if index < len(tokens) else None


def _whitespace_tokens(text: str) -> list[str]:
    return "".join(" " if c.isspace() else c for c in text).split(" ")


_SEPARATOR = Param(
    "a string or a character code",
    lambda type_: (
        INT
        if isinstance(type_, (*t.INTEGERS, t.NullType))
        else type_
        if isinstance(type_, t.STRINGS)
        else None
    ),
)
define_rows("SPLIT_INDEX", [STR, _SEPARATOR, AS_INT], STRING, _split_index, nullable=True)


def _bind_tokens(call: Call) -> Any:
    """Tokens of a text by a constant separator, for ``TOKEN`` alone. With a separator of one byte no tokens
    are made: the value is (text, list of the separator's positions in its bytes)."""
    separator = literal_value(call, 1)
    byte = separator.encode() if separator is not None else b""

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(call.type, None)
        text: Any = args[0].values
        if len(byte) == 1 and isinstance(text, pa.StringArray):
            return Column(call.type, _separated(text, byte[0]))
        return Column(call.type, pc.split_pattern(text, separator))

    return run


def _separated(text: pa.StringArray, byte: int) -> pa.StructArray:
    offsets, data = offsets_and_bytes(text)
    start, end = int(offsets[0]), int(offsets[-1])
    found = np.flatnonzero(data[start:end] == byte).astype(np.int32)
    found += np.int32(start)
    bounds = np.searchsorted(found, offsets).astype(np.int32)
    positions = pa.ListArray.from_arrays(pa.array(bounds), pa.array(found))
    return pa.StructArray.from_arrays([text, positions], ["text", "positions"])


def _token_between(separated: pa.StructArray, index: int) -> pa.Array:
    """Token ``index`` of each text: slices of its bytes, copied once."""
    text, positions = separated.field(0), separated.field(1)
    n = len(text)
    if not n:
        return pa.array([], pa.string())
    offsets = value_offsets(text)
    bounds = positions.offsets.to_numpy()
    at = np.append(positions.values.to_numpy(), np.int32(0))
    first, last = bounds[:-1] + np.int32(index), bounds[1:]
    # An empty string has no tokens.
    found = (first <= last) & (offsets[1:] > offsets[:-1])
    valid = validity(text)
    if valid is not None:
        found &= valid
    nothing = len(at) - 1
    # Start and end of the token one after another: the bytes between two tokens are a string of the same
    # array, which is left out.
    edges = np.empty(2 * n, np.int32)
    edges[0::2] = offsets[:-1] if index == 0 else at[np.minimum(first - 1, nothing)] + np.int32(1)
    edges[1::2] = np.where(first < last, at[np.minimum(first, nothing)], offsets[1:])
    mask = None
    if not found.all():
        mask = ~found
        edges[0::2][mask] = edges[1::2][mask] = offsets[:-1][mask]
    return recut(text, edges).take(pa.array(np.arange(0, 2 * n, 2), mask=mask))


def _bind_token(call: Call) -> Any:
    index = literal_value(call, 1)

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]) or index is None or index < 0:
            return Scalar(call.type, None)
        array: Any = args[0].values
        if pa.types.is_struct(array.type):
            return Column(call.type, _token_between(array, index))
        offsets = array.offsets.to_numpy()
        at = offsets[:-1] + index
        found = at < offsets[1:]
        tokens = array.values.take(pa.array(np.where(found, at, 0), mask=None if found.all() else ~found))
        if index == 0:
            # An empty string has no tokens, and Arrow gives it one that is empty.
            single = np.diff(offsets) == 1
            if single.any():
                empty = (
                    single & Column.from_arrow(BOOLEAN, pc.equal(pc.fill_null(tokens, "x"), _empty())).values
                )
                tokens = pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), tokens)
        return Column(call.type, tokens)

    return run


define(SPLIT_TOKENS, [STR, STR], t.ArrayType(STRING), _bind_tokens, costly=True)
define(TOKEN, [ARRAY, AS_INT], STRING, _bind_token, nullable=True)


def _split(text: str, separator: str) -> list[str]:
    return [] if not text else text.split(separator) if separator else list(text)


define_rows("SPLIT", [STR, STR], t.ArrayType(STRING), _split)


def _str_to_map(text: str, pairs: str = ",", pair: str = "=") -> list[tuple[str, str | None]]:
    import re

    out: dict[str, str | None] = {}
    for entry in re.split(pairs, text):
        key, *value = re.split(pair, entry, maxsplit=1)
        out[key] = value[0] if value else None
    return list(out.items())


define_rows("STR_TO_MAP", [STR, STR, STR], t.MapType(STRING, STRING), _str_to_map, optional=2, nullable=True)


# -- characters, numbers, formats ------------------------------------------------------


def _ascii(text: str) -> int:
    first = text[:1].encode()[:1]
    return int(np.int8(np.uint8(first[0]))) if first else 0


define_rows("ASCII", [STR], INT, _ascii)
define_rows("CHR", [AS_BIGINT], STRING, lambda n: "" if n < 0 else chr(n & 0xFF), nullable=True)
define_rows("BIN", [AS_BIGINT], STRING, lambda n: format(n & ((1 << 64) - 1), "b"))


def _resolve_elt(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if len(call.args) < 2 or INTEGER.accept(call.types[0]) is None:
        call.fail("ELT(an integer, a string, …)")
    common = common_type(call.types[1:])
    if not isinstance(common, (*t.STRINGS, *t.BINARIES)):
        call.fail("strings to choose from")
    return [call.types[0], *[common.with_nullable(x.nullable) for x in call.types[1:]]], common.with_nullable(
        True
    )


def _elt(index: int | None, *values: str) -> str | None:
    return values[index - 1] if index is not None and 1 <= index <= len(values) else None


register(FunctionDef("ELT", _resolve_elt, lambda call: rowwise(call, _elt, nulls=True), costly=True))


def _printf(pattern: str | None, *values: Any) -> str | None:
    if pattern is None:
        return None
    try:
        return pattern.replace("%n", "\n") % tuple("null" if v is None else v for v in values)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"PRINTF cannot format with {pattern!r}: {error}",
            expected="a format whose conversions fit the arguments",
            got=repr(values),
        ) from error


register(
    FunctionDef(
        "PRINTF", resolver([STR], STRING, variadic=ANY, nullable=True),
        lambda call: rowwise(call, _printf, nulls=True), fails=True, costly=True,
    )
)  # fmt: skip


def _is_decimal(text: str) -> bool:
    return parse_double(text) is not None


def _test(name: str, function: Callable[[str], bool]) -> None:
    """A test of a string that is FALSE for NULL."""

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
