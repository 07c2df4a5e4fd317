"""Dotted names in statements."""

from __future__ import annotations


def foreign_part(parts: list[str]) -> str | None:
    """The part of a dotted name that cannot exist, because a name has at most a catalog, a database and a
    table; None if the name has no such part."""
    return f"database '{parts[-2]}'" if len(parts) > 3 else None


def catalog_name(parts: list[str]) -> str:
    """A dotted name as the one text by which ``catalogs.names`` finds it, without
    the default catalog and database."""
    if len(parts) == 3 and parts[:2] == ["default_catalog", "default_database"]:
        parts = parts[2:]
    return ".".join(parts)
