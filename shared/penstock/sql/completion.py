"""Suggests words that complete an unfinished statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.registry import known_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sql.catalog import Catalog

KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "ON",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "INTERVAL",
    "CREATE",
    "TABLE",
    "VIEW",
    "TEMPORARY",
    "FUNCTION",
    "WITH",
    "WATERMARK",
    "FOR",
    "PRIMARY",
    "KEY",
    "INSERT",
    "INTO",
    "VALUES",
    "UNION",
    "ALL",
    "DISTINCT",
    "TUMBLE",
    "HOP",
    "CUMULATE",
    "SESSION",
    "DESCRIPTOR",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "TABLES",
    "VIEWS",
    "FUNCTIONS",
    "SET",
    "RESET",
    "DROP",
    "EXECUTE",
    "STATEMENT",
    "BEGIN",
]


def candidates(catalog: Catalog, word: str) -> Iterator[str]:
    """Tables, columns, keywords and functions that begin with ``word``, in this order."""
    names = [*catalog.tables, *catalog.views]
    columns = [f.name for table in catalog.tables.values() for f in table.schema.fields]
    seen: set[str] = set()
    for name in [*names, *columns, *KEYWORDS, *known_functions()]:
        if name.lower().startswith(word.lower()) and name not in seen:
            seen.add(name)
            yield name
