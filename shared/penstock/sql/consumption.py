"""Refuses every clause that the translation of a syntax tree did not read, so that none is dropped silently.

Inside ``consuming(tree, source)`` each node notes which of its arguments are read. Walking and comparing trees
(``walk``, ``find_all``, ``==``) does not count as reading: only ``node.this``, ``node.args.get(…)`` and the
like do. At the end an argument that has a value and was not read raises UnsupportedError with the clause's name
and place.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.sql.errors import Source

Node = TypeVar("Node", bound=exp.Expression)

#: (node type, argument) → why the translation may ignore the argument.
MEANINGLESS: dict[tuple[type, str], str] = {
    (exp.Identifier, "quoted"): "a name in backticks is the same name",
    (exp.Window, "over"): "the word OVER",
    (exp.DPipe, "safe"): "set by the library for every ||",
    (exp.Div, "typed"): "set by the library for every /",
    (exp.Div, "safe"): "set by the library for every /",
    (exp.Pivot, "columns"): "names that the library makes",
    (exp.Pivot, "identify_pivot_strings"): "the library's dialect",
    (exp.Pivot, "prefixed_pivot_columns"): "the library's dialect",
    (exp.Pivot, "pivot_column_naming"): "the library's dialect",
    (exp.Fetch, "direction"): "FETCH FIRST and FETCH NEXT are the same",
}

#: (node type, argument) → the clause as a user knows it, and what to write instead. Only clauses with a better
#: name than the argument's own are listed.
CLAUSES: dict[tuple[type, str], tuple[str, str]] = {
    (exp.Table, "options_hint"): ("an OPTIONS hint here", "write it behind a table's name; of a view, inside the view's query"),
    (exp.Table, "sample"): ("TABLESAMPLE", "WHERE RAND() < 0.1"),
    (exp.Subquery, "sample"): ("TABLESAMPLE", "WHERE RAND() < 0.1"),
    (exp.WindowSpec, "exclude"): ("EXCLUDE in an OVER frame", "leave EXCLUDE out, and take the row's own value off the result"),
    (exp.Union, "by_name"): ("UNION BY NAME", "select the columns of both sides in the same order"),
    (exp.Intersect, "by_name"): ("INTERSECT BY NAME", "select the columns of both sides in the same order"),
    (exp.Except, "by_name"): ("EXCEPT BY NAME", "select the columns of both sides in the same order"),
    (exp.Union, "side"): ("an outer UNION", "leave LEFT or FULL out"),
    (exp.Union, "kind"): ("an inner UNION", "leave INNER out"),
    (exp.Limit, "expressions"): ("LIMIT … BY", "WHERE rn <= n over ROW_NUMBER() OVER (PARTITION BY k ORDER BY …) AS rn"),
    (exp.Offset, "expressions"): ("LIMIT … BY", "WHERE rn <= n over ROW_NUMBER() OVER (PARTITION BY k ORDER BY …) AS rn"),
    (exp.CTE, "materialized"): ("MATERIALIZED of WITH", "leave it out"),
    (exp.Select, "distribute"): ("DISTRIBUTE BY", "leave it out: the planner distributes rows"),
    (exp.Select, "cluster"): ("CLUSTER BY", "ORDER BY"),
    (exp.Select, "sort"): ("SORT BY", "ORDER BY"),
    (exp.Select, "into"): ("SELECT INTO", "INSERT INTO t SELECT …"),
    (exp.Lateral, "cross_apply"): ("CROSS APPLY or OUTER APPLY", "CROSS JOIN LATERAL or LEFT JOIN LATERAL … ON TRUE"),
    (exp.Lateral, "view"): ("LATERAL VIEW", "CROSS JOIN UNNEST(…) or LATERAL TABLE(f(…))"),
    (exp.Lateral, "outer"): ("LATERAL VIEW OUTER", "LEFT JOIN UNNEST(…) ON TRUE"),
    (exp.Ordered, "with_fill"): ("WITH FILL", "a join with the values that may be missing"),
}  # fmt: skip


class _Args(dict[str, Any]):
    """The arguments of a node, by name; ``read`` notes the names that were read."""

    __slots__ = ("read",)

    def __init__(self, args: dict[str, Any], read: set[str] | None = None) -> None:
        super().__init__(args)
        self.read: set[str] = set() if read is None else read

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


@contextmanager
def consuming(tree: exp.Expression, source: Source) -> Iterator[None]:
    """Raises UnsupportedError at the end of the block if an argument of the tree was not read. An error that is
    raised inside passes through."""
    hash(tree)  # Compute and cache the hash now, because computing it reads all arguments.
    for node in tree.walk():
        node.args = _Args(node.args)
    yield
    for node in tree.walk():
        unread = next(_unread(node), None)
        if unread is None:
            continue
        clause, remedy = named(node, unread)
        value = dict.get(node.args, unread)
        place = value[0] if isinstance(value, list) and value else value
        raise source.unsupported(
            clause,
            place if isinstance(place, exp.Expression) and place.find(*_PLACED) is not None else node,  # type: ignore[arg-type]
            expected="what docs/sql.md lists",
            remedy=remedy,
        )


#: Nodes that carry a place of their own.
_PLACED = (exp.Identifier, exp.Literal, exp.Anonymous)


def _unread(node: exp.Expr) -> Iterator[str]:
    args = node.args
    read = args.read if isinstance(args, _Args) else set(args)
    for key, value in args.items():
        if value is None or value == [] or key in read:
            continue
        if (type(node), key) not in MEANINGLESS:
            yield key


def named(node: exp.Expr, argument: str) -> tuple[str, str]:
    """The name by which users know the clause in ``argument`` of ``node``, and what to write instead."""
    known = CLAUSES.get((type(node), argument))
    if known is not None:
        return known
    words = argument.rstrip("_").replace("_", " ").upper()
    return f"{words} of {type(node).__name__.upper()}", "leave it out; docs/sql.md lists what can be written"


def consume(node: exp.Expression | None) -> None:
    """Marks a whole tree as read, because an equal tree was translated in its place."""
    for part in node.walk() if node is not None else ():
        if isinstance(part.args, _Args):
            part.args.read.update(part.args)


def variant(node: Node, change: Callable[[dict[str, Any]], None]) -> Node:
    """A copy of one node with changed arguments. Its children are shared: reading the copy counts as reading
    the node."""
    made = type(node)()
    args = dict(node.args)
    change(args)
    read = node.args.read if isinstance(node.args, _Args) else None
    made.args = args
    hash(made)
    made.args = _Args(args, read)
    made.comments = node.comments
    made.meta.update(node.meta)
    return made
