"""Hints: comments that begin with ``/*+``. A hint belongs to the clause before it; a hint that no clause takes
is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.sql.errors import position_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot.tokens import Token


@dataclass(slots=True)
class Hint:
    """A hint. ``text``: the characters between ``/*+`` and ``*/``; ``start``:
    the offset of the first of them."""

    text: str
    start: int
    taken: bool = False


def hints_of(tokens: list[Token], text: str) -> dict[int, list[Hint]]:
    """The hints behind each token, by the offset of the token's last character. Hints before the first token
    have the offset -1."""
    found: dict[int, list[Hint]] = {}
    ends = [-1, *(token.end for token in tokens)]
    starts = [*(token.start for token in tokens), len(text)]
    for end, start in zip(ends, starts, strict=True):
        hints = list(_in_gap(text[end + 1 : start], end + 1))
        if hints:
            found[end] = hints
    return found


def _in_gap(gap: str, offset: int) -> Iterator[Hint]:
    at = 0
    while at < len(gap):
        two = gap[at : at + 2]
        if two == "--":
            end = gap.find("\n", at)
            at = len(gap) if end < 0 else end
        elif two == "/*":
            end = gap.find("*/", at + 2)
            end = len(gap) if end < 0 else end
            if gap[at + 2 : at + 3] == "+":
                yield Hint(gap[at + 3 : end], offset + at + 3)
            at = end + 2
        else:
            at += 1


def check_hints(hints: dict[int, list[Hint]], text: str) -> None:
    """Raise UnsupportedError for the first hint that no clause took."""
    left = [hint for behind in hints.values() for hint in behind if not hint.taken]
    if left:
        first = min(left, key=lambda hint: hint.start)
        name = " ".join(first.text.split())
        raise UnsupportedError(
            f"the hint {name}",
            expected="OPTIONS('key' = 'value') behind a table's name",
            where=str(position_in(text, first.start - 3)),
            remedy="write it directly behind the table's name"
            if name.upper().startswith("OPTIONS")
            else "leave it out: the planner chooses how to join",
        )
