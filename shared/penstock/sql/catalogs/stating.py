"""Writes the statement of a table that a foreign catalog describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def backticked(name: str) -> str:
    """A name as SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def create_statement(
    name: str, columns: Sequence[tuple[str, str]], key: Sequence[str], options: Mapping[str, str]
) -> str:
    """The CREATE TABLE statement. ``columns``: names and types, with NOT NULL where it belongs; ``key``: the columns of the
    primary key, none without one."""
    lines = [f"  {backticked(column)} {type_}" for column, type_ in columns]
    if key:
        lines.append(f"  PRIMARY KEY ({', '.join(map(backticked, key))}) NOT ENFORCED")
    given = [f"  {_quoted(k)} = {_quoted(v)}" for k, v in options.items()]
    return (
        f"CREATE TABLE {backticked(name)} (\n"
        + ",\n".join(lines)
        + "\n) WITH (\n"
        + ",\n".join(given)
        + "\n)"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
