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
    """The plan without unused columns. Sinks must share sub-plans by identity. ``narrow``: an operator that
    keeps rows gets no column that only other consumers of its input need, so that these consumers do not
    change the operator's state."""
    pruner = Pruner(_needed([(sink, set(range(len(sink.schema)))) for sink in sinks]), narrow=narrow)
    return tuple(pruner.run(sink)[0] for sink in sinks)  # type: ignore[misc]


def _needed(roots: Sequence[tuple[Node, set[int]]]) -> dict[int, set[int]]:
    """Id of each node below the roots → the columns that are needed, given the needed columns of the
    roots."""
    order = walk([root for root, _ in roots])
    needed: dict[int, set[int]] = {id(node): set() for node in order}
    for root, columns in roots:
        needed[id(root)] |= columns
    for node in reversed(order):
        for child, columns in node.demands(needed[id(node)]):
            needed[id(child)] |= columns
    return needed


class Pruner:
    """Rebuilds the nodes of a plan without unused columns, each node once."""

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
        """(the node with only the columns that are needed, old column → new column)."""
        found = self.memo.get(id(node))
        if found is None:
            new, mapping = node.pruned(self, self.needed[id(node)])
            found = (node, new, mapping)
            self.memo[id(node)] = found
        return found[1], found[2]

    def own(self, node: Node, child: Node) -> tuple[Node, Mapping_]:
        """The input ``child`` of an operator ``node`` that keeps rows, pruned as if no other node read
        ``child``."""
        new, mapping = self.run(child)
        if not self.narrow or isinstance(new, Project):
            return new, mapping
        demands = node.demands(self.needed[id(node)])
        key = (id(child), *((id(source), frozenset(columns)) for source, columns in demands))
        found = self.alone.get(key)
        if found is None:
            # The pruners below share the memo: otherwise joins over joins would be pruned again, twice at
            # each level.
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
        """``pruned`` for a node that needs every column of every input; all columns stay at their places."""
        inputs = tuple(self.exact(child, list(range(len(child.schema)))) for child in node.children())
        return with_inputs(node, inputs), same_columns(len(node.schema))

    def rows_only(self, node: Node) -> Project:
        """A projection of ``node`` to one constant column, for consumers that read no column and count
        rows."""
        one = Literal(True, BooleanType(nullable=False))
        return Project(input=node, expressions=(one,), schema=Schema((Field("$row", one.type),)))
