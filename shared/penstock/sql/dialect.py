"""Flink's tokens and expressions on sqlglot.

The library's own function classes and type names are switched off: a function stays ``Anonymous(name, args)``
and a type becomes a ``LogicalType`` at once, so that no other dialect's rules rewrite anything before our
binder sees it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot import parser as sg_parser
from sqlglot import tokens as sg_tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel
from sqlglot.tokens import TokenType

from penstock.sql.function_syntax import FunctionSyntax
from penstock.sql.parser_base import UNITS
from penstock.sql.syntax import (
    WINDOW_FUNCTIONS,
    AsOf,
    Descriptor,
    TableArgument,
    TableFunction,
    TypedCast,
    TypedLiteral,
)
from penstock.types import logical as t

#: Functions written without parentheses.
BARE_FUNCTIONS = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP",
     "CURRENT_DATABASE", "CURRENT_CATALOG", "CURRENT_USER", "SESSION_USER", "PI", "E"}
) - {"PI", "E"}  # fmt: skip


class FlinkTokenizer(sg_tokens.Tokenizer):
    """The tokens of Flink's SQL."""

    IDENTIFIERS: ClassVar = ["`"]
    QUOTES: ClassVar = ["'"]
    STRING_ESCAPES: ClassVar = ["'"]
    HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
    UNICODE_STRINGS: ClassVar = [("U&'", "'"), ("u&'", "'")]
    COMMENTS: ClassVar = ["--", ("/*", "*/")]
    NESTED_COMMENTS = False
    # We parse all statements ourselves: no token may swallow the rest of its line.
    COMMANDS: ClassVar = set()
    KEYWORDS: ClassVar = {
        key: value
        for key, value in sg_tokens.Tokenizer.KEYWORDS.items()
        if key not in {"{%", "{%+", "{%-", "{{+", "{{-", "{{", "%}", "+%}", "-%}", "}}", "+}}", "-}}", "/*+"}
        and value not in (TokenType.COMMAND, TokenType.EXECUTE)
    }


class FlinkParser(FunctionSyntax):
    """Expressions, types and table references of Flink SQL."""

    FUNCTIONS: ClassVar = {}
    FUNC_TOKENS: ClassVar = sg_parser.Parser.FUNC_TOKENS | sg_parser.Parser.ID_VAR_TOKENS
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    RANGE_PARSERS: ClassVar = {
        key: value for key, value in sg_parser.Parser.RANGE_PARSERS.items() if key != TokenType.FOR
    }
    VERSION_PHRASES: ClassVar = {}
    COLUMN_OPERATORS: ClassVar = {TokenType.DOT: None}
    CAST_COLUMN_OPERATORS: ClassVar = set()
    LAMBDAS: ClassVar = {}
    ARRAY_CONSTRUCTORS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        "CAST": lambda self: self._flink_cast(safe=False),
        "TRY_CAST": lambda self: self._flink_cast(safe=True),
        "EXTRACT": lambda self: self._flink_extract(),
        "TRIM": lambda self: self._flink_trim(),
        "SUBSTRING": lambda self: self._flink_substring(),
        "POSITION": lambda self: self._flink_position(),
        "OVERLAY": lambda self: self._flink_overlay(),
        "CEIL": lambda self: self._flink_ceil_floor("CEIL"),
        "CEILING": lambda self: self._flink_ceil_floor("CEIL"),
        "FLOOR": lambda self: self._flink_ceil_floor("FLOOR"),
        "TIMESTAMPADD": lambda self: self._flink_unit_first("TIMESTAMPADD"),
        "TIMESTAMPDIFF": lambda self: self._flink_unit_first("TIMESTAMPDIFF"),
        "JSON_VALUE": lambda self: self._flink_json("JSON_VALUE"),
        "JSON_QUERY": lambda self: self._flink_json("JSON_QUERY"),
        "JSON_EXISTS": lambda self: self._flink_json("JSON_EXISTS"),
        "JSON_OBJECT": lambda self: self._flink_json_object("JSON_OBJECT"),
        "JSON_OBJECTAGG": lambda self: self._flink_json_object("JSON_OBJECTAGG"),
        "JSON_ARRAY": lambda self: self._flink_json_array("JSON_ARRAY"),
        "JSON_ARRAYAGG": lambda self: self._flink_json_array("JSON_ARRAYAGG"),
    }

    # -- grouping -----------------------------------------------------------------------

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """Parses CUBE or ROLLUP of any expressions, also of conditions, as plain GROUP BY does."""
        kind = exp.Cube if self._match(TokenType.CUBE) else exp.Rollup
        if kind is exp.Rollup and not self._match(TokenType.ROLLUP):
            return None
        if with_prefix:
            self.raise_error(f"Expecting GROUP BY {self._prev.text.upper()} (…) instead of WITH", self._prev)
        return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

    def _parse_grouping_set(self) -> Any:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    # -- expressions --------------------------------------------------------------------

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        """Parses a primary expression. sqlglot would take a type here, too, but no
        type is an expression in Flink."""
        token, following = self._curr, self._next
        upper = token.text.upper() if token else ""
        plain = token and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        if plain and upper == "INTERVAL" and following.token_type in (
            TokenType.STRING, TokenType.DASH, TokenType.NUMBER,
        ):  # fmt: skip
            self._advance()
            return self._interval(token)
        if plain and upper in ("DATE", "TIME", "TIMESTAMP") and following.token_type == TokenType.STRING:
            self._advance(2)
            return self.expression(TypedLiteral(kind=upper, text=self._prev.text), token)
        if (
            plain
            and upper in BARE_FUNCTIONS
            and following.token_type not in (TokenType.L_PAREN, TokenType.DOT)
        ):
            self._advance()
            return self.expression(exp.Anonymous(this=upper, expressions=[]), token)
        if plain and upper == "ROW" and following.token_type == TokenType.L_PAREN:
            self._advance(2)
            args = self._parse_csv(self._parse_disjunction)
            self._close()
            return self._parse_column_ops(self.expression(exp.Anonymous(this="ROW", expressions=args), token))
        if plain and upper in ("ARRAY", "MAP") and following.token_type == TokenType.L_BRACKET:
            self._advance(2)
            args = (
                []
                if self._match(TokenType.R_BRACKET, advance=False)
                else self._parse_csv(self._parse_disjunction)
            )
            if not self._match(TokenType.R_BRACKET):
                self.raise_error("Expecting ']'")
            return self._parse_column_ops(self.expression(exp.Anonymous(this=upper, expressions=args), token))
        column = self._parse_column()
        if isinstance(column, exp.Paren) and isinstance(column.this, exp.Sub):
            return self._temporal_difference(column)
        return column

    def _temporal_difference(self, paren: exp.Paren) -> exp.Expression:
        """The interval ``(a - b) unit [TO unit]``, or the plain difference if no unit follows."""
        if not self._curr or self._curr.text.upper() not in UNITS:
            return paren
        node = TypedCast(this=paren.this, difference=True)
        unit = self._unit()
        to = self._unit() if self._match_text_seq("TO") else unit
        months = unit in ("YEAR", "MONTH", "QUARTER") and to in ("YEAR", "MONTH", "QUARTER")
        node.meta["type"] = t.YearMonthIntervalType() if months else t.DayTimeIntervalType()
        return node

    def _interval(self, token: Any) -> exp.Expression:
        negative = self._match(TokenType.DASH)
        if not self._match_set((TokenType.STRING, TokenType.NUMBER)):
            self.raise_error("Expecting an interval's value in quotes, e.g. INTERVAL '10' SECOND")
        text = self._prev.text
        unit = self._unit()
        to = self._unit() if self._match_text_seq("TO") else None
        return self.expression(
            TypedLiteral(kind="INTERVAL", text=("-" + text) if negative else text, unit=unit, to=to), token
        )

    def _parse_interval(self, *_: Any, **__: Any) -> Any:
        return None

    def _parse_version(self) -> None:
        return None

    def _parse_types(self, *_: Any, **__: Any) -> Any:
        return None

    # -- queries -------------------------------------------------------------------------

    def _is_table_query(self) -> bool:
        """Whether the query ``TABLE t`` begins here: all rows of a table."""
        following = self._next.token_type if self._next else None
        return bool(
            self._curr and self._curr.token_type == TokenType.TABLE and following != TokenType.L_PAREN
        )

    def _parse_limit(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.text.upper() == "LIMIT" and self._next and self._next.text.upper() == "ALL":
            self._advance(2)
            return None
        return super()._parse_limit(*args, **kwargs)

    # -- table references ---------------------------------------------------------------

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.text.upper() == "LATERAL" and self._next.text.upper() == "TABLE":
            self._advance()
            return self._lateral_table()
        if self._curr.token_type == TokenType.TABLE and self._next.token_type == TokenType.L_PAREN:
            return self._lateral_table()
        if self._curr.text.upper() in WINDOW_FUNCTIONS and self._next.token_type == TokenType.L_PAREN:
            return self._table_function(self._curr)
        index = self._index
        if self._match_set(self.ID_VAR_TOKENS | {TokenType.IDENTIFIER}):
            while self._match(TokenType.DOT):
                self._advance()
            if self._match_text_seq("FOR", "SYSTEM_TIME", "AS", "OF"):
                self._retreat(index)
                return self._as_of()
            self._retreat(index)
        table = super()._parse_table(*args, **kwargs)
        if isinstance(table, exp.Table) and self._prev.token_type == TokenType.STAR:
            # sqlglot skips a * behind the name of a table.
            self.raise_error("Expecting another clause", self._prev)
        return table

    def _parse_unnest(self, with_alias: bool = True) -> Any:
        start = self._index
        unnest = super()._parse_unnest(with_alias)
        words = [token.token_type for token in self._tokens[start : self._index]]
        if (TokenType.WITH, TokenType.OFFSET) in pairwise(words):
            # sqlglot reads WITH OFFSET as WITH ORDINALITY, which counts from 1.
            self.raise_error("Expecting WITH ORDINALITY instead of WITH OFFSET", self._prev)
        return unnest

    def _as_of(self) -> exp.Expression:
        table = self._parse_table_parts()
        self._expect("FOR", "SYSTEM_TIME", "AS", "OF")
        time = self._require(self._parse_bitwise(), "a time column")
        return self.expression(AsOf(this=table, time=time, alias=self._parse_table_alias()))

    def _lateral_table(self) -> exp.Expression:
        token = self._curr
        self._advance()
        self._open()
        return self._table_function(self._curr or token, wrapped=True)

    def _table_function(self, token: Any, *, wrapped: bool = False) -> exp.Expression:
        """Parses ``f(argument, …)``, and with ``wrapped`` the parenthesis behind it; then the alias."""
        name = self._require(self._parse_id_var(any_token=True), "a table function").name
        self._open()
        args: list[Any] = []
        while not self._match(TokenType.R_PAREN):
            if args and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or ')'")
            args.append(self._table_function_argument())
        if wrapped:
            self._close()
        node = self.expression(TableFunction(name=name, expressions=args), token)
        node.set("alias", self._parse_table_alias())
        return node

    def _table_function_argument(self) -> exp.Expression:
        if self._next.token_type == TokenType.FARROW:
            key = self._curr.text
            self._advance(2)
            return exp.Kwarg(this=exp.var(key.upper()), expression=self._table_function_argument())
        if self._match(TokenType.TABLE):
            token = self._prev
            if self._match(TokenType.L_PAREN):
                this: exp.Expr | None = self._require(self._parse_select(), "a query")
                self._close()
            else:
                this = self._parse_table_parts()
            partition = None
            if self._match_text_seq("PARTITION", "BY") or self._match(TokenType.PARTITION_BY):
                wrapped = self._match(TokenType.L_PAREN)
                partition = self._parse_csv(self._parse_disjunction) if wrapped else [self._operand()]
                if wrapped:
                    self._close()
            return self.expression(TableArgument(this=this, partition_by=partition), token)
        if self._match(TokenType.L_PAREN):
            index = self._index - 1
            query = self._parse_select()
            if query is not None:
                self._close()
                return self.expression(TableArgument(this=query))
            self._retreat(index)
        if self._curr.text.upper() == "DESCRIPTOR" and self._next.token_type == TokenType.L_PAREN:
            token = self._curr
            self._advance(2)
            names = self._parse_csv(lambda: self._name("a column"))
            self._close()
            return self.expression(Descriptor(expressions=names), token)
        return self._operand()


class Flink(Dialect):
    """Flink's dialect, which sqlglot registers as ``flink``. ``parsing.parse_script`` uses it."""

    Tokenizer = FlinkTokenizer
    Parser = FlinkParser


def flink_parser() -> FlinkParser:
    """A new parser of Flink's SQL, which raises at the first error."""
    return FlinkParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
