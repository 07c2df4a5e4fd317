"""Helpers for rules: sharing, conjunctions, substitution."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, children, input_refs, transform
from penstock.functions.registry import is_deterministic, make_call
from penstock.plan.node import Node, with_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_INPUT_FIELDS = {"input", "left", "right", "inputs"}


class Interner:
    """Equal sub-plans become one object; each has a fingerprint (16 hex digits)."""

    def __init__(self) -> None:
        self._by_print: dict[str, Node] = {}
        self._prints: dict[int, tuple[Node, str]] = {}
        self._memo: dict[int, tuple[Node, Node]] = {}

    def intern(self, node: Node) -> Node:
        """The node with equal subtrees replaced by one shared node."""
        found = self._memo.get(id(node))
        if found is not None:
            return found[1]
        new = with_inputs(node, tuple(self.intern(i) for i in node.children()))
        digest = self._digest(new)
        shared = self._by_print.setdefault(digest, new)
        self._prints[id(shared)] = (shared, digest)
        self._memo[id(node)] = (node, shared)
        self._memo[id(shared)] = (shared, shared)
        return shared

    def intern_all(self, nodes: Iterable[Node]) -> list[Node]:
        """Interns several nodes; equal subtrees of different nodes become one object, too."""
        return [self.intern(node) for node in nodes]

    def fingerprint(self, node: Node) -> str:
        """The fingerprint of an interned node."""
        return self._prints[id(node)][1]

    def _digest(self, node: Node) -> str:
        own: dict[str, Any] = {
            name: getattr(node, name) for name in node.__struct_fields__ if name not in _INPUT_FIELDS
        }
        inputs = [self._prints[id(i)][1] for i in node.children()]
        plain = without_places(msgspec.to_builtins(own))
        data = msgspec.json.encode([type(node).__name__, inputs, plain], order="sorted")
        return hashlib.sha256(data).hexdigest()[:16]


_NESTED = frozenset({dict, list, tuple})


def without_places(data: Any) -> Any:
    """Plain data of a plan without source positions: equal expressions at different places are equal."""
    # Loops, because a comprehension would take one more stack frame for each level of a deep expression.
    kind = type(data)
    if kind is dict:
        call, kept = data.get("e") == "call", {}
        for key, value in data.items():
            if not (call and key in ("line", "column", "within")):
                kept[key] = without_places(value) if type(value) in _NESTED else value
        return kept
    if kind is list or kind is tuple:
        items = []
        for value in data:
            items.append(without_places(value) if type(value) in _NESTED else value)
        return items
    return data


def plain(expr: Expr) -> Expr:
    """The expression without source positions, to compare it by value."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Call) and (node.line or node.column or node.within):
            return msgspec.structs.replace(node, line=0, column=0, within="")
        return node

    return transform(expr, visit)


def same(a: Expr | None, b: Expr | None) -> bool:
    """Whether two expressions are equal apart from their places in the text."""
    if a is None or b is None:
        return a is b
    return plain(a) == plain(b)


def position(expr: Expr, among: Sequence[Expr]) -> int | None:
    """The index of an expression in ``among`` that equals ``expr``; None if there is none."""
    wanted = plain(expr)
    return next((i for i, e in enumerate(among) if plain(e) == wanted), None)


def without_repeats(parts: Iterable[Expr]) -> list[Expr]:
    """The expressions without repetitions, in order. It is linear, because there may be thousands."""
    first: dict[bytes, Expr] = {}
    for part in parts:
        first.setdefault(msgspec.msgpack.encode(plain(part)), part)
    return list(first.values())


def bottom_up(
    root: Node, rule: Callable[[Node], Node], memo: dict[int, tuple[Any, ...]] | None = None
) -> Node:
    """Applies ``rule`` to every node, to inputs first, and to a shared node once."""
    memo = {} if memo is None else memo
    found = memo.get(id(root))
    if found is not None:
        made: Node = found[1]
        return made
    new = rule(with_inputs(root, tuple(bottom_up(i, rule, memo) for i in root.children())))
    memo[id(root)] = (root, new)
    return new


def walk(roots: Iterable[Node]) -> list[Node]:
    """Every node once, inputs before consumers."""
    out: list[Node] = []
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for i in node.children():
            visit(i)
        out.append(node)

    for root in roots:
        visit(root)
    return out


def conjuncts(expr: Expr | None) -> list[Expr]:
    """The parts of a condition that AND connects. BETWEEN gives two parts; None gives no part."""
    if expr is None:
        return []
    if isinstance(expr, Call) and expr.function == "AND":
        return [c for arg in expr.args for c in conjuncts(arg)]
    if isinstance(expr, Call) and expr.function == "BETWEEN":
        value, low, high = expr.args
        line, column, within = expr.line, expr.column, expr.within
        return [
            make_call(">=", [value, low], line=line, column=column, within=within),
            make_call("<=", [value, high], line=line, column=column, within=within),
        ]
    return [expr]


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """The distinct parts connected by AND; None if there are none."""
    unique = without_repeats(parts)
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else make_call("AND", unique)


def substitute(expr: Expr, inputs: Sequence[Expr]) -> Expr:
    """The expression with column i replaced by ``inputs[i]``."""
    return transform(expr, lambda e: inputs[e.index] if isinstance(e, InputRef) else e)


def reads(expr: Expr) -> Iterator[int]:
    """The columns that an expression reads; a column that occurs twice comes twice."""
    if isinstance(expr, InputRef):
        yield expr.index
    for child in children(expr):
        yield from reads(child)


def size(expr: Expr) -> int:
    """The number of nodes of an expression as a tree."""
    return 1 + sum(map(size, children(expr)))


def shift(expr: Expr, by: int) -> Expr:
    """The expression with all column numbers increased by ``by``."""
    return transform(expr, lambda e: InputRef(e.index + by, e.type) if isinstance(e, InputRef) else e)


def identity(node: Node) -> list[Expr]:
    """One ``InputRef`` for each column of the node."""
    return [InputRef(i, f.type) for i, f in enumerate(node.schema.fields)]


def below_own_columns(part: Expr, width: int) -> Expr | None:
    """The condition ``part`` if it is deterministic and reads only the first ``width`` columns, the input's
    own; otherwise None."""
    return part if all(i < width for i in input_refs(part)) and is_deterministic(part) else None
