"""Pieces of syntax trees as SQL's parser makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import SpecError, SqlError
from penstock.sql.statements import catalog_name, foreign_part

if TYPE_CHECKING:
    from collections.abc import Sequence


def identifier(name: str) -> exp.Identifier:
    """A name; any text can be one."""
    return exp.Identifier(this=name, quoted=True)


def path_parts(path: str) -> list[str]:
    """The names of ``catalog.database.table``, each perhaps in backticks.

    Raises:
        SpecError: The text is no path.
        SqlError: The catalog or database is none that is there.
    """
    if not isinstance(path, str):
        raise SpecError("not a path", expected="a table's name", got=repr(path))
    parts: list[str] = []
    rest = path.strip()
    while rest:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            part, rest = rest[1:end], rest[end + 1 :]
            found = end > 0
        else:
            part, dot, after = rest.partition(".")
            rest, found = (dot + after), bool(part.strip())
            part = part.strip()
        if not found or not part or (rest and not rest.startswith(".")) or rest == ".":
            parts = []
            break
        parts.append(part)
        rest = rest[1:]
    if not parts:
        raise SpecError(
            "not a path", expected="name, database.name or catalog.database.name; names may stand in backticks",
            got=repr(path),
        )  # fmt: skip
    foreign = foreign_part(parts)
    if foreign is not None:
        raise SqlError(
            f"unknown {foreign}",
            expected="name, database.name or catalog.database.name",
            got=repr(path),
        )
    return parts


def path_name(path: str) -> str:
    """The catalog's name of what a path names."""
    return catalog_name(path_parts(path))


def table_node(path: str) -> exp.Table:
    """A table's name where a query may stand."""
    parts = [identifier(part) for part in path_parts(path)]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def named_table(name: str) -> exp.Table:
    """The input ``name`` of a step."""
    return exp.Table(this=identifier(name))


def column(*names: str) -> exp.Expression:
    """``a`` or ``t.a``"""
    if len(names) == 1:
        return exp.Column(this=identifier(names[0]))
    return exp.Column(this=identifier(names[1]), table=identifier(names[0]))


def call(name: str, arguments: Sequence[exp.Expression]) -> exp.Anonymous:
    """``name(arguments)``, as the parser makes it."""
    return exp.Anonymous(this=name, expressions=list(arguments))
