"""The declaration of a table after ALTER TABLE ADD, MODIFY, DROP or RENAME."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.errors import did_you_mean
from penstock.sql.reading import column_parts
from penstock.sql.statements import AlterColumns, ColumnDef, CreateTable, PartitionClause

if TYPE_CHECKING:
    from penstock.sql.catalog import Table
    from penstock.sql.statements import WatermarkClause

T = TypeVar("T")
_INLINE_KEY = re.compile(r"\s+PRIMARY\s+KEY\s+NOT\s+ENFORCED", re.IGNORECASE)
_NAME = re.compile(r"^\s*(`(?:[^`]|``)*`|\w+)")


def altered(table: Table, change: AlterColumns) -> CreateTable:
    """``table`` as the CREATE TABLE that declares it with the change. Raises SqlError if the change does not fit."""
    columns = [
        replace(c, primary_key=False, text=_INLINE_KEY.sub("", c.text)) if c.primary_key else c
        for c in table.columns
    ]
    key, watermark, partitions = table.primary_key, table.watermark_clause, table.partition_keys
    text = table.text
    match change.what:
        case "ADD" | "MODIFY":
            columns, text = _placed(table, columns, change), change.text
            inline = tuple(p.column.name for p in change.columns if p.column.primary_key)
            columns = [
                replace(c, primary_key=False, text=_INLINE_KEY.sub("", c.text)) if c.primary_key else c
                for c in columns
            ]
            key = _new(table, change, "a primary key", key, change.primary_key or inline)
            watermark = _new(table, change, "a watermark", watermark, change.watermark)
        case "DROP" if change.without == "PRIMARY KEY":
            key = _taken(table, change, "primary key", key, ())
        case "DROP" if change.without == "WATERMARK":
            watermark = _taken(table, change, "watermark", watermark, None)
        case "DROP":
            for name in change.dropped:
                _known(table, change, columns, name)
                _unused(table, change, name, others=[c for c in columns if c.name not in change.dropped])
                if name in key or name in partitions:
                    raise _error(
                        change,
                        f"column '{name}' is part of the {'primary' if name in key else 'partition'} key",
                    )
            columns = [c for c in columns if c.name not in change.dropped]
        case "RENAME":
            assert change.renamed is not None
            old, new = change.renamed
            _known(table, change, columns, old)
            if any(c.name == new for c in columns):
                raise _error(change, f"column '{new}' exists already", expected="a new name")
            _unused(table, change, old, others=columns)
            columns = [
                replace(c, name=new, text=_renamed(c.text, new)) if c.name == old else c for c in columns
            ]
            key, partitions = (tuple(new if x == old else x for x in names) for names in (key, partitions))
    return CreateTable(
        table.name,
        change.position,
        tuple(columns),
        dict(table.options),
        watermark=watermark,
        primary_key=key,
        temporary=table.temporary,
        text=text,
        comment=table.comment,
        partitions=PartitionClause(partitions, change.position) if partitions else None,
    )


def _renamed(declaration: str, new: str) -> str:
    quoted = "`" + new.replace("`", "``") + "`"
    return _NAME.sub(lambda _: quoted, declaration, count=1)


def _placed(table: Table, columns: list[ColumnDef], change: AlterColumns) -> list[ColumnDef]:
    for placed in change.columns:
        name = placed.column.name
        at = next((i for i, c in enumerate(columns) if c.name == name), None)
        if change.what == "MODIFY":
            _known(table, change, columns, name)
            assert at is not None
            columns = columns[:at] + columns[at + 1 :]
        elif at is not None:
            raise _error(
                change, f"column '{name}' exists already", expected="a new column", remedy="MODIFY changes it"
            )
        if placed.first:
            place = 0
        elif placed.after is not None:
            _known(table, change, columns, placed.after)
            place = next(i for i, c in enumerate(columns) if c.name == placed.after) + 1
        else:
            place = len(columns) if at is None else at
        columns = [*columns[:place], placed.column, *columns[place:]]
    return columns


def _new(table: Table, change: AlterColumns, what: str, have: T, given: T) -> T:
    """The key or watermark after ADD or MODIFY."""
    if not given:
        return have
    if change.what == "ADD" and have:
        raise _error(change, f"table '{table.name}' has {what} already", remedy="MODIFY changes it")
    if change.what == "MODIFY" and not have:
        raise _error(change, f"table '{table.name}' does not have {what}", remedy="ADD it")
    return given


def _taken(table: Table, change: AlterColumns, what: str, have: T, none: T) -> T:
    if not have:
        raise _error(change, f"table '{table.name}' has no {what}")
    return none


def _known(table: Table, change: AlterColumns, columns: list[ColumnDef], name: str) -> None:
    names = [c.name for c in columns]
    if name not in names:
        raise _error(
            change,
            f"unknown column '{name}'",
            expected="one of " + ", ".join(names),
            remedy=did_you_mean(name, names),
        )


def _unused(table: Table, change: AlterColumns, name: str, others: list[ColumnDef]) -> None:
    """Raises SqlError if a computed column or the watermark reads the column."""
    for column in others:
        if column.name != name and column.expression is not None and _reads(column.expression, name):
            raise _error(change, f"column '{name}' is read by the computed column '{column.name}'")
    clause: WatermarkClause | None = table.watermark_clause
    if clause is not None and (clause.parts[0] == name or _reads(clause.expression, name)):
        raise _error(change, f"column '{name}' is read by the watermark", remedy="DROP WATERMARK first")


def _reads(expression: exp.Expression, name: str) -> bool:
    return any(column_parts(c)[0] == name for c in expression.find_all(exp.Column))


def _error(
    change: AlterColumns, message: str, *, expected: str | None = None, remedy: str | None = None
) -> SqlError:
    return SqlError(message, expected=expected, where=str(change.position), remedy=remedy)
