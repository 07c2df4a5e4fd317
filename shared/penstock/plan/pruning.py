"""Projection push-down: only columns that a consumer needs are computed, kept and read.

It works on the whole DAG at once, so that two consumers of one sub-plan keep sharing it: the sub-plan gives
the union of the columns that they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import InputRef, Literal
from penstock.plan.columns import Mapping_, same_columns
from penstock.plan.node import Node, with_inputs
from penstock.plan.operators.project.node import Project
from penstock.plan.rewriting import walk
from penstock.types.logical import BooleanType, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.operators.sink.node import Sink


def prune(sinks: Sequence[Sink], *, narrow: bool = True) -> tuple[Sink, ...]:
    """The plan without unused columns. Sinks must share sub-plans by identity. ``narrow``: operators that
    keep rows get no column that only other consumers of their input need, so that these do not change
    their state."""
    pruner = Pruner(_needed([(sink, set(range(len(sink.schema)))) for sink in sinks]), narrow=narrow)
    return tuple(pruner.run(sink)[0] for sink in sinks)  # type: ignore[misc]


def _needed(roots: Sequence[tuple[Node, set[int]]]) -> dict[int, set[int]]:
    """Node (id) of the plans below → the columns that are needed, given those of the roots."""
    order = walk([root for root, _ in roots])
    needed: dict[int, set[int]] = {id(node): set() for node in order}
    for root, columns in roots:
        needed[id(root)] |= columns
    for node in reversed(order):
        for child, columns in node.demands(needed[id(node)]):
            needed[id(child)] |= columns
    return needed


class Pruner:
    """Rebuilds nodes; ``run`` gives the new node and old column → new column."""

    def __init__(
        self,
        needed: dict[int, set[int]],
        *,
        narrow: bool,
        alone: dict[tuple[object, ...], tuple[Node, Mapping_]] | None = None,
    ) -> None:
        self.needed = needed
        self.alone = {} if alone is None else alone
        self.narrow = narrow
        self.memo: dict[int, tuple[Node, Node, Mapping_]] = {}

    def run(self, node: Node) -> tuple[Node, Mapping_]:
        """(the node with only the columns that are read, old column number -> new)."""
        found = self.memo.get(id(node))
        if found is None:
            new, mapping = node.pruned(self, self.needed[id(node)])
            found = (node, new, mapping)
            self.memo[id(node)] = found
        return found[1], found[2]

    def own(self, node: Node, child: Node) -> tuple[Node, Mapping_]:
        """An input of an operator that keeps its rows: as if no other node read it."""
        new, mapping = self.run(child)
        if not self.narrow or isinstance(new, Project):
            return new, mapping
        demands = node.demands(self.needed[id(node)])
        key = (id(child), *((id(source), frozenset(columns)) for source, columns in demands))
        found = self.alone.get(key)
        if found is None:
            # Shared with the pruners below: otherwise joins over joins would be pruned again at each level,
            # twice.
            found = self.alone[key] = Pruner(_needed(demands), narrow=True, alone=self.alone).run(child)
        alone, kept = found
        if len(alone.schema) >= len(new.schema):
            return new, mapping
        wanted = [mapping[c] for c in sorted(kept, key=lambda c: kept[c])]
        types = new.schema.types
        project = Project(
            input=new,
            expressions=tuple(InputRef(i, types[i]) for i in wanted),
            schema=new.schema.select(wanted),
        )
        return project, dict(kept)

    def exact(self, node: Node, columns: list[int]) -> Node:
        """The input with exactly these of its old columns, in order."""
        new, mapping = self.run(node)
        wanted = [mapping[c] for c in columns]
        if wanted == list(range(len(new.schema))):
            return new
        types = new.schema.types
        return Project(
            input=new,
            expressions=tuple(InputRef(i, types[i]) for i in wanted),
            schema=node.schema.select(columns),
        )

    def whole(self, node: Node) -> tuple[Node, Mapping_]:
        """The node if it needs every column of every input: at their old places."""
        inputs = tuple(self.exact(child, list(range(len(child.schema)))) for child in node.children())
        return with_inputs(node, inputs), same_columns(len(node.schema))

    def rows_only(self, node: Node) -> Project:
        """The same number of rows, with one constant column, because no column is read."""
        one = Literal(True, BooleanType(nullable=False))
        return Project(input=node, expressions=(one,), schema=Schema((Field("$row", one.type),)))
