"""Statements: one dataclass for each kind.

Expressions and queries inside a statement stay syntax trees of sqlglot until ``queries`` binds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Union

from penstock.sql.errors import NOWHERE, Position

if TYPE_CHECKING:
    from sqlglot import exp

    from penstock.types.logical import LogicalType


class OptionText(str):
    """An option's value, with the positions of its key and of the value in the text."""

    __slots__ = ("key_position", "position")

    key_position: Position
    position: Position

    def __new__(cls, value: str, key_position: Position, position: Position) -> OptionText:
        made = super().__new__(cls, value)
        made.key_position, made.position = key_position, position
        return made


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE: physical (has a type), metadata (type and key) or computed (expression)."""

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
    """``WATERMARK FOR a.b AS expression``. ``text``: the expression as written."""

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
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE with RENAME TO ``new_name``, SET ``options`` or RESET ``keys``."""

    name: str
    position: Position
    new_name: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    if_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column of ALTER TABLE ADD or MODIFY: FIRST, AFTER a column, or neither."""

    column: ColumnDef
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """ALTER TABLE ADD, MODIFY, DROP or RENAME of columns, key and watermark. ``without``: the key or watermark that
    DROP takes away."""

    name: str
    position: Position
    what: str
    columns: tuple[PlacedColumn, ...] = ()
    watermark: WatermarkClause | None = None
    primary_key: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    without: Literal["PRIMARY KEY", "WATERMARK"] | None = None
    renamed: tuple[str, str] | None = None
    if_exists: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class AlterView:
    """ALTER VIEW with RENAME TO ``new_name`` or AS ``query``."""

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
class Change:
    """What is particular to DELETE and UPDATE. ``table``: the table with its alias, as FROM has it."""

    verb: Literal["DELETE", "UPDATE"]
    table: exp.Table
    condition: exp.Expression | None = None
    assignments: tuple[tuple[exp.Identifier, exp.Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT, and what writes into a table by other words: TRUNCATE TABLE, an overwriting INSERT of no rows
    (``truncate``), DELETE and UPDATE (``change``); the query of these is not read.
    ``partition``: the columns and values of ``PARTITION (column = value, …)``."""

    table: str
    position: Position
    query: exp.Expression
    columns: tuple[exp.Identifier, ...] = ()
    overwrite: bool = False
    options: dict[str, str] = field(default_factory=dict)
    text: str = ""
    partition: tuple[tuple[exp.Identifier, exp.Expression], ...] = ()
    truncate: bool = False
    change: Change | None = None

    @property
    def verb(self) -> str:
        """The statement's first word."""
        return self.change.verb if self.change is not None else "TRUNCATE" if self.truncate else "INSERT"


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
    """COMPILE PLAN. ``path``: that of the plan's file. ``execute``: the
    statement is COMPILE AND EXECUTE PLAN."""

    path: str
    statement: Insert | StatementSet
    position: Position = NOWHERE
    if_not_exists: bool = False
    execute: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ExecutePlan:
    """EXECUTE PLAN. ``path``: that of a compiled plan, or of a savepoint's folder."""

    path: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET 'key' = 'value'. SET without a key shows all settings."""

    key: str | None = None
    value: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class ResetOption:
    """RESET of the setting ``key``, or of all settings if ``key`` is None."""

    key: str | None = None
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN. ``details``: its words ESTIMATED_COST, CHANGELOG_MODE …"""

    statement: Insert | Query | StatementSet | ExecutePlan
    position: Position = NOWHERE
    text: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """``[NOT] LIKE 'text'``. ``ignore_case``: the word is ILIKE."""

    text: str
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW. ``what``: the words behind SHOW. ``database``: that of SHOW … FROM database. ``partition``: the columns and
    values of SHOW PARTITIONS t PARTITION (column = value, …)."""

    what: str
    name: str | None = None
    pattern: Pattern | None = None
    database: str | None = None
    position: Position = NOWHERE
    text: str = ""
    partition: tuple[tuple[exp.Identifier, exp.Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE of a table or view, or with ``function`` of a function. ``extended``: with EXTENDED."""

    name: str
    position: Position = NOWHERE
    text: str = ""
    function: bool = False
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """USE of a catalog or database."""

    what: str
    name: str
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class CatalogStatement:
    """CREATE, ALTER, DROP and DESCRIBE of a CATALOG or DATABASE: ``what`` has these words.

    ``quiet``: the statement has IF EXISTS or IF NOT EXISTS. ``cascade``: DROP DATABASE has CASCADE. ``removed``: keys of
    RESET. ``extended``: DESCRIBE has EXTENDED.
    """

    what: str
    name: str
    position: Position = NOWHERE
    options: dict[str, str] = field(default_factory=dict)
    quiet: bool = False
    cascade: bool = False
    text: str = ""
    removed: tuple[str, ...] = ()
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """CALL. ``arguments``: (name, value); an argument that is given by its place has no name."""

    name: str
    arguments: tuple[tuple[str | None, exp.Expression], ...]
    position: Position = NOWHERE
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobStatement:
    """SHOW JOBS, DESCRIBE JOB 'id' and STOP JOB 'id' [WITH SAVEPOINT] [WITH DRAIN]."""

    what: Literal["SHOW JOBS", "DESCRIBE JOB", "STOP JOB"]
    job_id: str | None = None
    position: Position = NOWHERE
    savepoint: bool = False
    drain: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    """QUIT, EXIT, CLEAR or HELP: a word for the SQL client."""

    word: str
    position: Position = NOWHERE
    text: str = ""


Statement = Union[
    CreateTable, CreateView, CreateFunction, AlterTable, AlterColumns, AlterView, Drop, Insert, Query, StatementSet, SetOption,
    CompilePlan, ExecutePlan, ResetOption, Explain, Show, Describe, Use, ClientCommand, CatalogStatement,
    JobStatement, Call,
]  # fmt: skip
