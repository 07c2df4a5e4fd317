"""Parses SQL's types into ``LogicalType``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sqlglot.tokens import TokenType

from penstock.errors import PenstockError, SqlError, nearest
from penstock.sql.errors import position_in
from penstock.sql.parser_base import ParserBase, meant
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SIMPLE_TYPES: dict[str, t.LogicalType] = {
    "BOOLEAN": t.BooleanType(), "TINYINT": t.TinyIntType(), "SMALLINT": t.SmallIntType(),
    "INT": t.IntType(), "INTEGER": t.IntType(), "BIGINT": t.BigIntType(), "FLOAT": t.FloatType(),
    "DOUBLE": t.DoubleType(), "STRING": t.VarCharType(), "BYTES": t.VarBinaryType(),
    "DATE": t.DateType(), "NULL": t.NullType(), "VARIANT": t.VariantType(),
}  # fmt: skip


class TypeSyntax(ParserBase):
    """Parses types; ``flink_type`` is the entry."""

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
                remedy=err.remedy,
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
        names = [*_SIMPLE_TYPES, "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "NUMERIC", "TIME", "TIMESTAMP",
                 "TIMESTAMP_LTZ", "INTERVAL", "ARRAY", "MULTISET", "MAP", "ROW"]  # fmt: skip
        # The mistyped clause ``WATERMRK FOR …`` looks like a column of the type FOR.
        clause = meant(self._prev.text, ("WATERMARK", "PRIMARY", "CONSTRAINT")) if self._prev else None
        nearby = clause or (nearest(name, names, 1) if name.isidentifier() else None)
        if name.isidentifier():
            raise SqlError(
                f"unknown type '{token.text}'",
                expected="a type: BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, TIMESTAMP(3), ROW<…> …",
                got=f"'{token.text}'",
                where=str(position_in(self.sql, token.start)),
                remedy=nearby,
            )
        self.raise_error(
            "Expecting a type (BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, TIMESTAMP(3), ROW<…> …)"
        )
        raise AssertionError  # raise_error never returns

    def _angled(self, inner: Callable[[], T]) -> T:
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
