"""Parses ALTER TABLE and ALTER VIEW."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot.tokens import TokenType

from penstock.errors import UnsupportedError
from penstock.sql.ddl_syntax import DdlSyntax
from penstock.sql.errors import position_in
from penstock.sql.refused import REFUSED_CHANGES
from penstock.sql.statements import AlterColumns, AlterTable, AlterView, PlacedColumn

if TYPE_CHECKING:
    from penstock.sql.errors import Position
    from penstock.sql.statements import Statement


class AlterSyntax(DdlSyntax):
    """Parses ALTER TABLE and ALTER VIEW."""

    def _alter(self, here: Position) -> Statement:
        self._advance()
        view = bool(self._match_text_seq("VIEW"))
        if not view and not self._match_text_seq("TABLE"):
            self.raise_error("Expecting TABLE or VIEW after ALTER")
        quiet = not view and self._exists("EXISTS")
        position = position_in(self.sql, self._curr.start)
        name = self._dotted(f"a {'view' if view else 'table'}'s name")
        if self._match_text_seq("RENAME", "TO"):
            new_name = self._dotted("a new name")
            return (
                AlterView(name, position, new_name)
                if view
                else AlterTable(name, position, new_name, if_exists=quiet)
            )
        if view:
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expecting RENAME TO or AS behind the view's name")
            start = self._curr
            query = self._query()
            return AlterView(name, position, query=query, query_text=self._written(start))
        if self._match_text_seq("SET"):
            return AlterTable(name, position, options=self._options(), if_exists=quiet)
        if self._match_text_seq("RESET"):
            self._open()
            keys = tuple(self._parse_csv(lambda: self._text("a quoted option key")))
            self._close()
            return AlterTable(name, position, keys=keys, if_exists=quiet)
        word = self._curr.text.upper() if self._curr else ""
        if word in ("ADD", "DROP") and self._next and self._next.text.upper() in ("PARTITION", "IF"):
            raise UnsupportedError(
                f"ALTER TABLE … {word} PARTITION",
                expected="INSERT INTO t, which makes the partitions of its rows",
                where=str(position_in(self.sql, self._curr.start)),
                remedy="a partition is a folder of the table's path: make it or remove it there; INSERT OVERWRITE t "
                "PARTITION (…) with a query that gives no row empties it",
            )
        behind = self._next.text.upper() if self._next else ""
        if word in ("ADD", "MODIFY", "DROP") and behind == "DISTRIBUTION":
            raise UnsupportedError(
                f"ALTER TABLE … {word} DISTRIBUTION",
                expected="a table without buckets",
                where=str(position_in(self.sql, self._curr.start)),
                remedy="leave it out: PARTITIONED BY of CREATE TABLE makes a folder for each value",
            )
        if word == "COMPACT":
            raise UnsupportedError(
                "ALTER TABLE … COMPACT",
                where=str(position_in(self.sql, self._curr.start)),
                remedy=REFUSED_CHANGES[word],
            )
        if word in ("ADD", "MODIFY"):
            self._advance()
            return self._components(AlterColumns(name, position, word, if_exists=quiet))
        if word == "DROP":
            self._advance()
            return self._dropped(AlterColumns(name, position, "DROP", if_exists=quiet))
        if self._match_text_seq("RENAME"):
            old = self._name("a column, or TO and a new name").name
            self._expect("TO")
            return AlterColumns(
                name, position, "RENAME", renamed=(old, self._name("a new name").name), if_exists=quiet
            )
        self.raise_error("Expecting RENAME, SET, RESET, ADD, MODIFY or DROP behind the table's name")
        raise AssertionError

    def _components(self, made: AlterColumns) -> AlterColumns:
        """The columns, key and watermark of ADD and MODIFY, in parentheses or one of them alone."""
        wrapped = bool(self._match(TokenType.L_PAREN))
        columns: list[PlacedColumn] = []
        first = True
        while first or (wrapped and self._match(TokenType.COMMA)):
            first = False
            if self._match_text_seq("WATERMARK", "FOR"):
                if made.watermark is not None:
                    self.raise_error("Expecting one WATERMARK only")
                made = replace(made, watermark=self._watermark())
            elif (
                self._match_text_seq("CONSTRAINT", advance=False)
                or self._match_text_seq("PRIMARY", "KEY", advance=False)
                or self._curr.text.upper() == "PRIMARY KEY"
            ):
                if made.primary_key:
                    self.raise_error("Expecting one PRIMARY KEY only")
                if self._match_text_seq("CONSTRAINT"):
                    self._name()
                made = replace(made, primary_key=self._primary_key())
            else:
                columns.append(self._placed())
        if wrapped:
            self._close()
        return replace(made, columns=tuple(columns))

    def _placed(self) -> PlacedColumn:
        column = self._column()
        if self._match_text_seq("FIRST"):
            return PlacedColumn(column, first=True)
        if self._match_text_seq("AFTER"):
            return PlacedColumn(column, after=self._name("a column").name)
        return PlacedColumn(column)

    def _dropped(self, made: AlterColumns) -> AlterColumns:
        if self._match_text_seq("WATERMARK"):
            return replace(made, without="WATERMARK")
        if self._match_text_seq("PRIMARY", "KEY") or self._match(TokenType.PRIMARY_KEY):
            return replace(made, without="PRIMARY KEY")
        if self._match_text_seq("CONSTRAINT"):
            self._name("the constraint's name")
            return replace(made, without="PRIMARY KEY")
        if self._match(TokenType.L_PAREN, advance=False):
            return replace(made, dropped=self._names())
        return replace(made, dropped=(self._name("a column").name,))
