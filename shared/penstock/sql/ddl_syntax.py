"""Parses CREATE, ALTER and DROP, and the OPTIONS hint."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokens import TokenType

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.dialect import Flink, FlinkParser
from penstock.sql.dotted import catalog_name, foreign_part
from penstock.sql.errors import Position, position_in
from penstock.sql.hints import Hint
from penstock.sql.statements import (
    ColumnDef,
    CreateFunction,
    CreateTable,
    CreateView,
    Drop,
    LikeClause,
    OptionText,
    PartitionClause,
    Statement,
    WatermarkClause,
)
from penstock.sql.syntax import OptionsHint, SelectHint

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_LIKE_FEATURES = (
    "ALL",
    "CONSTRAINTS",
    "DISTRIBUTION",
    "GENERATED",
    "METADATA",
    "OPTIONS",
    "PARTITIONS",
    "WATERMARKS",
)


class DdlSyntax(FlinkParser):
    """Parses statements that change the catalog, and OPTIONS hints."""

    #: The hints of the statement that is being parsed, from ``hints.hints_of``.
    hints: dict[int, list[Hint]]

    def _parse_table_parts(self, *args: Any, **kwargs: Any) -> Any:
        table: Any = super()._parse_table_parts(*args, **kwargs)
        hint = self.options_hint() if table is not None else None
        if hint is not None:
            table.set("options_hint", hint)
        return table

    def options_hint(self) -> OptionsHint | None:
        """The OPTIONS hint directly behind the token before the current one."""
        behind = getattr(self, "hints", {}).get(self._prev.end, []) if self._prev else []
        found: dict[str, str] = {}
        text = ""
        for hint in behind:
            if not hint.text.strip().upper().startswith("OPTIONS"):
                continue
            found.update(self._inside(hint, lambda p: p._hinted_options()))
            text += hint.text
        if not text:
            return None
        node = OptionsHint(this=text)
        node.meta["options"] = found
        return node

    def _inside(self, hint: Hint, method: Callable[[Any], T]) -> T:
        """What ``method`` parses of a hint's text. Blanks stand for the text before the hint, so that a position in
        the hint is one in the whole text."""
        padded = re.sub(r"[^\n]", " ", self.sql[: hint.start]) + hint.text
        inner: Any = type(self)(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
        parsed: T = inner._parse(method, Flink().tokenize(padded), padded)[0]
        hint.taken = True
        return parsed

    def _parse_hint(self) -> exp.Hint | None:
        """The hints directly behind the word SELECT."""
        behind = getattr(self, "hints", {}).get(self._prev.end, []) if self._prev else []
        hints = [one for hint in behind for one in self._inside(hint, lambda p: p._select_hints())]
        return exp.Hint(expressions=hints) if hints else None

    def _select_hints(self) -> list[SelectHint]:
        """Parses ``NAME(table, …), NAME('table' = 'value', …) …``."""
        hints: list[SelectHint] = []
        while self._curr:
            if hints:
                self._match(TokenType.COMMA)
            token = self._curr
            hint = SelectHint(this=self._name("a hint's name").name)
            hint.update_positions(token)
            names: list[str] = []
            options: dict[str, str] = {}
            if self._match(TokenType.L_PAREN):
                while not self._match(TokenType.R_PAREN):
                    if (names or options) and not self._match(TokenType.COMMA):
                        self.raise_error("Expecting ',' or ')' in the hint")
                    word = self._hinted_word("a table's name, or 'key' = 'value'")
                    if self._match(TokenType.EQ):
                        options[word] = self._hinted_word(f"the value of '{word}'")
                    else:
                        names.append(word)
            hint.meta.update(names=names, options=options)
            hints.append(hint)
        return hints

    def _hinted_word(self, what: str) -> str:
        return self._prev.text if self._match(TokenType.STRING) else self._name(what).name

    def _hinted_options(self) -> dict[str, str]:
        self._expect("OPTIONS")
        return self._options()

    def _dotted(self, what: str = "a name") -> str:
        """Parses ``t``, ``db.t`` or ``catalog.db.t``. Leaves out the default catalog and database."""
        start = self._curr
        parts = [self._require(self._parse_id_var(any_token=False), what).name]
        while self._match(TokenType.DOT):
            parts.append(self._require(self._parse_id_var(any_token=True), what).name)
        foreign = foreign_part(parts)
        if foreign is not None:
            raise SqlError(
                f"unknown {foreign}",
                expected="name, database.name or catalog.database.name",
                got=".".join(parts),
                where=str(position_in(self.sql, start.start)),
            )
        return catalog_name(parts)

    def _query(self) -> exp.Expression:
        query = self._require(self._parse_select(nested=True), "a query")
        query = self._parse_set_operations(query) or query
        return self._parse_query_modifiers(query)  # type: ignore[return-value]

    def _exists(self, *words: str) -> bool:
        return bool(self._match_text_seq("IF", *words))

    def _options(self) -> dict[str, str]:
        """Parses ``('k' = 'v', …)``."""
        self._open()
        out: dict[str, str] = {}
        while not self._match(TokenType.R_PAREN):
            if out and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or ')' in the options")
            key_position = position_in(self.sql, self._curr.start)
            key = self._text("a quoted option key, e.g. 'connector'")
            if not self._match(TokenType.EQ):
                self.raise_error(f"Expecting '=' after '{key}'")
            position = position_in(self.sql, self._curr.start)
            out[key] = OptionText(self._text(f"a quoted value for '{key}'"), key_position, position)
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
        made = self._curr.text.upper() if self._curr else ""
        if (or_replace and made not in ("VIEW", "TABLE")) or (
            system and (made != "FUNCTION" or not temporary)
        ):
            self.raise_error("Expecting CREATE OR REPLACE TABLE or VIEW, or CREATE TEMPORARY SYSTEM FUNCTION")
        if self._match_text_seq("TABLE"):
            return self._create_table(here, temporary, or_replace)
        if self._match_text_seq("VIEW"):
            quiet = self._exists("NOT", "EXISTS")
            name = self._dotted("a view's name")
            columns = self._names() if self._match(TokenType.L_PAREN, advance=False) else ()
            comment = self._comment()
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expecting AS and a query")
            start = self._curr
            query = self._query()
            written = self._written(start)
            return CreateView(
                name, here, query, written, columns, temporary, or_replace, quiet, comment=comment
            )
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
            if self._curr and self._curr.text.upper() in ("USING", "WITH"):
                word = self._curr.text.upper()
                raise UnsupportedError(
                    f"CREATE FUNCTION … {word}",
                    expected="CREATE FUNCTION f AS 'module.function' LANGUAGE PYTHON",
                    where=str(position_in(self.sql, self._curr.start)),
                    remedy="leave it out: the module's code goes along (-py FILE, or a package: docs/packages.md)"
                    if word == "USING"
                    else "leave it out: a function has no options; its module reads what it needs in open()",
                )
            return CreateFunction(name, here, target, language, temporary or system, quiet)
        self.raise_error("Expecting TABLE, VIEW or FUNCTION after CREATE")
        raise AssertionError

    def _create_table(self, here: Position, temporary: bool, or_replace: bool) -> CreateTable:
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
                elif self._curr.text.upper() == "UNIQUE" and self._next.token_type == TokenType.L_PAREN:
                    raise UnsupportedError(
                        "UNIQUE in CREATE TABLE",
                        expected="PRIMARY KEY (…) NOT ENFORCED",
                        where=str(position_in(self.sql, self._curr.start)),
                        remedy="declare the key as PRIMARY KEY, or leave it out: Penstock, like Flink, does not own the data",
                    )
                elif (
                    self._match_text_seq("CONSTRAINT", advance=False)
                    or self._match_text_seq("PRIMARY", "KEY", advance=False)
                    or self._curr.text.upper() == "PRIMARY KEY"
                ):
                    if primary_key:
                        self.raise_error("Expecting one PRIMARY KEY only")
                    if self._match_text_seq("CONSTRAINT"):
                        self._name()
                    primary_key = self._primary_key()
                else:
                    columns.append(self._column())
        inline = tuple(c.name for c in columns if c.primary_key)
        if len(inline) > 1 or (inline and primary_key):
            self.raise_error(
                "Expecting one PRIMARY KEY only; of several columns: PRIMARY KEY (a, b)", self._prev
            )
        comment = self._comment()
        word = self._curr.text.upper() if self._curr else ""
        if word == "DISTRIBUTED":
            raise UnsupportedError(
                "DISTRIBUTED BY",
                expected="a table without buckets",
                where=str(position_in(self.sql, self._curr.start)),
                remedy="leave it out, or write PARTITIONED BY: a folder for each value",
            )
        partitions = self._partitioned_by() if word in ("PARTITIONED", "PARTITIONED BY") else None
        options: dict[str, str] = {}
        if self._match_text_seq("WITH"):
            options = self._options()
        like = None
        if self._match_text_seq("LIKE"):
            like = self._like()
        query = self._query() if self._match(TokenType.ALIAS) else None
        if or_replace and (query is not None or quiet):
            raise UnsupportedError(
                "CREATE OR REPLACE TABLE … AS"
                if query is not None
                else "CREATE OR REPLACE TABLE IF NOT EXISTS",
                expected="CREATE OR REPLACE TABLE t (…) WITH (…)",
                where=str(here),
                remedy="CREATE OR REPLACE TABLE, then INSERT OVERWRITE t SELECT …"
                if query is not None
                else "leave one of them out",
            )
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
            comment=comment,
            partitions=partitions,
            or_replace=or_replace,
        )

    def _partitioned_by(self) -> PartitionClause:
        here = position_in(self.sql, self._curr.start)
        words = self._curr.text.upper()
        self._advance()
        if words == "PARTITIONED":
            self._expect("BY")
        return PartitionClause(self._names(), here)

    def _column(self) -> ColumnDef:
        start = self._curr
        column = self._declared_column()
        return replace(column, text=self._written(start))

    def _declared_column(self) -> ColumnDef:
        here = position_in(self.sql, self._curr.start)
        name = self._require(self._parse_id_var(any_token=False), "a column's name").name
        if self._match(TokenType.ALIAS):
            start = self._curr
            expression = self._operand()
            written = self._written(start)
            return ColumnDef(
                name,
                "computed",
                here,
                expression=expression,
                expression_text=written,
                comment=self._comment(),
            )
        type_ = self.flink_type()
        if self._match_text_seq("METADATA"):
            key = self._text("a metadata key in quotes") if self._match_text_seq("FROM") else None
            virtual = bool(self._match_text_seq("VIRTUAL"))
            comment = self._comment()
            return ColumnDef(
                name, "metadata", here, type_, metadata_key=key or name, virtual=virtual, comment=comment
            )
        primary = bool(self._match_text_seq("PRIMARY", "KEY") or self._match(TokenType.PRIMARY_KEY))
        if primary:
            self._not_enforced()
        return ColumnDef(name, "physical", here, type_, primary_key=primary, comment=self._comment())

    def _comment(self) -> str | None:
        return self._text("a comment in quotes") if self._match_text_seq("COMMENT") else None

    def _watermark(self) -> WatermarkClause:
        here = position_in(self.sql, self._curr.start)
        parts = [self._name("a time column").name]
        while self._match(TokenType.DOT):
            parts.append(self._name("a field").name)
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expecting AS and the watermark's expression")
        start = self._curr
        expression = self._operand()
        return WatermarkClause(tuple(parts), expression, here, self._written(start))

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
                feature = self._curr.text.upper()
                if feature not in _LIKE_FEATURES:
                    self.raise_error(f"Expecting one of {', '.join(_LIKE_FEATURES)}")
                options[feature] = action
                self._advance()
        return LikeClause(name, here, options)

    # -- DROP ---------------------------------------------------------------------------------

    def _drop(self, here: Position) -> Drop:
        self._advance()
        temporary = bool(self._match_text_seq("TEMPORARY"))
        system = bool(self._match_text_seq("SYSTEM"))
        kind = self._curr.text.upper()
        if system and kind != "FUNCTION":
            self.raise_error("Expecting DROP TEMPORARY SYSTEM FUNCTION")
        if kind not in ("TABLE", "VIEW", "FUNCTION"):
            self.raise_error("Expecting TABLE, VIEW or FUNCTION after DROP")
        self._advance()
        quiet = self._exists("EXISTS")
        return Drop(kind, self._dotted(), here, quiet, temporary)  # type: ignore[arg-type]
