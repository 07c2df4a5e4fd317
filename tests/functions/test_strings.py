"""String and pattern kernels against Python, on slices with NULLs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import InputRef, Literal
from penstock.functions.regex import like_regex, only_group
from penstock.functions.registry import make_call
from penstock.functions.strings import substring
from penstock.types.batch import Batch
from penstock.types.logical import CharType, IntType, Schema, VarCharType

SCHEMA = Schema.of(("s", VarCharType()))
S = InputRef(0, VarCharType())
TEXTS = st.lists(st.one_of(st.none(), st.text("abc,-_%/é😀 ", max_size=8)), max_size=8)


def text(value: str | None) -> Literal:
    return Literal(value, CharType(max(1, len(value or "")), nullable=value is None))


def run(name: str, texts: list[str | None], *args: Any) -> list[Any]:
    literals = [text(a) if isinstance(a, str) else Literal(a, IntType(nullable=False)) for a in args]
    batch = Batch.of(SCHEMA, [("zz",), *((x,) for x in texts)]).slice(1)
    return compile_expr(make_call(name, [S, *literals]))(batch).to_pylist()


def each(texts: list[str | None], function: Any) -> list[Any]:
    return [None if x is None else function(x) for x in texts]


@given(TEXTS)
@settings(deadline=None)
def test_whole_strings(texts: list[str | None]) -> None:
    assert run("UPPER", texts) == each(texts, str.upper)
    assert run("CHAR_LENGTH", texts) == each(texts, len)
    assert run("REVERSE", texts) == each(texts, lambda x: x[::-1])
    assert run("||", texts, "é") == each(texts, lambda x: x + "é")
    assert run("REPLACE", texts, "a", "bb") == each(texts, lambda x: x.replace("a", "bb"))


@given(TEXTS, st.integers(-10, 10), st.integers(-2, 10))
@settings(deadline=None)
def test_substring(texts: list[str | None], position: int, length: int) -> None:
    assert run("SUBSTRING", texts, position, length) == each(texts, lambda x: substring(x, position, length))


@given(TEXTS, st.sampled_from([",", "/", "ab", "-"]), st.integers(-1, 4))
@settings(deadline=None)
def test_split_index(texts: list[str | None], separator: str, index: int) -> None:
    def one(value: str) -> str | None:
        tokens = value.split(separator) if value else []
        return tokens[index] if 0 <= index < len(tokens) else None

    assert run("SPLIT_INDEX", texts, separator, index) == each(texts, one)


@given(TEXTS, st.text("ab_%é😀.", max_size=5))
@settings(deadline=None)
def test_like(texts: list[str | None], pattern: str) -> None:
    compiled = re.compile(like_regex(pattern).replace(r"\z", r"\Z"))
    assert run("LIKE", texts, pattern) == each(texts, lambda x: bool(compiled.match(x)))
    assert run("NOT LIKE", texts, pattern) == each(texts, lambda x: not compiled.match(x))


@given(
    TEXTS,
    st.sampled_from(
        [
            ("a(b*)", 1),
            ("(a)|(b)", 2),
            ("(?<n>[abc]+),", 1),
            ("[(](a)", 1),
            ("a(?=b)(b)", 1),
            ("(", 1),
            ("a", 3),
        ]
    ),
)
@settings(deadline=None)
def test_regexp_extract(texts: list[str | None], case: tuple[str, int]) -> None:
    pattern, group = case

    def one(value: str) -> str | None:
        try:
            compiled = re.compile(pattern.replace("(?<n>", "(?P<n>"))
        except re.error:
            return None
        match = compiled.search(value)
        return match[group] if match and group <= compiled.groups else None

    assert run("REGEXP_EXTRACT", texts, pattern, group) == each(texts, one)


@pytest.mark.parametrize(
    ("pattern", "group", "want"),
    [
        ("a(b)(c)", 2, "a(?:b)(?P<g>c)"),
        (r"\((a)[(](?:x)", 1, r"\((?P<g>a)[(](?:x)"),
        ("(?<n>a)(?<=b)", 1, "(?P<g>a)(?<=b)"),
        ("ab", 0, "(?P<g>ab)"),
        ("a(b)", 2, None),
    ],
)
def test_only_group(pattern: str, group: int, want: str | None) -> None:
    assert only_group(pattern, group) == want


def test_concat_ws_keeps_rows_without_parts() -> None:
    schema = Schema.of(("a", VarCharType()), ("b", VarCharType()))
    batch = Batch.of(schema, [("x", "y"), (None, None), (None, "z")])
    call = make_call("CONCAT_WS", [text("-"), InputRef(0, VarCharType()), InputRef(1, VarCharType())])
    assert compile_expr(call)(batch).to_pylist() == ["x-y", "", "z"]


def test_split_index_of_a_constant() -> None:
    """Folded whole: a split by bytes has no value of its own."""
    text = make_call("UPPER", [Literal("a,b", VarCharType())])
    for index, token in ((1, "B"), (5, None)):
        call = make_call("SPLIT_INDEX", [text, Literal(",", CharType(1)), Literal(index, IntType())])
        assert compile_expr(call)(Batch.of(Schema.of(("x", IntType())), [(1,)])).to_pylist() == [token]
