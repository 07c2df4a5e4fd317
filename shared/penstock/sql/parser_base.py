"""The base of the parser's classes: errors with their position, and small helpers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from sqlglot import exp
from sqlglot import parser as sg_parser
from sqlglot.errors import ParseError
from sqlglot.tokens import TokenType

from penstock.errors import SqlError, distance, is_near
from penstock.sql.errors import position_in

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
E = TypeVar("E", bound=exp.Expr)

UNITS = (
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW",
    "ISODOW", "ISOYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND",
    "EPOCH",
)  # fmt: skip


#: Keywords that a mistyped word between clauses may stand for.
CLAUSES = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "LEFT",
    "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "NATURAL", "LATERAL", "ON", "USING", "UNION", "INTERSECT", "EXCEPT",
    "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH",
    "VALUES", "INTO", "OVER", "PARTITION", "INTERVAL", "WINDOW", "WATERMARK", "PRIMARY", "KEY", "METADATA",
    "VIRTUAL", "COMMENT", "TABLE", "DESCRIPTOR", "ASC", "DESC", "ROWS", "RANGE", "PRECEDING", "FOLLOWING",
)  # fmt: skip


def meant(word: str, known: Iterable[str]) -> str | None:
    """The text 'did you mean …' if ``word`` is nearly one of ``known``; None otherwise."""
    known = list(known)
    upper = word.upper()
    if upper in known or not upper.isidentifier():
        return None
    if len(upper) == 2:
        found = [k for k in known if sorted(k) == sorted(upper)]
    else:
        found = sorted(
            (k for k in known if len(k) > 2 and is_near(upper, k)), key=lambda k: distance(upper, k)
        )
    return f"did you mean {found[0]} for '{word}'?" if found else None


def _token_name(token: Any) -> str:
    if not token or token.token_type == TokenType.SENTINEL:
        return "end of statement"
    return f"'{token.text}'"


class PlacedParseError(ParseError):
    """A ParseError, which sqlglot expects, with the SqlError that the user
    gets: it has position and remedy."""

    def __init__(self, message: str, sql_error: SqlError) -> None:
        super().__init__(message)
        self.sql_error = sql_error


class ParserBase(sg_parser.Parser):
    """sqlglot's parser with Penstock's errors."""

    def raise_error(self, message: str, token: Any = None) -> NoReturn:
        """Raise an error with the position of the token and what was found there."""
        token = token or self._curr
        ended = not token or token.token_type == TokenType.SENTINEL
        if ended:
            token, got = self._prev, "end of statement"
        else:
            got = _token_name(token)
        message = message.split(" but got <Token")[0]
        said, expected = message, None
        if message.startswith("Expect"):
            expected = message.split(" ", 1)[1]
            message = f"syntax error at {got}"
        elif message.startswith("Invalid expression / Unexpected token"):
            expected = "the end of the statement, an operator or another clause"
            message = f"syntax error at {got}"
        elif message.startswith("Required keyword"):
            expected = "an expression"
            message = f"syntax error at {got}: an operand is missing"
        start = (token.end + 1 if ended else token.start) if token else 0
        remedy = self._meant_nearby(None if ended else token, expected or "")
        raise PlacedParseError(
            said,
            SqlError(
                message, expected=expected, got=got, where=str(position_in(self.sql, start)), remedy=remedy
            ),
        )

    def _meant_nearby(self, token: Any, expected: str) -> str | None:
        """A remedy for a mistyped word: that at the error, or that before it,
        which the parser took for an alias."""
        wanted = [w for w in re.findall(r"[A-Z_]{2,}", expected) if w.isupper()]
        if token is not None:
            found = meant(token.text, wanted) or meant(token.text, CLAUSES)
            if found:
                return found
        before = self._prev
        if before is None or before.token_type not in (TokenType.VAR, TokenType.ANY):
            return None
        return meant(before.text, CLAUSES)

    def expression(self, instance: E, token: Any = None, comments: Any = None) -> E:
        """A syntax node that knows its position."""
        if (
            token is None
            and "start" not in instance.meta
            and not any("start" in child.meta for child in instance.iter_expressions())
        ):
            token = self._prev
        return super().expression(instance, token, comments)

    def _parse_placeholder(self) -> None:
        """Refuse ``?``, ``@x`` and ``:x``, which sqlglot takes wherever a value or a name may stand."""
        token = self._curr
        if token and token.token_type in (TokenType.PLACEHOLDER, TokenType.PARAMETER):
            self.raise_error("Expecting a value or a name: a statement has no parameters")

    def _parse_csv(self, parse_method: Any, sep: Any = TokenType.COMMA) -> list[Any]:
        items = [parse_method()]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("Expecting another item after ','")
            items.append(item)
        return [item for item in items if item is not None]

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if not self._match_text_seq(text):
                self.raise_error(f"Expecting {text}")

    def _require(self, value: T | None, what: str) -> T:
        if value is None:
            self.raise_error(f"Expecting {what}")
        return value

    def _name(self, what: str = "a name") -> exp.Identifier:
        name = self._require(self._parse_id_var(any_token=False), what)
        assert isinstance(name, exp.Identifier)
        return name

    def _text(self, what: str) -> str:
        if not self._match(TokenType.STRING):
            self.raise_error(f"Expecting {what}")
        return self._prev.text

    def _written(self, start: Any) -> str:
        """The text from the token ``start`` to the token before the current one."""
        return self.sql[start.start : self._prev.end + 1]

    def _whole(self, what: str) -> int:
        if not self._match(TokenType.NUMBER):
            self.raise_error(f"Expecting {what}")
        return int(self._prev.text)

    def _parenthesised_numbers(self, most: int) -> list[int]:
        if not self._match(TokenType.L_PAREN):
            return []
        numbers = [self._whole("a whole number")]
        while len(numbers) < most and self._match(TokenType.COMMA):
            numbers.append(self._whole("a whole number"))
        self._close()
        return numbers

    def _close(self) -> None:
        if not self._match(TokenType.R_PAREN):
            self.raise_error("Expecting ')'")

    def _open(self) -> None:
        if not self._match(TokenType.L_PAREN):
            self.raise_error("Expecting '('")

    def _unit(self) -> str:
        text = self._curr.text.upper() if self._curr else ""
        unit = text[:-1] if text.endswith("S") and text[:-1] in UNITS else text
        if unit not in UNITS:
            self.raise_error("Expecting a time unit (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND …)")
        self._advance()
        if unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
            self._parenthesised_numbers(2)
        return unit

    def _operand(self) -> exp.Expression:
        return cast("exp.Expression", self._require(self._parse_disjunction(), "an expression"))
