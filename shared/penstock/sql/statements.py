"""Statements: one dataclass each.

Expressions and queries inside stay sqlglot trees (``dialect``) until the binder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Union

from penstock.sql.errors import NOWHERE, Position

if TYPE_CHECKING:
    from sqlglot import exp

    from penstock.types.logical import LogicalType


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE: physical (type), metadata (type + key) or computed (expr)."""

    name: str
    kind: Literal["physical", "metadata", "computed"]
    position: Position
    type: LogicalType | None = None
    expression: exp.Expression | None = None
    metadata_key: str | None = None
    virtual: bool = False
    primary_key: bool = False


@dataclass(frozen=True, slots=True)
class LikeClause:
    name: str
    position: Position
    #: feature → INCLUDING | EXCLUDING | OVERWRITING
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: str
    position: Position
    columns: tuple[ColumnDef, ...]
    options: dict[str, str]
    watermark: tuple[tuple[str, ...], exp.Expression, Position] | None = None
    primary_key: tuple[str, ...] = ()
    like: LikeClause | None = None
    temporary: bool = False
    if_not_exists: bool = False
    query: exp.Expression | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    position: Position
    query: exp.Expression
    columns: tuple[str, ...] = ()
    temporary: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateFunction:
    name: str
    position: Position
    target: str
    language: str
    temporary: bool = False
    if_not_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    kind: Literal["TABLE", "VIEW", "FUNCTION"]
    name: str
    position: Position
    if_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    table: str
    position: Position
    query: exp.Expression
    columns: tuple[exp.Identifier, ...] = ()
    overwrite: bool = False
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    query: exp.Expression
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatementSet:
    inserts: tuple[Insert, ...]
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET 'key' = 'value'; without key: show all."""

    key: str | None = None
    value: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class ResetOption:
    key: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explain:
    statement: Insert | Query | StatementSet
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Show:
    what: str
    name: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Describe:
    name: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    what: str
    name: str
    position: Position = NOWHERE
    text: str = ""


Statement = Union[
    CreateTable, CreateView, CreateFunction, Drop, Insert, Query, StatementSet, SetOption,
    ResetOption, Explain, Show, Describe, Use,
]  # fmt: skip


def catalog_name(parts: list[str]) -> str:
    """One catalog and one database exist: their names fall away from a dotted name."""
    if len(parts) == 3 and parts[0] == "default_catalog":
        parts = parts[1:]
    if len(parts) == 2 and parts[0] == "default_database":
        parts = parts[1:]
    return ".".join(parts)
