"""The sink of dead letters: what the job's operators set aside, as rows of a table of the user's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import DEAD_LETTER_TABLE
from penstock.errors import SqlError, nearest
from penstock.functions.expr import Expr, InputRef
from penstock.functions.registry import make_call
from penstock.jobgraph.letters import LETTER_SCHEMA
from penstock.plan import nodes as n
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence


def letter_sink(table: n.TableRef, *, bounded: bool) -> n.Sink:
    """The sink that writes dead letters into ``table``, whose columns are letters' columns, in any order.

    ``bounded``: the job's sources are. Raises SqlError for a column that a letter does not have, and for a table that
    itself sets records aside.
    """
    where = f"table '{table.name}' (configuration key '{DEAD_LETTER_TABLE.key}')"
    if table.options.get("on-error") == "dead-letter":
        raise SqlError(
            "the table of dead letters cannot set its own records aside",
            expected="'on-error' = 'fail' or 'skip'",
            got="'dead-letter'",
            where=where,
            remedy="remove 'on-error' from the table",
        )
    letter = n.DeadLetters(bounded=bounded)
    expressions = [_column(field, where) for field in table.schema.fields]
    schema = Schema(
        tuple(Field(f.name, e.type) for f, e in zip(table.schema.fields, expressions, strict=True))
    )
    project = n.Project(input=letter, expressions=tuple(expressions), schema=schema)
    return n.Sink(
        input=project,
        table=table,
        name=f"{table.name} (dead letters)",
        schema=table.schema,
        upsert_keys=_keys(table),
    )


def _column(field: Field, where: str) -> Expr:
    names: Sequence[str] = LETTER_SCHEMA.names
    if field.name not in names:
        raise SqlError(
            f"a dead letter has no column '{field.name}'",
            expected="columns of " + ", ".join(f"{f.name} {f.type}" for f in LETTER_SCHEMA.fields),
            got=f"'{field.name}'",
            where=where,
            remedy=nearest(field.name, names) or "leave the column out",
        )
    index = names.index(field.name)
    value: Expr = InputRef(index, LETTER_SCHEMA.types[index])
    if value.type.with_nullable(True) != field.type.with_nullable(True):
        value = make_call("CAST", [value], type=field.type.with_nullable(value.type.nullable))
    return value


def _keys(table: n.TableRef) -> tuple[int, ...]:
    return tuple(table.schema.names.index(name) for name in table.primary_key)
