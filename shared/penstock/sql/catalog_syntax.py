"""Parses statements about catalogs and databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.alter_syntax import AlterSyntax
from penstock.sql.statements import CatalogStatement

if TYPE_CHECKING:
    from penstock.sql.errors import Position

_STATEMENTS = {
    (verb, kind)
    for verb in ("CREATE", "ALTER", "DROP", "DESCRIBE", "DESC")
    for kind in ("CATALOG", "DATABASE")
}


class CatalogSyntax(AlterSyntax):
    """Parses CREATE, ALTER, DROP and DESCRIBE of a CATALOG or DATABASE."""

    def catalog_statement(self, here: Position) -> CatalogStatement | None:
        """The statement that begins at the current token; None if it is not about a catalog or database."""
        words = (self._curr.text.upper(), self._next.text.upper() if self._next else "")
        if words not in _STATEMENTS:
            return None
        self._advance(2)
        verb, kind = words
        verb = "DESCRIBE" if verb == "DESC" else verb
        extended = bool(verb == "DESCRIBE" and self._match_text_seq("EXTENDED"))
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
        removed: tuple[str, ...] = ()
        if verb == "ALTER":
            options, removed = self._altered(kind)
        cascade = bool(verb == "DROP" and kind == "DATABASE" and self._match_text_seq("CASCADE"))
        if verb == "DROP" and kind == "DATABASE" and not cascade:
            self._match_text_seq("RESTRICT")
        return CatalogStatement(
            f"{verb} {kind}", name, here, options, quiet, cascade, removed=removed, extended=extended
        )

    def _altered(self, kind: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """Parses ``SET ('key' = 'value', …)``, and of a catalog ``RESET ('key', …)`` and ``COMMENT 'text'``."""
        if kind == "CATALOG":
            comment = self._comment()
            if comment is not None:
                return {"comment": comment}, ()
            if self._match_text_seq("RESET"):
                self._open()
                keys = self._parse_csv(lambda: self._text("a key in quotes"))
                self._close()
                return {}, tuple(keys)
        if not self._match_text_seq("SET"):
            self.raise_error("Expecting SET" + (", RESET or COMMENT" if kind == "CATALOG" else ""))
        return self._options(), ()
