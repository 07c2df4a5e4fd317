"""A query as a tree of text, so that a generator can build it and a shrinker can cut it.

A node knows the grammatical *sort* of what it stands for (a ``BOOLEAN`` expression, a relation of
two columns, an optional clause). Whatever stands at its place must be of the same sort; this is
all that the shrinker needs to know of SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

#: Position of a node: child indices from the root.
Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """``template`` has ``{0}``, ``{1}`` … for the children; ``duckdb`` is the same in DuckDB's words
    where they differ; a ``separator`` makes a list of any length instead."""

    sort: str
    template: str = ""
    children: tuple[Node, ...] = ()
    duckdb: str | None = None
    separator: str | None = None

    def text(self, *, duckdb: bool = False) -> str:
        parts = [child.text(duckdb=duckdb) for child in self.children]
        if self.separator is not None:
            return self.separator.join(parts)
        template = self.duckdb if duckdb and self.duckdb is not None else self.template
        return template.format(*parts) if parts else template

    def size(self) -> int:
        return 1 + sum(child.size() for child in self.children)


def leaf(sort: str, text: str, duckdb: str | None = None) -> Node:
    return Node(sort, text, (), duckdb)


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, parents before children."""
    yield path, node
    for index, child in enumerate(node.children):
        yield from walk(child, (*path, index))


def with_node(root: Node, path: Path, new: Node) -> Node:
    """``root`` with ``new`` at ``path``."""
    if not path:
        return new
    children = list(root.children)
    children[path[0]] = with_node(children[path[0]], path[1:], new)
    return replace(root, children=tuple(children))


def smaller(root: Node, atoms: dict[str, list[Node]]) -> Iterator[Node]:
    """Trees that are smaller than ``root`` by one step, large steps first.

    ``atoms``: the smallest nodes of a sort.
    """
    for path, node in walk(root):
        inside = [inner for p, inner in walk(node) if p and inner.sort == node.sort]
        found = [*atoms.get(node.sort, []), *inside]
        for inner in sorted(found, key=Node.size):
            if inner.size() < node.size():
                yield with_node(root, path, inner)
        if node.separator is not None and len(node.children) > 1:
            for index in range(len(node.children)):
                kept = node.children[:index] + node.children[index + 1 :]
                yield with_node(root, path, replace(node, children=kept))
