"""LIKE, SIMILAR TO and the REGEXP functions.

Patterns are Java's. A constant pattern runs in Arrow (RE2) where RE2 has the same meaning,
else in Python's ``re``; an invalid pattern gives NULL (FALSE for REGEXP), as in Flink.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RecordError
from penstock.functions.signature import (
    AS_INT,
    STR,
    STRING,
    define,
    define_rows,
    literal_value,
    rowwise,
)  # fmt: skip
from penstock.functions.vector import Scalar, is_null, merge_valid
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BOOLEAN, INT = t.BooleanType(), t.IntType()


# -- LIKE and SIMILAR TO -----------------------------------------------------------------


def like_tokens(pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    """(character, is a wildcard) of a LIKE pattern; RecordError on a bad escape."""
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if escape and char == escape:
            following = pattern[i + 1 : i + 2]
            if following not in ("%", "_", escape) or not following:
                raise RecordError(
                    f"invalid escape sequence in {pattern!r} at {i}",
                    expected=f"{escape!r} before %, _ or {escape!r}",
                    got=pattern[i : i + 2],
                )
            out.append((following, False))
            i += 2
            continue
        out.append((char, char in "%_"))
        i += 1
    return out


def like_regex(pattern: str, escape: str | None = None) -> str:
    """The Python regular expression of a LIKE pattern. Raises RecordError for a bad escape."""
    parts = [
        (".*" if char == "%" else ".") if wild else re.escape(char)
        for char, wild in like_tokens(pattern, escape)
    ]
    return rf"(?s)\A(?:{''.join(parts)})\z"


def _simple_like(pattern: str, escape: str | None) -> Callable[[Any], Any] | None:
    """A kernel without a regular expression for x, x%, %x and %x%."""
    tokens = like_tokens(pattern, escape)
    if any(char == "_" and wild for char, wild in tokens):
        return None
    leading = bool(tokens) and tokens[0] == ("%", True)
    while tokens and tokens[0] == ("%", True):
        tokens.pop(0)
    trailing = bool(tokens) and tokens[-1] == ("%", True)
    while tokens and tokens[-1] == ("%", True):
        tokens.pop()
    if any(wild for _, wild in tokens):
        return None
    text = "".join(char for char, _ in tokens)
    if leading and not text:
        return lambda array: pc.is_valid(array)
    if leading and trailing:
        return lambda array: pc.match_substring(array, text)
    if leading:
        return lambda array: pc.ends_with(array, text)
    if trailing:
        return lambda array: pc.starts_with(array, text)
    scalar = pa.scalar(text, pa.string())
    return lambda array: pc.equal(array, scalar)


@lru_cache(maxsize=1024)
def _python_like(pattern: str, escape: str | None) -> re.Pattern[str]:
    return re.compile(like_regex(pattern, escape).replace(r"\z", r"\Z"))


def _match(call: Call, kernel: Callable[[Any], Any], negate: bool) -> Any:
    """A strict test of the first argument by an Arrow kernel."""
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if any(is_null(a) for a in args):
            return Scalar(type_, None)
        found = Column.from_arrow(type_, kernel(args[0].values)).values
        return Column(type_, ~found if negate else found, merge_valid(args[:1]))

    return run


def _bind_like(negate: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        pattern, escape = literal_value(call, 1), literal_value(call, 2)
        if pattern is not None and (len(call.args) == 2 or escape):
            try:
                kernel = _simple_like(pattern, escape)
                regex = like_regex(pattern, escape)
            except RecordError as error:
                return _raiser(error)
            return _match(call, kernel or (lambda array: pc.match_substring_regex(array, regex)), negate)
        return rowwise(call, lambda s, p, e=None: bool(_python_like(p, e).match(s)) is not negate)

    return bind


def _raiser(error: RecordError) -> Any:
    def run(args: Sequence[Vector], n: int) -> Vector:
        raise error

    return run


def similar_regex(pattern: str, escape: str | None = None) -> str:
    """SQL's regular expressions to Python's: % and _ are wildcards outside brackets."""
    out, i, bracket = [], 0, False
    while i < len(pattern):
        char = pattern[i]
        if escape and char == escape:
            out.append(re.escape(pattern[i + 1 : i + 2]))
            i += 2
            continue
        if bracket:
            bracket = char != "]"
            out.append("\\\\" if char == "\\" else char)
        elif char == "[":
            bracket = True
            out.append(char)
        elif char == "%":
            out.append(".*")
        elif char == "_":
            out.append(".")
        elif char in ".^$\\":
            out.append("\\" + char)
        else:
            out.append(char)
        i += 1
    return rf"(?s)\A(?:{''.join(out)})\Z"


@lru_cache(maxsize=1024)
def _python_similar(pattern: str, escape: str | None) -> re.Pattern[str]:
    try:
        return re.compile(similar_regex(pattern, escape))
    except re.error as error:
        raise RecordError(f"not a pattern for SIMILAR TO: {pattern!r}", got=str(error)) from error


def _bind_similar(negate: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        return rowwise(call, lambda s, p, e=None: bool(_python_similar(p, e).match(s)) is not negate)

    return bind


for _negate in (False, True):
    _not = "NOT " if _negate else ""
    define(
        f"{_not}LIKE",
        [STR, STR, STR],
        BOOLEAN,
        _bind_like(_negate),
        optional=1,
        fails=lambda call: len(call.args) > 2,
    )
    define(
        f"{_not}SIMILAR TO",
        [STR, STR, STR],
        BOOLEAN,
        _bind_similar(_negate),
        optional=1,
        fails=True,
        costly=True,
    )


# -- Java patterns -----------------------------------------------------------------------


@lru_cache(maxsize=1024)
def java_pattern(pattern: str) -> re.Pattern[str] | None:
    """Python's pattern for a Java pattern; None if it is invalid."""
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern), re.ASCII)
    except re.error:
        return None


def only_group(pattern: str, group: int) -> str | None:
    """The pattern with group ``group`` as its only capturing one, named g; None without it."""
    out, count, i, bracket = [], 0, 0, False
    if group == 0:
        out.append("(?P<g>")
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            out.append(pattern[i : i + 2])
            i += 2
            continue
        if char == "[":
            bracket = True
        elif char == "]":
            bracket = False
        if char == "(" and not bracket:
            named = re.match(r"\(\?P?<(?![=!])\w+>", pattern[i:])
            if named or pattern[i + 1 : i + 2] != "?":
                count += 1
                out.append("(?P<g>" if count == group else "(?:")
                i += named.end() if named else 1
                continue
        out.append(char)
        i += 1
    if group == 0:
        out.append(")")
    return "".join(out) if count >= group else None


def _re2(pattern: str) -> bool:
    """Whether RE2 takes the pattern (it has no look-around and no back-references)."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowException:
        return False
    return True


def _extract(text: str, pattern: str, group: int = 0) -> str | None:
    compiled = java_pattern(pattern)
    if compiled is None or group < 0 or group > compiled.groups:
        return None
    match = compiled.search(text)
    return None if match is None else match[group]


def _bind_extract(call: Call) -> Any:
    pattern = literal_value(call, 1)
    group = 0 if len(call.args) == 2 else literal_value(call, 2)
    if not isinstance(pattern, str) or group is None or group < 0:
        return rowwise(call, _extract)
    rewritten = None if java_pattern(pattern) is None else only_group(pattern, group)
    if rewritten is None:
        return lambda args, n: Scalar(call.type, None)
    if not _re2(rewritten):
        return rowwise(call, _extract)
    options = pc.ExtractRegexOptions(rewritten)

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(call.type, None)
        array = args[0].values
        found = pc.call_function("extract_regex", [array], options)
        out = pc.struct_field(found, [0])
        if group:
            out = _absent_groups(array, out, pattern, group)
        return Column(call.type, out)

    return run


def _absent_groups(array: pa.Array, out: pa.Array, pattern: str, group: int) -> pa.Array:
    """RE2 gives '' for a group that took no part in the match; Java gives null."""
    empty = pc.fill_null(pc.equal(out, pa.scalar("", pa.string())), False)
    rows = np.flatnonzero(empty.to_numpy(zero_copy_only=False))
    if not len(rows):
        return out
    values = out.to_pylist()
    for row in rows.tolist():
        values[row] = _extract(array[row].as_py(), pattern, group)
    return pa.array(values, pa.string())


define("REGEXP_EXTRACT", [STR, STR, AS_INT], STRING, _bind_extract, optional=1, nullable=True, costly=True)


def _regexp(text: str, pattern: str) -> bool:
    compiled = java_pattern(pattern)
    return bool(pattern and compiled and compiled.search(text))


def _bind_regexp(call: Call) -> Any:
    pattern = literal_value(call, 1)
    if isinstance(pattern, str) and pattern and java_pattern(pattern) and _re2(pattern):
        return _match(call, lambda array: pc.match_substring_regex(array, pattern), False)
    return rowwise(call, _regexp)


define("REGEXP", [STR, STR], BOOLEAN, _bind_regexp, costly=True)


def _replace(text: str, pattern: str, by: str) -> str | None:
    compiled = java_pattern(pattern)
    return None if compiled is None else compiled.sub(lambda _: by, text)


def _bind_replace(call: Call) -> Any:
    pattern, by = literal_value(call, 1), literal_value(call, 2)
    if (
        isinstance(pattern, str)
        and pattern
        and isinstance(by, str)
        and java_pattern(pattern)
        and _re2(pattern)
    ):
        literal = by.replace("\\", "\\\\")
        options = pc.ReplaceSubstringOptions(pattern, literal)

        def run(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]):
                return Scalar(call.type, None)
            return Column(call.type, pc.call_function("replace_substring_regex", [args[0].values], options))

        return run
    return rowwise(call, _replace)


define("REGEXP_REPLACE", [STR, STR, STR], STRING, _bind_replace, costly=True)


def _count(text: str, pattern: str) -> int | None:
    compiled = java_pattern(pattern)
    return None if compiled is None else sum(1 for _ in compiled.finditer(text))


def _extract_all(text: str, pattern: str, group: int | None = None) -> list[str | None] | None:
    compiled = java_pattern(pattern)
    if compiled is None:
        return None
    group = min(1, compiled.groups) if group is None else group
    if not 0 <= group <= compiled.groups:
        return None
    return [match[group] for match in compiled.finditer(text)]


def _instr(text: str, pattern: str) -> int | None:
    compiled = java_pattern(pattern)
    if compiled is None:
        return None
    match = compiled.search(text)
    return match.start() + 1 if match else 0


define_rows("REGEXP_COUNT", [STR, STR], INT, _count, nullable=True)
define_rows(
    "REGEXP_EXTRACT_ALL", [STR, STR, AS_INT], t.ArrayType(STRING), _extract_all, optional=1, nullable=True
)
define_rows("REGEXP_INSTR", [STR, STR], INT, _instr, nullable=True)
define_rows("REGEXP_SUBSTR", [STR, STR], STRING, _extract, nullable=True)
