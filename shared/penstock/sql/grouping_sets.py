"""GROUPING SETS, ROLLUP and CUBE: finds the keys of each set, and repeats each row once per set."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from penstock.functions.expr import AggregateCall, Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.plan import nodes as n
from penstock.sql.scope import unique_schema
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Type of the number of a grouping set.
SET_NUMBER = t.BigIntType(nullable=False)


def sets_of(item: exp.Expression, keys_of: Callable[[exp.Expression], list[int]]) -> list[list[int]]:
    """The sets of one GROUPING SETS, ROLLUP or CUBE. ``keys_of`` gives the
    numbers of the keys in one part."""
    if isinstance(item, exp.GroupingSets):
        out: list[list[int]] = []
        for part in item.expressions:
            nested = isinstance(part, (exp.GroupingSets, exp.Cube, exp.Rollup))
            out += sets_of(part, keys_of) if nested else [keys_of(part)]
        return out
    parts = [keys_of(part) for part in item.expressions]
    if isinstance(item, exp.Rollup):
        return [[k for part in parts[:i] for k in part] for i in range(len(parts), -1, -1)]
    picks = chain.from_iterable(combinations(parts, r) for r in range(len(parts), -1, -1))
    return [[k for part in pick for k in part] for pick in picks]


def product(sets: list[list[int]] | None, more: list[list[int]]) -> list[list[int]]:
    """Each set of ``sets`` joined with each set of ``more``; ``more`` alone if ``sets`` is None."""
    return more if sets is None else [a + b for a in sets for b in more]


def expand(
    node: n.Node, keys: list[int], calls: tuple[AggregateCall, ...], sets: Sequence[Sequence[int]] | None
) -> tuple[n.Expand, tuple[AggregateCall, ...], int]:
    """Repeats each row once per grouping set, with NULL for the keys outside the set and the set's number
    as one more key. The result: (node, aggregates over it, number of columns in front)."""
    assert sets is not None
    fields = node.schema.fields
    refs: list[Expr] = [InputRef(i, f.type) for i, f in enumerate(fields)]
    types = [
        fields[k].type if all(i in s for s in sets) else fields[k].type.with_nullable(True)
        for i, k in enumerate(keys)
    ]
    lists = []
    for g, members in enumerate(sets):
        picked: list[Expr] = [
            InputRef(k, types[i]) if i in members else Literal(None, types[i]) for i, k in enumerate(keys)
        ]
        lists.append((*picked, Literal(g, SET_NUMBER), *refs))
    named = [(f"$g{i}", type_) for i, type_ in enumerate(types)] + [("$set", SET_NUMBER)]
    named += [(f.name, f.type) for f in fields]
    expanded = n.Expand(input=node, projections=tuple(lists), schema=unique_schema(named))
    by = len(keys) + 1
    moved = tuple(
        msgspec.structs.replace(
            c, args=tuple(a + by for a in c.args), filter=c.filter + by if c.filter is not None else None
        )
        for c in calls
    )
    return expanded, moved, by


def number_of_set(name: str, keys: Sequence[int], sets: Sequence[Sequence[int]], number: InputRef) -> Expr:
    """The value of GROUPING or GROUPING_ID of ``keys``, or of GROUP_ID, in each set. ``number``: the column
    with the set's number."""
    if name == "GROUP_ID":
        values = [list(sets[:i]).count(one) for i, one in enumerate(sets)]
    else:
        values = [int("".join("0" if k in one else "1" for k in keys) or "0", 2) for one in sets]
    if len(set(values)) == 1:
        return Literal(values[0], SET_NUMBER)
    args: list[Expr] = []
    for g, value in enumerate(values[:-1]):
        args += [make_call("=", [number, Literal(g, SET_NUMBER)]), Literal(value, SET_NUMBER)]
    return make_call("CASE", [*args, Literal(values[-1], SET_NUMBER)])
