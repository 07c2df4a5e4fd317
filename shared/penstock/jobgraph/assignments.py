"""Split assignments: what an enumerator vertex sends to its readers.

A source is two vertices: an enumerator (``EnumeratorSpec``, parallelism 1) and the
readers (``SourceSpec``), joined by a broadcast edge of ``ASSIGNMENT_SCHEMA``. Every
reader sees every assignment and keeps those whose ``owner`` is its subtask index.
"""

from __future__ import annotations

from penstock.types.logical import IntType, Schema, VarCharType

#: ``owner``: subtask index of the reader that reads the split.
#: ``split``: JSON of ``penstock.connectors.base.Split``.
ASSIGNMENT_SCHEMA: Schema = Schema.of(
    ("owner", IntType(nullable=False)),
    ("split", VarCharType(nullable=False)),
)


def owner_of_split(order: int, parallelism: int) -> int:
    """The reader of the ``order``-th discovered split (round robin)."""
    return order % parallelism
