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


class OptionText(str):
    """An option's value, with the places of its key and of itself in the text."""

    __slots__ = ("key_position", "position")

    key_position: Position
    position: Position

    def __new__(cls, value: str, key_position: Position, position: Position) -> OptionText:
        made = super().__new__(cls, value)
        made.key_position, made.position = key_position, position
        return made


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
    #: The declaration as written.
    text: str = ""
    #: A computed column's expression as written.
    expression_text: str = ""
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """``WATERMARK FOR a.b AS expression``; ``text``: the expression as written."""

    parts: tuple[str, ...]
    expression: exp.Expression
    position: Position
    text: str


@dataclass(frozen=True, slots=True)
class PartitionClause:
    """``PARTITIONED BY (columns)``."""

    columns: tuple[str, ...]
    position: Position


@dataclass(frozen=True, slots=True)
class LikeClause:
    """LIKE of CREATE TABLE: another table, and which of its features to take."""

    name: str
    position: Position
    #: feature → INCLUDING | EXCLUDING | OVERWRITING
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE."""

    name: str
    position: Position
    columns: tuple[ColumnDef, ...]
    options: dict[str, str]
    watermark: WatermarkClause | None = None
    primary_key: tuple[str, ...] = ()
    like: LikeClause | None = None
    temporary: bool = False
    if_not_exists: bool = False
    query: exp.Expression | None = None
    text: str = ""
    comment: str | None = None
    partitions: PartitionClause | None = None


@dataclass(frozen=True, slots=True)
class AlterTable:
    """RENAME TO ``new_name``; SET ``options``; RESET ``keys``."""

    name: str
    position: Position
    new_name: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    if_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class AlterView:
    """RENAME TO ``new_name``; AS ``query``."""

    name: str
    position: Position
    new_name: str | None = None
    query: exp.Expression | None = None
    query_text: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW."""

    name: str
    position: Position
    query: exp.Expression
    query_text: str = ""
    columns: tuple[str, ...] = ()
    temporary: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    text: str = ""
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """CREATE FUNCTION. ``target`` names the function's code."""

    name: str
    position: Position
    target: str
    language: str
    temporary: bool = False
    if_not_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP TABLE, VIEW or FUNCTION."""

    kind: Literal["TABLE", "VIEW", "FUNCTION"]
    name: str
    position: Position
    if_exists: bool = False
    temporary: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    """``partition``: the columns and values of ``PARTITION (column = value, …)``."""

    table: str
    position: Position
    query: exp.Expression
    columns: tuple[exp.Identifier, ...] = ()
    overwrite: bool = False
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""
    partition: tuple[tuple[exp.Identifier, exp.Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A query whose rows are shown."""

    query: exp.Expression
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatementSet:
    """A statement set: several INSERTs that become one job."""

    inserts: tuple[Insert, ...]
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class CompilePlan:
    """``path``: of the plan's file; ``execute``: COMPILE AND EXECUTE PLAN."""

    path: str
    statement: Insert | StatementSet
    position: Position = NOWHERE
    if_not_exists: bool = False
    execute: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ExecutePlan:
    """``path``: of a compiled plan, or of a savepoint's folder."""

    path: str
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
    """RESET of one option, or of all (``key`` None)."""

    key: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explain:
    """``details``: ESTIMATED_COST, CHANGELOG_MODE …"""

    statement: Insert | Query | StatementSet | ExecutePlan
    position: Position = NOWHERE
    text: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """``[NOT] LIKE 'text'``; ``ignore_case``: ILIKE."""

    text: str
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """``database``: of SHOW … FROM db."""

    what: str
    name: str | None = None
    pattern: Pattern | None = None
    database: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE of a table or view."""

    name: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """USE of a catalog or database."""

    what: str
    name: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class CatalogStatement:
    """CREATE, DROP and DESCRIBE CATALOG; CREATE, ALTER and DROP DATABASE: ``what`` has these words.

    ``quiet``: IF EXISTS or IF NOT EXISTS; ``cascade``: of DROP DATABASE.
    """

    what: str
    name: str
    position: Position = NOWHERE
    options: dict[str, str] = field(default_factory=dict)
    quiet: bool = False
    cascade: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """QUIT, EXIT, CLEAR or HELP: a word for the SQL client."""

    word: str
    position: Position = NOWHERE
    text: str = ""


Statement = Union[
    CreateTable, CreateView, CreateFunction, AlterTable, AlterView, Drop, Insert, Query, StatementSet, SetOption,
    CompilePlan, ExecutePlan, ResetOption, Explain, Show, Describe, Use, ClientCommand, CatalogStatement,
]  # fmt: skip


def foreign_part(parts: list[str]) -> str | None:
    """What a dotted name has too much of; a name has a catalog, a database and a table at most."""
    return f"database '{parts[-2]}'" if len(parts) > 3 else None


def catalog_name(parts: list[str]) -> str:
    """A dotted name as one text; catalogs that a session knows are looked up by it (``catalogs.names``)."""
    if len(parts) == 3 and parts[:2] == ["default_catalog", "default_database"]:
        parts = parts[2:]
    return ".".join(parts)
