"""Functions that build a string from others: concatenate, pad, repeat, replace, choose, format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RecordError
from penstock.functions.inference import common_type
from penstock.functions.signature import (
    ANY,
    AS_INT,
    INTEGER,
    STR,
    STR_OR_BIN,
    STRING,
    FunctionDef,
    Resolution,
    define,
    define_rows,
    define_values,
    literal_value,
    register,
    resolver,
    rowwise,
    strict_first,
)  # fmt: skip
from penstock.functions.strings import empty_text, length_of
from penstock.functions.vector import Scalar, as_column, is_null
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector


_JOIN_SKIP = pc.JoinOptions(null_handling="skip")


def _bind_concat(call: Call) -> Any:
    def run(args: Sequence[Vector], n: int) -> Vector:
        if any(is_null(a) for a in args):
            return Scalar(call.type, None)
        if isinstance(call.type, t.VarBinaryType):
            return Column(call.type, pc.binary_join_element_wise(*[a.values for a in args], pa.scalar(b"")))
        return Column(call.type, pc.binary_join_element_wise(*[a.values for a in args], empty_text()))

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
            arrays[0] = pc.if_else(pa.array(missing), empty_text(), arrays[0])
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
        return strict_first(call, lambda array: pc.replace_substring(array, pattern=search, replacement=by))
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
