"""Split assignments: the rows that an enumerator vertex sends to its readers.

A source consists of two vertices: an enumerator (``EnumeratorSpec``, parallelism 1) and the readers
(``SourceSpec``). A broadcast edge with ``ASSIGNMENT_SCHEMA`` connects them. Every reader receives every
assignment and keeps those whose ``owner`` is its subtask index.
"""

from __future__ import annotations

from penstock.types.logical import IntType, Schema, VarCharType

#: ``owner``: the subtask index of the reader that reads the split.
#: ``split``: JSON of ``penstock.connectors.base.Split``.
ASSIGNMENT_SCHEMA: Schema = Schema.of(
    ("owner", IntType(nullable=False)),
    ("split", VarCharType(nullable=False)),
)


def owner_of_split(order: int, parallelism: int) -> int:
    """The subtask index of the reader of the split that was discovered as number ``order``, counted from 0."""
    return order % parallelism
