"""Statements: one dataclass each, and ``parse_script(text) -> list[Statement]``.

Expressions and queries inside stay sqlglot trees (``dialect``) until the binder.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Union

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.dialect import Flink, FlinkParser
from penstock.sql.errors import NOWHERE, Position, position_in

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE: physical (type), metadata (type + key) or computed (expr)."""

    name: str
    kind: Literal["physical", "metadata", "computed"]
    position: Position
    type: LogicalType | None = None
    expression: exp.Expression | None = None
    metadata_key: str | None = None
    virtual: bool = False
    primary_key: bool = False


@dataclass(frozen=True, slots=True)
class LikeClause:
    name: str
    position: Position
    #: feature → INCLUDING | EXCLUDING | OVERWRITING
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: str
    position: Position
    columns: tuple[ColumnDef, ...]
    options: dict[str, str]
    watermark: tuple[tuple[str, ...], exp.Expression, Position] | None = None
    primary_key: tuple[str, ...] = ()
    like: LikeClause | None = None
    temporary: bool = False
    if_not_exists: bool = False
    query: exp.Expression | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    position: Position
    query: exp.Expression
    columns: tuple[str, ...] = ()
    temporary: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateFunction:
    name: str
    position: Position
    target: str
    language: str
    temporary: bool = False
    if_not_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    kind: Literal["TABLE", "VIEW", "FUNCTION"]
    name: str
    position: Position
    if_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    table: str
    position: Position
    query: exp.Expression
    columns: tuple[exp.Identifier, ...] = ()
    overwrite: bool = False
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    query: exp.Expression
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatementSet:
    inserts: tuple[Insert, ...]
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET 'key' = 'value'; without key: show all."""

    key: str | None = None
    value: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class ResetOption:
    key: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explain:
    statement: Insert | Query | StatementSet
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Show:
    what: str
    name: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Describe:
    name: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    what: str
    name: str
    position: Position = NOWHERE
    text: str = ""


Statement = Union[
    CreateTable, CreateView, CreateFunction, Drop, Insert, Query, StatementSet, SetOption,
    ResetOption, Explain, Show, Describe, Use,
]  # fmt: skip


def parse_script(text: str) -> list[Statement]:
    """All statements of a script. SqlError with line and column when one does not parse."""
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
    _check_hints(tokens, text)
    out: list[Statement] = []
    open_set: list[Insert] | None = None
    opened: Position = Position()
    for chunk in _chunks(tokens):
        words = [tok.text.upper() for tok in chunk[:4]]
        if open_set is None and words[:3] == ["BEGIN", "STATEMENT", "SET"]:
            open_set, opened = [], position_in(text, chunk[0].start)
            chunk = chunk[3:]
        elif open_set is None and words == ["EXECUTE", "STATEMENT", "SET", "BEGIN"]:
            open_set, opened = [], position_in(text, chunk[0].start)
            chunk = chunk[4:]
        if open_set is not None and len(chunk) == 1 and chunk[0].text.upper() == "END":
            out.append(StatementSet(tuple(open_set), opened, text))
            open_set = None
            continue
        if not chunk:
            continue
        statement = _parse_one(chunk, text)
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
    return out


def parse_expression(text: str) -> exp.Expression:
    """One expression, e.g. for tests and the Table API."""
    parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    return _run(parser, lambda p: p._parse_disjunction(), Flink().tokenize(text), text)


def parse_type(text: str) -> LogicalType:
    """A type as SQL writes it. SqlError with its place in the text."""
    parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    return _run(parser, lambda p: p.flink_type(), Flink().tokenize(text), text)


def _chunks(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [c for c in chunks if c]


#: Operators of other dialects that Flink refuses.
_FOREIGN = {"!=": "<>", "==": "=", "<=>": "IS NOT DISTINCT FROM", "::": "CAST(… AS …)"}


def _check_operators(tokens: list[Token], text: str) -> None:
    for token in tokens:
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        written = text[token.start : token.end + 1]
        if written in _FOREIGN:
            raise SqlError(
                f"'{written}' is no operator of Flink SQL",
                expected=_FOREIGN[written],
                got=repr(written),
                where=str(position_in(text, token.start)),
                remedy=f"write {_FOREIGN[written]}",
            )


def hint_options(comments: list[str] | None) -> dict[str, str]:
    """The options of ``/*+ OPTIONS('k' = 'v', …) */`` behind a table's name."""
    out: dict[str, str] = {}
    for comment in comments or []:
        if comment.startswith("+"):
            text = comment[1:]
            parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
            out.update(_run(parser, lambda p: p.options_hint(), Flink().tokenize(text), text))
    return out


def _check_hints(tokens: list[Token], text: str) -> None:
    """Hints stand in comments; one that we do not know must not be dropped in silence."""
    for token in tokens:
        for comment in token.comments or []:
            if comment.startswith("+") and not comment[1:].strip().upper().startswith("OPTIONS"):
                raise UnsupportedError(
                    f"the hint {comment[1:].strip()}",
                    expected="OPTIONS('key' = 'value') behind a table's name",
                    where=str(position_in(text, token.start)),
                    remedy="leave it out: the planner chooses how to join",
                )


def _unclosed(text: str) -> Position:
    """Where the last quote was opened."""
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
    return position_in(text, start if state else max(0, len(text) - 1))


def _parse_one(chunk: list[Token], text: str) -> Statement:
    parser = _StatementParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
    statement = _run(parser, lambda p: p.statement(), chunk, text)
    return replace(statement, text=text)


def _run(parser: _StatementParser, method: Any, tokens: list[Token], text: str) -> Any:
    try:
        return parser._parse(method, tokens, text)[0]
    except ParseError as err:
        known = getattr(err, "sql_error", None)
        if known is not None:
            raise known from None
        raise SqlError(str(err), where=str(position_in(text, tokens[0].start))) from None


class _StatementParser(FlinkParser):
    def statement(self) -> Statement:
        token = self._curr
        here = position_in(self.sql, token.start)
        word = token.text.upper()
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
            case "DESCRIBE" | "DESC":
                self._advance()
                return Describe(self._dotted(), here)
            case "USE":
                self._advance()
                what = "DATABASE"
                if self._match_text_seq("CATALOG"):
                    what = "CATALOG"
                return Use(what, self._dotted(), here)
        if word in ("SELECT", "WITH", "VALUES", "(", "TABLE"):
            return Query(self._query(), here)
        self.raise_error(
            "Expecting a statement (SELECT, WITH, VALUES, INSERT, CREATE, DROP, SET, RESET, EXPLAIN, SHOW, "
            "DESCRIBE, USE, BEGIN STATEMENT SET)"
        )
        raise AssertionError

    def options_hint(self) -> dict[str, str]:
        self._expect("OPTIONS")
        return self._options()

    # -- helpers ------------------------------------------------------------------------

    def _dotted(self, what: str = "a name") -> str:
        """``t``, ``db.t`` or ``catalog.db.t``; the default catalog and database fall away."""
        parts = [self._require(self._parse_id_var(any_token=False), what).name]
        while self._match(TokenType.DOT):
            parts.append(self._require(self._parse_id_var(any_token=True), what).name)
        return catalog_name(parts)

    def _query(self) -> exp.Expression:
        query = self._require(self._parse_select(nested=True), "a query")
        query = self._parse_set_operations(query) or query
        return self._parse_query_modifiers(query)  # type: ignore[return-value]

    def _exists(self, *words: str) -> bool:
        return bool(self._match_text_seq("IF", *words))

    def _options(self) -> dict[str, str]:
        """``('k' = 'v', …)``"""
        self._open()
        out: dict[str, str] = {}
        while not self._match(TokenType.R_PAREN):
            if out and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or ')' in the options")
            key = self._text("a quoted option key, e.g. 'connector'")
            if not self._match(TokenType.EQ):
                self.raise_error(f"Expecting '=' after '{key}'")
            out[key] = self._text(f"a quoted value for '{key}'")
        return out

    def _names(self) -> tuple[str, ...]:
        self._open()
        names = [self._require(self._parse_id_var(any_token=True), "a column").name]
        while self._match(TokenType.COMMA):
            names.append(self._require(self._parse_id_var(any_token=True), "a column").name)
        self._close()
        return tuple(names)

    # -- DDL ------------------------------------------------------------------------------

    def _create(self, here: Position) -> Statement:
        self._advance()
        or_replace = bool(self._match_text_seq("OR", "REPLACE"))
        temporary = bool(self._match_text_seq("TEMPORARY"))
        system = bool(self._match_text_seq("SYSTEM"))
        if self._match_text_seq("TABLE"):
            return self._create_table(here, temporary)
        if self._match_text_seq("VIEW"):
            quiet = self._exists("NOT", "EXISTS")
            name = self._dotted("a view's name")
            columns = self._names() if self._match(TokenType.L_PAREN, advance=False) else ()
            if self._match_text_seq("COMMENT"):
                self._text("a comment in quotes")
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expecting AS and a query")
            return CreateView(name, here, self._query(), columns, temporary, or_replace, quiet)
        if self._match_text_seq("FUNCTION"):
            quiet = self._exists("NOT", "EXISTS")
            name = self._dotted("a function's name")
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expecting AS 'module.function'")
            target = self._text("'module.function' in quotes")
            language = "JAVA"
            if self._match_text_seq("LANGUAGE"):
                language = self._curr.text.upper()
                self._advance()
            return CreateFunction(name, here, target, language, temporary or system, quiet)
        self.raise_error("Expecting TABLE, VIEW or FUNCTION after CREATE")
        raise AssertionError

    def _create_table(self, here: Position, temporary: bool) -> CreateTable:
        quiet = self._exists("NOT", "EXISTS")
        name = self._dotted("a table's name")
        columns: list[ColumnDef] = []
        watermark = None
        primary_key: tuple[str, ...] = ()
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                if (columns or watermark or primary_key) and not self._match(TokenType.COMMA):
                    self.raise_error("Expecting ',' or ')' in the column list")
                if self._match_text_seq("WATERMARK", "FOR"):
                    if watermark:
                        self.raise_error("Expecting one WATERMARK only")
                    watermark = self._watermark()
                elif self._match_text_seq("CONSTRAINT"):
                    self._name()
                    primary_key = self._primary_key()
                elif (
                    self._match_text_seq("PRIMARY", "KEY", advance=False)
                    or self._curr.text.upper() == "PRIMARY KEY"
                ):
                    primary_key = self._primary_key()
                else:
                    columns.append(self._column())
        inline = tuple(c.name for c in columns if c.primary_key)
        if self._match_text_seq("COMMENT"):
            self._text("a comment in quotes")
        if self._match_text_seq("PARTITIONED", "BY") or self._curr.text.upper() == "PARTITIONED BY":
            if self._curr.text.upper() == "PARTITIONED BY":
                self._advance()
            partitioned: tuple[str, ...] | None = self._names()
        else:
            partitioned = None
        options: dict[str, str] = {}
        if self._match_text_seq("WITH"):
            options = self._options()
        if partitioned is not None:
            options = {**options, "partition.keys": ",".join(partitioned)}
        like = None
        if self._match_text_seq("LIKE"):
            like = self._like()
        query = self._query() if self._match(TokenType.ALIAS) else None
        return CreateTable(
            name,
            here,
            tuple(columns),
            options,
            watermark,
            primary_key or inline,
            like,
            temporary,
            quiet,
            query,
        )

    def _column(self) -> ColumnDef:
        here = position_in(self.sql, self._curr.start)
        name = self._require(self._parse_id_var(any_token=False), "a column's name").name
        if self._match(TokenType.ALIAS):
            expression = self._operand()
            self._comment()
            return ColumnDef(name, "computed", here, expression=expression)
        type_ = self.flink_type()
        if self._match_text_seq("METADATA"):
            key = self._text("a metadata key in quotes") if self._match_text_seq("FROM") else None
            virtual = bool(self._match_text_seq("VIRTUAL"))
            self._comment()
            return ColumnDef(name, "metadata", here, type_, metadata_key=key or name, virtual=virtual)
        primary = bool(self._match_text_seq("PRIMARY", "KEY") or self._match(TokenType.PRIMARY_KEY))
        if primary:
            self._not_enforced()
        self._comment()
        return ColumnDef(name, "physical", here, type_, primary_key=primary)

    def _comment(self) -> None:
        if self._match_text_seq("COMMENT"):
            self._text("a comment in quotes")

    def _watermark(self) -> tuple[tuple[str, ...], exp.Expression, Position]:
        here = position_in(self.sql, self._curr.start)
        parts = [self._name("a time column").name]
        while self._match(TokenType.DOT):
            parts.append(self._name("a field").name)
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expecting AS and the watermark's expression")
        return tuple(parts), self._operand(), here

    def _primary_key(self) -> tuple[str, ...]:
        if not self._match(TokenType.PRIMARY_KEY):
            self._expect("PRIMARY", "KEY")
        names = self._names()
        self._not_enforced()
        return names

    def _not_enforced(self) -> None:
        if not self._match_text_seq("NOT", "ENFORCED"):
            self.raise_error("Expecting NOT ENFORCED (Penstock, like Flink, does not own the data)")

    def _like(self) -> LikeClause:
        here = position_in(self.sql, self._curr.start)
        name = self._dotted("a table's name")
        options: dict[str, str] = {}
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                action = self._curr.text.upper()
                if action not in ("INCLUDING", "EXCLUDING", "OVERWRITING"):
                    self.raise_error("Expecting INCLUDING, EXCLUDING or OVERWRITING")
                self._advance()
                options[self._curr.text.upper()] = action
                self._advance()
        return LikeClause(name, here, options)

    def _drop(self, here: Position) -> Drop:
        self._advance()
        self._match_text_seq("TEMPORARY")
        self._match_text_seq("SYSTEM")
        kind = self._curr.text.upper()
        if kind not in ("TABLE", "VIEW", "FUNCTION"):
            self.raise_error("Expecting TABLE, VIEW or FUNCTION after DROP")
        self._advance()
        quiet = self._exists("EXISTS")
        return Drop(kind, self._dotted(), here, quiet)  # type: ignore[arg-type]

    # -- DML, settings, inspection ----------------------------------------------------------

    def _insert(self, here: Position) -> Insert:
        self._advance()
        overwrite = bool(self._match_text_seq("OVERWRITE"))
        if not overwrite and not self._match(TokenType.INTO):
            self.raise_error("Expecting INTO or OVERWRITE after INSERT")
        self._match_text_seq("TABLE")
        table = position_in(self.sql, self._curr.start)
        name = self._dotted("a table's name")
        if self._match_text_seq("PARTITION", advance=False):
            self.raise_error("Expecting a query (static PARTITION clauses are not supported)")
        options = hint_options(self._prev.comments)
        columns: tuple[exp.Identifier, ...] = ()
        if self._match(TokenType.L_PAREN, advance=False) and self._next.text.upper() not in (
            "SELECT", "WITH", "VALUES", "(",
        ):  # fmt: skip
            self._open()
            columns = tuple(self._parse_csv(lambda: self._name("a column")))
            self._close()
        return Insert(name, table, self._query(), columns, overwrite, options)

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
        if not self._match_text_seq("PLAN", "FOR"):
            for detail in ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"):
                if self._match_text_seq(detail):
                    self._match(TokenType.COMMA)
        statement = self.statement()
        if not isinstance(statement, (Insert, Query, StatementSet)):
            raise SqlError(
                "this statement has no plan",
                expected="EXPLAIN of a query or an INSERT",
                got=type(statement).__name__,
                where=str(statement.position),
            )
        return Explain(replace(statement, text=self.sql), here)

    def _show(self, here: Position) -> Show:
        self._advance()
        words = []
        while self._curr and self._curr.text.upper() in (
            "TABLES", "VIEWS", "FUNCTIONS", "USER", "CREATE", "TABLE", "VIEW", "COLUMNS", "FROM", "IN",
            "CATALOGS", "DATABASES", "CURRENT", "CATALOG", "DATABASE", "JOBS",
        ):  # fmt: skip
            words.append(self._curr.text.upper())
            self._advance()
        what = " ".join(w for w in words if w not in ("FROM", "IN"))
        known = ("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "CREATE TABLE", "CREATE VIEW", "COLUMNS",
                 "CATALOGS", "DATABASES", "CURRENT CATALOG", "CURRENT DATABASE")  # fmt: skip
        if what not in known:
            self.raise_error(f"Expecting one of SHOW {', '.join(known)}")
        name = self._dotted() if what in ("CREATE TABLE", "CREATE VIEW", "COLUMNS") else None
        return Show(what, name, here)


def catalog_name(parts: list[str]) -> str:
    """One catalog and one database exist: their names fall away from a dotted name."""
    if len(parts) == 3 and parts[0] == "default_catalog":
        parts = parts[1:]
    if len(parts) == 2 and parts[0] == "default_database":
        parts = parts[1:]
    return ".".join(parts)
