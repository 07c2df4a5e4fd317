"""Flink's tokens and expressions on sqlglot.

The library's own function classes and type names are switched off: a function stays
``Anonymous(name, args)`` and a type becomes a ``LogicalType`` at once, so that nothing
is rewritten by another dialect's rules before our binder sees it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot import parser as sg_parser
from sqlglot import tokens as sg_tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokens import TokenType

from penstock.errors import PenstockError, SqlError
from penstock.sql.errors import position_in
from penstock.types import logical as t


class TypedCast(exp.Expression):
    """CAST / TRY_CAST; the target ``LogicalType`` is in ``meta['type']``. ``difference``:
    ``(a - b) unit`` as an interval instead."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "safe": False, "difference": False}


class TypedLiteral(exp.Expression):
    """DATE '…', TIME '…', TIMESTAMP '…', INTERVAL '…' unit: ``kind`` and ``text``."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "text": True, "unit": False, "to": False}


class TableArgument(exp.Expression):
    """``TABLE t [PARTITION BY …]`` inside a table function."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "partition_by": False}


class Descriptor(exp.Expression):
    """``DESCRIPTOR(column)``."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class TableFunction(exp.Expression):
    """``TABLE(f(…))`` and ``LATERAL TABLE(f(…))``."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": False, "alias": False}


class AsOf(exp.Expression):
    """``t FOR SYSTEM_TIME AS OF expr``; ``this`` is the table."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "time": True, "alias": False}


class JsonCall(exp.Expression):
    """A JSON function with clauses: ``options`` is a plain dict in ``meta``."""

    arg_types: ClassVar[dict[str, bool]] = {"name": True, "expressions": False}


UNITS = (
    "MILLENNIUM", "CENTURY", "DECADE", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW",
    "ISODOW", "ISOYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND",
    "EPOCH",
)  # fmt: skip

#: Functions written without parentheses.
BARE_FUNCTIONS = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP",
     "CURRENT_DATABASE", "CURRENT_CATALOG", "CURRENT_USER", "SESSION_USER", "PI", "E"}
) - {"PI", "E"}  # fmt: skip

_SIMPLE_TYPES: dict[str, t.LogicalType] = {
    "BOOLEAN": t.BooleanType(), "TINYINT": t.TinyIntType(), "SMALLINT": t.SmallIntType(),
    "INT": t.IntType(), "INTEGER": t.IntType(), "BIGINT": t.BigIntType(), "FLOAT": t.FloatType(),
    "DOUBLE": t.DoubleType(), "STRING": t.VarCharType(), "BYTES": t.VarBinaryType(),
    "DATE": t.DateType(), "NULL": t.NullType(),
}  # fmt: skip


def _token_name(token: Any) -> str:
    if not token or token.token_type == TokenType.SENTINEL:
        return "end of statement"
    return f"'{token.text}'"


class FlinkTokenizer(sg_tokens.Tokenizer):
    IDENTIFIERS: ClassVar = ["`"]
    QUOTES: ClassVar = ["'"]
    STRING_ESCAPES: ClassVar = ["'"]
    HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
    UNICODE_STRINGS: ClassVar = [("U&'", "'"), ("u&'", "'")]
    COMMENTS: ClassVar = ["--", ("/*", "*/")]
    # Statements are ours to parse: no token may swallow the rest of its line.
    COMMANDS: ClassVar = set()
    KEYWORDS: ClassVar = {
        key: value
        for key, value in sg_tokens.Tokenizer.KEYWORDS.items()
        if key not in {"{%", "{%+", "{%-", "{{+", "{{-", "{{", "%}", "+%}", "-%}", "}}", "+}}", "-}}", "/*+"}
        and value not in (TokenType.COMMAND, TokenType.EXECUTE)
    }


class FlinkParser(sg_parser.Parser):
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

    # -- errors and places ------------------------------------------------------------

    def raise_error(self, message: str, token: Any = None) -> None:
        token = token or self._curr
        ended = not token or token.token_type == TokenType.SENTINEL
        if ended:
            token, got = self._prev, "end of statement"
        else:
            got = _token_name(token)
        message = message.split(" but got <Token")[0]
        error = ParseError(message)
        expected = None
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
        error.sql_error = SqlError(  # type: ignore[attr-defined]
            message, expected=expected, got=got, where=str(position_in(self.sql, start))
        )
        raise error

    def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
        if (
            token is None
            and "start" not in instance.meta
            and not any("start" in child.meta for child in instance.iter_expressions())
        ):
            token = self._prev
        return super().expression(instance, token, comments)

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

    def _require(self, value: Any, what: str) -> Any:
        if value is None:
            self.raise_error(f"Expecting {what}")
        return value

    def _name(self, what: str = "a name") -> exp.Identifier:
        return self._require(self._parse_id_var(any_token=False), what)

    def _text(self, what: str) -> str:
        if not self._match(TokenType.STRING):
            self.raise_error(f"Expecting {what}")
        return self._prev.text

    def _whole(self, what: str) -> int:
        if not self._match(TokenType.NUMBER):
            self.raise_error(f"Expecting {what}")
        return int(self._prev.text)

    # -- types ------------------------------------------------------------------------

    def flink_type(self) -> t.LogicalType:
        """A type with its nullability, from the current token."""
        token = self._curr
        try:
            type_ = self._base_type()
        except PenstockError as err:
            raise SqlError(
                err.message,
                expected=err.expected,
                got=err.got,
                where=err.where or str(position_in(self.sql, token.start)),
            ) from None
        while True:
            if self._match_text_seq("ARRAY"):
                type_ = t.ArrayType(type_)
            elif self._match_text_seq("MULTISET"):
                type_ = t.MultisetType(type_)
            elif self._match_text_seq("NOT", "NULL"):
                type_ = type_.not_null
            elif self._match_text_seq("NULL"):
                type_ = type_.with_nullable(True)
            else:
                return type_

    def _base_type(self) -> t.LogicalType:
        token = self._curr
        name = token.text.upper() if token else ""
        simple = _SIMPLE_TYPES.get(name)
        if simple is not None:
            self._advance()
            if name == "DOUBLE":
                self._match_text_seq("PRECISION")
            return simple
        length_types = {"CHAR": t.CharType, "CHARACTER": t.CharType, "VARCHAR": t.VarCharType,
                        "BINARY": t.BinaryType, "VARBINARY": t.VarBinaryType}  # fmt: skip
        if name in length_types:
            self._advance()
            cls = length_types[name]
            if name == "CHARACTER" and self._match_text_seq("VARYING"):
                cls = t.VarCharType
            given = self._parenthesised_numbers(1)
            return cls(given[0] if given else 1)  # type: ignore[return-value]
        if name in ("DECIMAL", "DEC", "NUMERIC"):
            self._advance()
            given = self._parenthesised_numbers(2)
            return t.DecimalType(given[0] if given else 10, given[1] if len(given) > 1 else 0)
        if name == "TIME":
            self._advance()
            given = self._parenthesised_numbers(1)
            self._match_text_seq("WITHOUT", "TIME", "ZONE")
            return t.TimeType(given[0] if given else 0)
        if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            self._advance()
            given = self._parenthesised_numbers(1)
            precision = given[0] if given else 6
            if name == "TIMESTAMP_LTZ" or self._match_text_seq("WITH", "LOCAL", "TIME", "ZONE"):
                return t.TimestampLtzType(precision)
            if self._match_text_seq("WITH", "TIME", "ZONE"):
                self.raise_error("Expecting LOCAL TIME ZONE (TIMESTAMP WITH TIME ZONE is not a type)")
            self._match_text_seq("WITHOUT", "TIME", "ZONE")
            return t.TimestampType(precision)
        if name == "INTERVAL":
            self._advance()
            unit = self._unit()
            to = self._unit() if self._match_text_seq("TO") else unit
            months = unit in ("YEAR", "MONTH") and to in ("YEAR", "MONTH")
            return t.YearMonthIntervalType() if months else t.DayTimeIntervalType()
        if name == "ARRAY":
            self._advance()
            return t.ArrayType(self._angled(self.flink_type))
        if name == "MULTISET":
            self._advance()
            return t.MultisetType(self._angled(self.flink_type))
        if name == "MAP":
            self._advance()
            return self._angled(self._map_parts)
        if name == "ROW":
            self._advance()
            return self._row_type()
        self.raise_error(
            "Expecting a type (BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, TIMESTAMP(3), ROW<…> …)"
        )
        raise AssertionError  # raise_error never returns

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

    def _angled(self, inner: Any) -> Any:
        if not self._match(TokenType.LT):
            self.raise_error("Expecting '<'")
        value = inner()
        self._close_angle()
        return value

    def _close_angle(self) -> None:
        if not self._match(TokenType.GT):
            self.raise_error("Expecting '>'")

    def _map_parts(self) -> t.MapType:
        key = self.flink_type()
        if not self._match(TokenType.COMMA):
            self.raise_error("Expecting ',' between key and value type")
        return t.MapType(key, self.flink_type())

    def _row_type(self) -> t.RowType:
        closing = TokenType.GT
        if self._match(TokenType.L_PAREN):
            closing = TokenType.R_PAREN
        elif self._match(TokenType.NEQ):  # ROW<>
            return t.RowType(())
        elif not self._match(TokenType.LT):
            self.raise_error("Expecting '<' after ROW")
        fields: list[t.Field] = []
        while not self._match(closing):
            if fields and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or the end of the ROW type")
            name = self._require(self._parse_id_var(any_token=True), "a field name").name
            type_ = self.flink_type()
            if self._match(TokenType.STRING):
                pass  # a field's comment carries no meaning
            fields.append(t.Field(name, type_))
        return t.RowType(tuple(fields))

    def _unit(self) -> str:
        text = self._curr.text.upper() if self._curr else ""
        unit = text[:-1] if text.endswith("S") and text[:-1] in UNITS else text
        if unit not in UNITS:
            self.raise_error("Expecting a time unit (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND …)")
        self._advance()
        if unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
            self._parenthesised_numbers(2)
        return unit

    # -- expressions --------------------------------------------------------------------

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        """A primary expression. Types are never expressions here."""
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
        """``(a - b) unit [TO unit]``; a plain difference when no unit follows."""
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

    def _call(self, name: str, *args: Any) -> exp.Expression:
        given = [a for a in args if a is not None]
        return exp.Anonymous(this=name, expressions=given)

    def _operand(self) -> exp.Expression:
        return self._require(self._parse_disjunction(), "an expression")

    def _flink_cast(self, safe: bool) -> exp.Expression:
        this = self._operand()
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expecting AS and a type")
        node = TypedCast(this=this, safe=safe)
        node.meta["type"] = self.flink_type()
        return node

    def _word(self, text: str) -> exp.Expression:
        return self.expression(exp.Literal.string(text), self._prev)

    def _flink_extract(self) -> exp.Expression:
        unit = self._word(self._unit())
        self._expect("FROM")
        return self._call("EXTRACT", unit, self._operand())

    def _flink_trim(self) -> exp.Expression:
        side = "BOTH"
        for word in ("BOTH", "LEADING", "TRAILING"):
            if self._match_text_seq(word):
                side = word
        if self._match_text_seq("FROM"):
            return self._call("TRIM", self._word(side), self._word(" "), self._operand())
        first = self._operand()
        if self._match_text_seq("FROM"):
            return self._call("TRIM", self._word(side), first, self._operand())
        if self._match(TokenType.COMMA):
            return self._call("TRIM", self._word(side), self._operand(), first)
        return self._call("TRIM", self._word(side), self._word(" "), first)

    def _flink_substring(self) -> exp.Expression:
        args = [self._operand()]
        if self._match_text_seq("FROM"):
            args.append(self._operand())
            if self._match_text_seq("FOR"):
                args.append(self._operand())
        else:
            while self._match(TokenType.COMMA):
                args.append(self._operand())
        return self._call("SUBSTRING", *args)

    def _flink_position(self) -> exp.Expression:
        what = self._require(self._parse_bitwise(), "an expression")
        self._expect("IN")
        return self._call("POSITION", what, self._operand())

    def _flink_overlay(self) -> exp.Expression:
        args = [self._operand()]
        self._expect("PLACING")
        args.append(self._operand())
        self._expect("FROM")
        args.append(self._operand())
        if self._match_text_seq("FOR"):
            args.append(self._operand())
        return self._call("OVERLAY", *args)

    def _flink_ceil_floor(self, name: str) -> exp.Expression:
        this = self._operand()
        if self._match_text_seq("TO"):
            return self._call(name, this, self._word(self._unit()))
        return self._call(name, this)

    def _flink_unit_first(self, name: str) -> exp.Expression:
        unit = self._word(self._unit())
        args = []
        while self._match(TokenType.COMMA):
            args.append(self._operand())
        return self._call(name, unit, *args)

    def _flink_json(self, name: str) -> exp.Expression:
        args = [self._operand()]
        while self._match(TokenType.COMMA):
            args.append(self._operand())
        options: dict[str, Any] = {}
        if self._match_text_seq("RETURNING"):
            options["returning"] = self.flink_type()
        if self._match_text_seq("WITHOUT"):
            self._match_text_seq("ARRAY")
            self._expect("WRAPPER")
            options["wrapper"] = "WITHOUT"
        elif self._match_text_seq("WITH"):
            kind = "CONDITIONAL" if self._match_text_seq("CONDITIONAL") else "UNCONDITIONAL"
            self._match_text_seq("UNCONDITIONAL")
            self._match_text_seq("ARRAY")
            self._expect("WRAPPER")
            options["wrapper"] = kind
        while True:
            index = self._index
            behaviour: Any = None
            if self._match_text_seq("DEFAULT"):
                behaviour = ("DEFAULT", self._require(self._parse_bitwise(), "a default value"))
            else:
                for words in (("EMPTY", "ARRAY"), ("EMPTY", "OBJECT"), ("NULL",), ("ERROR",), ("TRUE",),
                              ("FALSE",), ("UNKNOWN",)):  # fmt: skip
                    if self._match_text_seq(*words):
                        behaviour = (" ".join(words), None)
                        break
            if behaviour is None or not self._match_text_seq("ON"):
                self._retreat(index)
                break
            if self._match_text_seq("EMPTY"):
                options["on_empty"] = behaviour
            else:
                self._expect("ERROR")
                options["on_error"] = behaviour
        node = JsonCall(name=name, expressions=args)
        node.meta["options"] = options
        return node

    def _on_null(self, default: str) -> str:
        for word in ("NULL", "ABSENT"):
            if self._match_text_seq(word, "ON", "NULL"):
                return word
        return default

    def _flink_json_object(self, name: str) -> exp.Expression:
        args: list[Any] = []
        while not self._match(TokenType.R_PAREN, advance=False):
            if self._match_text_seq("NULL", "ON", "NULL", advance=False) or self._match_text_seq(
                "ABSENT", "ON", "NULL", advance=False
            ):
                break
            if args and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ','")
            self._match_text_seq("KEY")
            args.append(self._require(self._parse_bitwise(), "a key"))
            if not self._match(TokenType.COLON):
                self._expect("VALUE")
            args.append(self._operand())
        node = JsonCall(name=name, expressions=args)
        node.meta["options"] = {"on_null": self._on_null("NULL")}
        return node

    def _flink_json_array(self, name: str) -> exp.Expression:
        args: list[Any] = []
        while not self._match(TokenType.R_PAREN, advance=False):
            if self._match_text_seq("NULL", "ON", "NULL", advance=False) or self._match_text_seq(
                "ABSENT", "ON", "NULL", advance=False
            ):
                break
            if args and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ','")
            args.append(self._operand())
        node = JsonCall(name=name, expressions=args)
        node.meta["options"] = {"on_null": self._on_null("ABSENT")}
        return node

    # -- table references ---------------------------------------------------------------

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        if self._curr.text.upper() == "LATERAL" and self._next.text.upper() == "TABLE":
            self._advance()
            return self._lateral_table()
        if self._curr.token_type == TokenType.TABLE and self._next.token_type == TokenType.L_PAREN:
            return self._lateral_table()
        index = self._index
        if self._match_set(self.ID_VAR_TOKENS | {TokenType.IDENTIFIER}):
            while self._match(TokenType.DOT):
                self._advance()
            if self._match_text_seq("FOR", "SYSTEM_TIME", "AS", "OF"):
                self._retreat(index)
                return self._as_of()
            self._retreat(index)
        return super()._parse_table(*args, **kwargs)

    def _as_of(self) -> exp.Expression:
        table = self._parse_table_parts()
        self._expect("FOR", "SYSTEM_TIME", "AS", "OF")
        time = self._require(self._parse_bitwise(), "a time column")
        return self.expression(AsOf(this=table, time=time, alias=self._parse_table_alias()))

    def _lateral_table(self) -> exp.Expression:
        token = self._curr
        self._advance()
        self._open()
        name_token = self._curr
        name = self._require(self._parse_id_var(any_token=True), "a table function").name
        self._open()
        args: list[Any] = []
        while not self._match(TokenType.R_PAREN):
            if args and not self._match(TokenType.COMMA):
                self.raise_error("Expecting ',' or ')'")
            args.append(self._table_function_argument())
        self._close()
        node = self.expression(TableFunction(name=name, expressions=args), name_token or token)
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
                this = self._require(self._parse_select(), "a query")
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
    """Registered with sqlglot as ``flink``; used through ``statements.parse_script``."""

    Tokenizer = FlinkTokenizer
    Parser = FlinkParser


def flink_parser() -> FlinkParser:
    return FlinkParser(error_level=ErrorLevel.IMMEDIATE, dialect=Flink())
