"""Parses functions with words between their arguments: CAST, EXTRACT, TRIM, JSON_VALUE …"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from penstock.sql.syntax import JsonCall, TypedCast
from penstock.sql.type_syntax import TypeSyntax


class FunctionSyntax(TypeSyntax):
    """One method for each function, called after the function's name and opening parenthesis."""

    def _call(self, name: str, *args: Any) -> exp.Expression:
        given = [a for a in args if a is not None]
        return exp.Anonymous(this=name, expressions=given)

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
