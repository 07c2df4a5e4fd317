"""SQL errors that name the line and column, what was expected, what was found, and the nearest known name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import SqlError, UnsupportedError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Position:
    """1-based line and column in the user's text; 0 = unknown."""

    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


NOWHERE = Position()


def position_in(sql: str, offset: int) -> Position:
    """The place of character ``offset`` of ``sql``."""
    before = sql[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


class Source:
    """The text that is being bound. Gives the positions of syntax nodes in it.

    ``view``: the view whose text it is. ``target``: the statement's beginning (``INSERT INTO t``), for errors of rows.
    """

    def __init__(self, text: str, *, view: str | None = None, target: str = "") -> None:
        self.text = text
        self.view = view
        self.target = target

    @property
    def within(self) -> str:
        """What has the text, for errors of rows (``Call.within``); empty: the statement itself."""
        return f"view '{self.view}'" if self.view else self.target

    def position(self, node: exp.Expression | None) -> Position:
        """Place of the first character that belongs to ``node``."""
        if node is None:
            return Position()
        start = start_of(node)
        return Position() if start is None else position_in(self.text, start)

    def where(self, node: exp.Expression | None) -> str:
        """The position of a syntax node, for errors."""
        suffix = f" of {self.within}" if self.view else ""
        return str(self.position(node)) + suffix

    def error(
        self,
        message: str,
        node: exp.Expression | None,
        *,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> SqlError:
        """An SqlError at the position of ``node``."""
        return SqlError(message, expected=expected, got=got, where=self.where(node), remedy=remedy)

    def unsupported(
        self,
        message: str,
        node: exp.Expression | None,
        *,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> UnsupportedError:
        """An UnsupportedError at the position of ``node``."""
        return UnsupportedError(message, expected=expected, where=self.where(node), remedy=remedy)


def start_of(node: exp.Expression) -> int | None:
    """Character offset of the first token below ``node``."""
    found = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return min(found) if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A remedy that names the known name nearest to ``name``; None if none is near."""
    return nearest(name, known)
