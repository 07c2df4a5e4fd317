"""Functions that split a string: by index, into tokens, into an array, into a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.rewrites import SPLIT_TOKENS, TOKEN
from penstock.functions.signature import (
    ARRAY,
    AS_INT,
    STR,
    STRING,
    Param,
    define,
    define_rows,
    literal_value,
)  # fmt: skip
from penstock.functions.strings import empty_text
from penstock.functions.vector import Scalar, is_null
from penstock.types import logical as t
from penstock.types.arrow_buffers import offsets_and_bytes, recut, validity, value_offsets
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector


BOOLEAN, INT = t.BooleanType(), t.IntType()


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
    """The tokens of a text by a constant separator, as input of ``TOKEN`` only.

    For a separator of one byte no tokens are made: the value is (text, positions of the separator in its
    bytes).
    """
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
                    single
                    & Column.from_arrow(BOOLEAN, pc.equal(pc.fill_null(tokens, "x"), empty_text())).values
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
