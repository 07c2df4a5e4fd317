"""Makes the nodes of syntax trees that SQL's parser makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import SpecError, SqlError
from penstock.sql.dotted import catalog_name, foreign_part

if TYPE_CHECKING:
    from collections.abc import Sequence


def identifier(name: str) -> exp.Identifier:
    """The node of a name. Any text can be a name."""
    return exp.Identifier(this=name, quoted=True)


def path_parts(path: str) -> list[str]:
    """The names of ``catalog.database.table``, each perhaps in backticks.

    Raises:
        SpecError: The text is not a path.
        SqlError: The path has more than three parts.
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
    """The name under which the catalog has the object of a path."""
    return catalog_name(path_parts(path))


def table_node(path: str) -> exp.Table:
    """The node of a table's name."""
    parts = [identifier(part) for part in path_parts(path)]
    return exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)))


def named_table(name: str) -> exp.Table:
    """The node of a step's input ``name``."""
    return exp.Table(this=identifier(name))


def column(*names: str) -> exp.Expression:
    """The node of the column ``a`` or ``t.a``."""
    if len(names) == 1:
        return exp.Column(this=identifier(names[0]))
    return exp.Column(this=identifier(names[1]), table=identifier(names[0]))


def call(name: str, arguments: Sequence[exp.Expression]) -> exp.Anonymous:
    """The node that the parser makes of ``name(arguments)``."""
    return exp.Anonymous(this=name, expressions=list(arguments))
