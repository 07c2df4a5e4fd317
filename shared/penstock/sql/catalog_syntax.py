"""Parses statements about catalogs and databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.alter_syntax import AlterSyntax
from penstock.sql.statements import CatalogStatement

if TYPE_CHECKING:
    from penstock.sql.errors import Position

_STATEMENTS = {
    ("CREATE", "CATALOG"), ("DROP", "CATALOG"), ("DESCRIBE", "CATALOG"), ("DESC", "CATALOG"),
    ("CREATE", "DATABASE"), ("ALTER", "DATABASE"), ("DROP", "DATABASE"),
}  # fmt: skip


class CatalogSyntax(AlterSyntax):
    """Parses CREATE, DROP and DESCRIBE CATALOG, and CREATE, ALTER and DROP DATABASE."""

    def catalog_statement(self, here: Position) -> CatalogStatement | None:
        """The statement that begins at the current token; None if it is not about a catalog or database."""
        words = (self._curr.text.upper(), self._next.text.upper() if self._next else "")
        if words not in _STATEMENTS:
            return None
        self._advance(2)
        verb, kind = words
        verb = "DESCRIBE" if verb == "DESC" else verb
        if verb == "DESCRIBE":
            self._match_text_seq("EXTENDED")
        quiet = verb in ("CREATE", "DROP") and self._exists(
            *(("NOT", "EXISTS") if verb == "CREATE" else ("EXISTS",))
        )
        name = self._dotted(f"a {kind.lower()}'s name")
        options: dict[str, str] = {}
        if verb == "CREATE":
            comment = self._comment()
            if comment is not None:
                options["comment"] = comment
            if self._match_text_seq("WITH"):
                options.update(self._options())
        elif verb == "ALTER":
            self._expect("SET")
            options = self._options()
        cascade = bool(verb == "DROP" and kind == "DATABASE" and self._match_text_seq("CASCADE"))
        if verb == "DROP" and kind == "DATABASE" and not cascade:
            self._match_text_seq("RESTRICT")
        return CatalogStatement(f"{verb} {kind}", name, here, options, quiet, cascade)
