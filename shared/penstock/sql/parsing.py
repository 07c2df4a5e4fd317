"""Text → statements: ``parse_script(text) -> list[Statement]``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from penstock.errors import SqlError, UnsupportedError, nearest, nested_too_deeply
from penstock.sql.dialect import Flink
from penstock.sql.errors import Position, position_in
from penstock.sql.hints import Hint, check_hints, hints_of
from penstock.sql.parser_base import CLAUSES, PlacedParseError
from penstock.sql.refused import table_function_remedy
from penstock.sql.statement_parsing import StatementParser
from penstock.sql.statements import (
    Explain,
    Insert,
    Statement,
    StatementSet,
)
from penstock.sql.syntax import WINDOW_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types.logical import LogicalType

T = TypeVar("T")


def parse_script(text: str) -> list[Statement]:
    """All statements of a script. Raises SqlError with line and column if one does not parse."""
    open_at = _open_comment(text)
    if open_at is not None:
        raise SqlError(
            "a comment is not closed",
            expected="*/",
            got="end of text",
            where=str(position_in(text, open_at)),
            remedy="close the comment with */",
        )
    try:
        tokens = Flink().tokenize(text)
    except TokenError as err:
        raise SqlError(
            "the text cannot be split into words",
            expected="closed quotes, backticks and comments",
            got=str(err).splitlines()[0],
            where=str(_unclosed(text)),
            remedy="close the quote; a quote inside a string is doubled: 'it''s'",
        ) from None
    _check_operators(tokens, text)
    _check_table_arguments(tokens, text)
    hints = hints_of(tokens, text)
    out: list[Statement] = []
    open_set: list[Insert] | None = None
    opened: Position = Position()
    opener: list[Token] = []
    for chunk in _chunks(tokens):
        opening = _opens_set(chunk) if open_set is None else 0
        if opening:
            open_set, opened = [], position_in(text, chunk[0].start)
            opener, chunk = chunk[:opening], chunk[opening:]
        if open_set is not None and len(chunk) == 1 and chunk[0].text.upper() == "END":
            out.append(_closed(opener, StatementSet(tuple(open_set), opened, text)))
            open_set = None
            continue
        if not chunk:
            continue
        try:
            statement = _parse_one(chunk, text, hints)
        except RecursionError:
            raise nested_too_deeply("statement", str(position_in(text, chunk[0].start))) from None
        if open_set is None:
            out.append(statement)
        elif isinstance(statement, Insert):
            open_set.append(statement)
        else:
            raise SqlError(
                "a statement set holds only INSERT statements",
                expected="INSERT INTO … or END",
                got=type(statement).__name__,
                where=str(statement.position),
            )
    if open_set is not None:
        raise SqlError(
            "the statement set is not closed", expected="END;", got="end of text", where=str(opened)
        )
    check_hints(hints, text)
    return out


def parse_type(text: str) -> LogicalType:
    """The type that ``text`` names in SQL. Raises SqlError with the position in the text."""
    parser = StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    return _run(parser, StatementParser.flink_type, Flink().tokenize(text), text)


#: The number of words in COMPILE AND EXECUTE PLAN 'file' IF NOT EXISTS FOR EXECUTE BEGIN STATEMENT SET.
_MOST_OPENING = 13


def _opens_set(chunk: list[Token]) -> int:
    """The number of words that open a statement set; 0 if the statement opens none."""
    words = ["" if tok.token_type == TokenType.STRING else tok.text.upper() for tok in chunk[:_MOST_OPENING]]
    first = 0
    if words[:1] == ["EXPLAIN"]:
        first = 3 if words[1:3] == ["PLAN", "FOR"] else 1
    elif words[:1] == ["COMPILE"] and "FOR" in words:
        first = words.index("FOR") + 1
        first += words[first : first + 1] == ["EXECUTE"]
    elif words[:1] == ["EXECUTE"]:
        first = 1
    for opening in (["BEGIN", "STATEMENT", "SET"], ["STATEMENT", "SET", "BEGIN"]):
        if words[first : first + 3] == opening:
            return first + 3
    return 0


def _closed(opener: list[Token], closed: StatementSet) -> Statement:
    """The statement set, or its EXPLAIN or COMPILE PLAN. ``opener``: the words before the first INSERT."""
    word = opener[0].text.upper()
    if word == "EXPLAIN":
        return Explain(closed, closed.position, closed.text)
    if word == "COMPILE":
        parser = StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
        return _run(parser, lambda p: p.compiled_set(closed), opener, closed.text)
    return closed


def _chunks(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [c for c in chunks if c]


#: Operators of other dialects that Flink refuses.
_FOREIGN = {
    "!=": "<>",
    "==": "=",
    "<=>": "IS NOT DISTINCT FROM",
    "::": "CAST(… AS …)",
    "|>": "a subquery in FROM",
}


def _check_operators(tokens: list[Token], text: str) -> None:
    for token in tokens:
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        if token.text.upper() == "MATCH_RECOGNIZE":
            raise UnsupportedError(
                "MATCH_RECOGNIZE",
                expected="joins, windows, OVER, Top-N (docs/sql.md)",
                where=str(position_in(text, token.start)),
                remedy="write the pattern as a KeyedProcessFunction of the DataStream API, or with LAG over event time",
            )
        written = text[token.start : token.end + 1]
        if written in _FOREIGN:
            raise SqlError(
                f"'{written}' is no operator of Flink SQL",
                expected=_FOREIGN[written],
                got=repr(written),
                where=str(position_in(text, token.start)),
                remedy=f"write {_FOREIGN[written]}",
            )


#: Words before a parenthesis that call no function, and functions of windows, which take a table.
_NO_PROCESS_FUNCTION = {
    *CLAUSES,
    "TABLE",
    "EXISTS",
    "EXPLAIN",
    "FOR",
    "ALL",
    "ANY",
    "SOME",
    *WINDOW_FUNCTIONS,
}


def _check_table_arguments(tokens: list[Token], text: str) -> None:
    """Raises UnsupportedError where a process table function is called: a function, other than a window's, with ``TABLE t`` as
    an argument."""
    calls: list[Token | None] = []
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.token_type == TokenType.L_PAREN:
            calls.append(before)
        elif token.token_type == TokenType.R_PAREN and calls:
            calls.pop()
        elif (
            token.token_type == TokenType.TABLE
            and after is not None
            and after.token_type
            not in (TokenType.L_PAREN, TokenType.FARROW)  # CALL f(table => 't') names an argument
        ):
            called = calls[-1] if calls else None
            begins = before is not None and before.token_type in (
                TokenType.L_PAREN,
                TokenType.COMMA,
                TokenType.FARROW,
            )
            if (
                called is None
                or not begins
                or called.text.upper() in _NO_PROCESS_FUNCTION
                or not called.text.isidentifier()
            ):
                continue
            meant = nearest(called.text.upper(), sorted(WINDOW_FUNCTIONS))
            if meant is not None:
                raise SqlError(
                    f"unknown table function '{called.text}'",
                    expected=f"one of {', '.join(sorted(WINDOW_FUNCTIONS))}",
                    got=repr(called.text),
                    where=str(position_in(text, called.start)),
                    remedy=meant,
                )
            raise UnsupportedError(
                f"the process table function {called.text}",
                expected="TUMBLE, HOP, CUMULATE, SESSION, or a table function: LATERAL TABLE(f(column))",
                where=str(position_in(text, called.start)),
                remedy=table_function_remedy(called.text),
            )


def _unclosed(text: str) -> Position:
    """The position of the last quote that was opened."""
    start, state = _last_opened(text)
    return position_in(text, start if state else max(0, len(text) - 1))


def _open_comment(text: str) -> int | None:
    """The position of a comment that is not closed and so would hide the rest of
    the text; None if there is none."""
    start, state = _last_opened(text)
    return start if state == "*/" else None


def _last_opened(text: str) -> tuple[int, str | None]:
    """(offset, closing) of the quote or comment that is open at the end of the text. ``closing`` is the quote
    or ``*/``; None if nothing is open."""
    state: str | None = None
    start = i = 0
    while i < len(text):
        two = text[i : i + 2]
        if state is None and two == "--":
            i = text.find("\n", i)
            if i < 0:
                break
        elif state is None and two == "/*":
            state, start = "*/", i
            i += 1
        elif state is None and text[i] in "'`":
            state, start = text[i], i
        elif state == "*/" and two == "*/":
            state = None
            i += 1
        elif state is not None and text[i] == state:
            state = None
        i += 1
    return start, state


def _parse_one(chunk: list[Token], text: str, hints: dict[int, list[Hint]]) -> Statement:
    parser = StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    parser.hints = hints
    statement = _run(parser, StatementParser.statement, chunk, text)
    return replace(statement, text=text)


def _run(
    parser: StatementParser, method: Callable[[StatementParser], T], tokens: list[Token], text: str
) -> T:
    try:
        parsed: Any = parser._parse(method, tokens, text)  # type: ignore[arg-type]  # our methods give statements, too
    except PlacedParseError as err:
        raise err.sql_error from None
    except ParseError as err:
        raise SqlError(str(err), where=str(position_in(text, tokens[0].start))) from None
    if not parsed:  # sqlglot takes text that begins with ELSE for a part of the statement before
        first = tokens[0]
        raise SqlError(
            f"syntax error at '{first.text}'",
            expected="the beginning of a statement",
            got=f"'{first.text}'",
            where=str(position_in(text, first.start)),
        )
    return cast("T", parsed[0])
