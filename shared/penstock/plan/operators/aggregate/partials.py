"""Aggregations in two phases: the rows that the first phase sends to the second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.accumulators import accumulator_types
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from penstock.plan.operators.aggregate.node import Grouping


def splits(node: Grouping) -> bool:
    """Whether the aggregation can have two phases: every aggregate has partial accumulators."""
    types = node.input.schema.types
    return all(accumulator_types(c, [types[a] for a in c.args]) is not None for c in node.aggregates)


def partials(node: Grouping, between: tuple[Field, ...]) -> Schema:
    """The columns that a local phase sends: keys, ``between``, the accumulators' columns."""
    types = node.input.schema.types
    cells = [*(node.input.schema.fields[k] for k in node.keys), *between]
    for i, call in enumerate(node.aggregates):
        parts = accumulator_types(call, [types[a] for a in call.args])
        assert parts is not None
        cells += [Field(f"$a{i}_{j}", part) for j, part in enumerate(parts)]
    taken: set[str] = set()
    return Schema(tuple(Field(_free(f.name, taken), f.type) for f in cells))


def _free(name: str, taken: set[str]) -> str:
    candidate, i = name, 0
    while candidate in taken:
        candidate, i = f"{name}_{i}", i + 1
    taken.add(candidate)
    return candidate
