"""Text → statements: ``parse_script(text) -> list[Statement]``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from penstock.errors import SqlError, UnsupportedError, nested_too_deeply
from penstock.sql.ddl_syntax import DdlSyntax
from penstock.sql.dialect import Flink
from penstock.sql.errors import Position, position_in
from penstock.sql.hints import Hint, check_hints, hints_of
from penstock.sql.parser_base import PlacedParseError
from penstock.sql.refused import REFUSED, refused_words
from penstock.sql.statements import (
    ClientCommand,
    CompilePlan,
    Describe,
    ExecutePlan,
    Explain,
    Insert,
    Pattern,
    Query,
    ResetOption,
    SetOption,
    Show,
    Statement,
    StatementSet,
    Use,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types.logical import LogicalType

T = TypeVar("T")


def parse_script(text: str) -> list[Statement]:
    """All statements of a script. SqlError with line and column when one does not parse."""
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
    """A type as SQL writes it. SqlError with its place in the text."""
    parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    return _run(parser, _StatementParser.flink_type, Flink().tokenize(text), text)


#: COMPILE AND EXECUTE PLAN 'file' IF NOT EXISTS FOR EXECUTE BEGIN STATEMENT SET
_MOST_OPENING = 13


def _opens_set(chunk: list[Token]) -> int:
    """How many words open a statement set; 0 when the statement is none."""
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
    """The set, or what is made of it. ``opener``: the words up to its first INSERT."""
    word = opener[0].text.upper()
    if word == "EXPLAIN":
        return Explain(closed, closed.position, closed.text)
    if word == "COMPILE":
        parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
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


def _unclosed(text: str) -> Position:
    """Where the last quote was opened."""
    start, state = _last_opened(text)
    return position_in(text, start if state else max(0, len(text) - 1))


def _open_comment(text: str) -> int | None:
    """Where a comment begins that nothing closes: it would hide the rest of the text."""
    start, state = _last_opened(text)
    return start if state == "*/" else None


def _last_opened(text: str) -> tuple[int, str | None]:
    """What is open at the end of the text (a quote, ``*/``, or None), and where it was opened."""
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
    parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    parser.hints = hints
    statement = _run(parser, _StatementParser.statement, chunk, text)
    return replace(statement, text=text)


def _run(
    parser: _StatementParser, method: Callable[[_StatementParser], T], tokens: list[Token], text: str
) -> T:
    try:
        parsed: Any = parser._parse(method, tokens, text)  # type: ignore[arg-type]  # our methods give statements, too
    except PlacedParseError as err:
        raise err.sql_error from None
    except ParseError as err:
        raise SqlError(str(err), where=str(position_in(text, tokens[0].start))) from None
    if not parsed:  # sqlglot takes what begins with ELSE for a part of the statement before it
        first = tokens[0]
        raise SqlError(
            f"syntax error at '{first.text}'",
            expected="the beginning of a statement",
            got=f"'{first.text}'",
            where=str(position_in(text, first.start)),
        )
    return cast("T", parsed[0])


_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
_SHOWN = ("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "CREATE TABLE", "CREATE VIEW", "COLUMNS", "PARTITIONS", "CATALOGS",
          "DATABASES", "CURRENT CATALOG", "CURRENT DATABASE", "MODULES", "FULL MODULES")  # fmt: skip
_SHOW_WORDS = {word for what in _SHOWN for word in what.split()}


class _StatementParser(DdlSyntax):
    def statement(self) -> Statement:
        token = self._curr
        here = position_in(self.sql, token.start)
        word = token.text.upper()
        refused = refused_words([tok.text.upper() for tok in self._tokens[self._index : self._index + 5]])
        if refused is not None:
            raise UnsupportedError(f"the statement {refused}", where=str(here), remedy=REFUSED[refused])
        match word:
            case "CREATE":
                return self._create(here)
            case "DROP":
                return self._drop(here)
            case "INSERT":
                return self._insert(here)
            case "SET":
                return self._set(here)
            case "RESET":
                self._advance()
                return ResetOption(self._text("a quoted key") if self._curr else None, here)
            case "EXPLAIN":
                return self._explain(here)
            case "SHOW":
                return self._show(here)
            case "ALTER":
                return self._alter(here)
            case "DESCRIBE" | "DESC":
                self._advance()
                self._match_text_seq("EXTENDED")
                return Describe(self._dotted(), here)
            case "COMPILE":
                return self._compile(here)
            case "EXECUTE":
                self._advance()
                if self._match_text_seq("PLAN"):
                    return ExecutePlan(self._plan_path(), here)
                executed = self.statement()
                if not isinstance(executed, (Insert, Query)):
                    self.raise_error(
                        "Expecting a query, an INSERT or a STATEMENT SET behind EXECUTE, or PLAN 'file'",
                        token,
                    )
                return executed
            case "QUIT" | "EXIT" | "CLEAR" | "HELP" if not self._next:
                self._advance()
                return ClientCommand(word, here)
            case "USE":
                self._advance()
                what = "DATABASE"
                if self._match_text_seq("CATALOG"):
                    what = "CATALOG"
                return Use(what, self._used(), here)
        if word in ("SELECT", "WITH", "VALUES", "(", "TABLE"):
            return Query(self._query(), here)
        self.raise_error(
            "Expecting a statement (SELECT, WITH, VALUES, INSERT, CREATE, ALTER, DROP, SET, RESET, EXPLAIN, SHOW, "
            "DESCRIBE, USE, COMPILE PLAN, EXECUTE PLAN, BEGIN STATEMENT SET)"
        )
        raise AssertionError

    def _insert(self, here: Position) -> Insert:
        self._advance()
        overwrite = bool(self._match_text_seq("OVERWRITE"))
        if not overwrite and not self._match(TokenType.INTO):
            self.raise_error("Expecting INTO or OVERWRITE after INSERT")
        self._match_text_seq("TABLE")
        table = position_in(self.sql, self._curr.start)
        name = self._dotted("a table's name")
        hint = self.options_hint()
        options = hint.meta["options"] if hint is not None else {}
        partition = self._partition() if self._match_text_seq("PARTITION") else ()
        columns: tuple[exp.Identifier, ...] = ()
        if self._match(TokenType.L_PAREN, advance=False) and self._next.text.upper() not in (
            "SELECT", "WITH", "VALUES", "(",
        ):  # fmt: skip
            self._open()
            columns = tuple(self._parse_csv(lambda: self._name("a column")))
            self._close()
        return Insert(name, table, self._query(), columns, overwrite, options, partition=partition)

    def _partition(self) -> tuple[tuple[exp.Identifier, exp.Expression], ...]:
        """``(column = value, …)``"""
        out: list[tuple[exp.Identifier, exp.Expression]] = []
        self._open()
        while not out or self._match(TokenType.COMMA):
            column = self._name("a partition column")
            if not self._match(TokenType.EQ):
                self.raise_error(
                    f"Expecting '=' and the value of '{column.name}' (a column whose value the query gives is left "
                    "out here)"
                )
            out.append((column, self._operand()))
        self._close()
        return tuple(out)

    def _compile(self, here: Position) -> CompilePlan:
        path, if_not_exists, execute = self._compile_head()
        token = self._curr
        compiled = self.statement()
        if not isinstance(compiled, Insert):
            self.raise_error(
                "Expecting an INSERT or a STATEMENT SET behind FOR: only they have a plan to keep", token
            )
            raise AssertionError
        return CompilePlan(path, replace(compiled, text=self.sql), here, if_not_exists, execute)

    def compiled_set(self, statements: StatementSet) -> CompilePlan:
        """The words before a set: COMPILE … FOR STATEMENT SET BEGIN."""
        path, if_not_exists, execute = self._compile_head()
        while self._curr:  # [EXECUTE] STATEMENT SET BEGIN, which ``_opens_set`` has read
            self._advance()
        return CompilePlan(path, statements, statements.position, if_not_exists, execute, statements.text)

    def _compile_head(self) -> tuple[str, bool, bool]:
        """(path, IF NOT EXISTS, AND EXECUTE) of COMPILE [AND EXECUTE] PLAN 'path' [IF NOT EXISTS] FOR"""
        self._advance()
        execute = bool(self._match_text_seq("AND", "EXECUTE"))
        if not self._match_text_seq("PLAN"):
            self.raise_error("Expecting COMPILE PLAN 'file' FOR, or COMPILE AND EXECUTE PLAN 'file' FOR")
        path = self._plan_path()
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        if not self._match_text_seq("FOR"):
            self.raise_error("Expecting FOR and an INSERT or a STATEMENT SET")
        return path, if_not_exists, execute

    def _plan_path(self) -> str:
        return self._text("a plan's path in quotes, e.g. 'plans/totals.json'")

    def _used(self) -> str:
        parts = [self._name().name]
        while self._match(TokenType.DOT):
            parts.append(self._name().name)
        return ".".join(parts)

    def _set(self, here: Position) -> SetOption:
        self._advance()
        if not self._curr:
            return SetOption(None, None, here)
        key = self._text("a quoted key, e.g. SET 'parallelism.default' = '2'")
        if not self._match(TokenType.EQ):
            self.raise_error("Expecting '='")
        return SetOption(key, self._text("a quoted value"), here)

    def _explain(self, here: Position) -> Explain:
        self._advance()
        details: list[str] = []
        comma: Any = False
        if not self._match_text_seq("PLAN", "FOR"):
            while self._curr and self._curr.text.upper() in _DETAILS and not (details and not comma):
                details.append(self._curr.text.upper())
                self._advance()
                comma = self._match(TokenType.COMMA)
                if comma and (not self._curr or self._curr.text.upper() not in _DETAILS):
                    self.raise_error(f"Expecting another detail ({', '.join(_DETAILS)}) behind ','")
        if self._curr and self._curr.token_type == TokenType.STRING:
            return Explain(ExecutePlan(self._plan_path(), here, self.sql), here, details=tuple(details))
        statement = self.statement()
        if not isinstance(statement, (Insert, Query, StatementSet, ExecutePlan)):
            raise SqlError(
                "this statement has no plan",
                expected="EXPLAIN of a query, an INSERT or the file of a compiled plan",
                got=type(statement).__name__,
                where=str(statement.position),
            )
        return Explain(replace(statement, text=self.sql), here, details=tuple(details))

    def _show(self, here: Position) -> Show:
        self._advance()
        words: list[str] = []
        while self._curr and self._curr.text.upper() in _SHOW_WORDS:
            words.append(self._curr.text.upper())
            self._advance()
        what = " ".join(words)
        if what not in _SHOWN:
            self.raise_error(f"Expecting one of SHOW {', '.join(_SHOWN)}")
        name = database = None
        if what in ("CREATE TABLE", "CREATE VIEW", "PARTITIONS"):
            name = self._dotted()
        elif self._match(TokenType.FROM) or self._match(TokenType.IN):
            if what == "COLUMNS":
                name = self._dotted("a table's name")
            else:
                database = self._dotted("a database's name")
        elif what == "COLUMNS":
            self.raise_error("Expecting FROM and a table's name")
        return Show(what, name, self._pattern(), database, here)

    def _pattern(self) -> Pattern | None:
        negated = bool(self._match_text_seq("NOT"))
        ignore_case = bool(self._match_text_seq("ILIKE"))
        if not ignore_case and not self._match_text_seq("LIKE"):
            if negated:
                self.raise_error("Expecting LIKE")
            return None
        return Pattern(self._text("a pattern in quotes, e.g. 'a%'"), negated, ignore_case)
