"""Refuses a plan that groups, partitions, joins or compares whole rows by a value that cannot be a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.plan import nodes as n
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.types.logical import Field, LogicalType


def check_keys(nodes: Iterable[n.Node]) -> None:
    """Raises UnsupportedError, with the column's name, for a key with a MAP or a MULTISET in it."""
    for node in nodes:
        for words, field in _keys(node):
            if _has_entries(field.type):
                raise UnsupportedError(
                    f"{words} '{field.name}', a {field.type.not_null.sql()}",
                    expected="a key of a scalar, ROW or ARRAY type",
                    got=field.type.sql(),
                    remedy="take an entry of it (m['key']) or an ordered array, e.g. ARRAY_SORT(MAP_KEYS(m)), or leave the column out",
                )


def _keys(node: n.Node) -> Iterator[tuple[str, Field]]:
    """(what the column is for, the column) of each key of the node."""
    match node:
        case n.Aggregate() | n.WindowAggregate() | n.WindowTable():
            yield from (("a group by", node.input.schema.fields[i]) for i in node.keys)
            for call in getattr(node, "aggregates", ()):
                if call.distinct:
                    yield from (("a DISTINCT aggregate of", node.input.schema.fields[i]) for i in call.args)
        case n.Over() | n.TopN():
            yield from (("PARTITION BY", node.input.schema.fields[i]) for i in node.partition)
        case n.Join() | n.TemporalJoin():
            yield from (("a join by", node.left.schema.fields[i]) for i in node.left_keys)
            yield from (("a join by", node.right.schema.fields[i]) for i in node.right_keys)
        case n.SetOperation():
            yield from (("a comparison of whole rows by", field) for field in node.schema.fields)


def _has_entries(type_: LogicalType) -> bool:
    """Whether the type is a MAP or a MULTISET, or has one inside."""
    match type_:
        case t.MapType() | t.MultisetType():
            return True
        case t.ArrayType(element=element):
            return _has_entries(element)
        case t.RowType(fields=fields):
            return any(_has_entries(field.type) for field in fields)
    return False
