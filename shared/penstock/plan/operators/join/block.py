"""Adjacent inner joins as one block: their inputs, and all conditions over them.

A block is a tree of inner joins with only filters and renamings in between. The conditions of WHERE and ON
are considered together: facts about one input that follow from them filter that input, and the joins get an
order without a cross product where conditions connect the inputs. Everything else (outer, semi and temporal
joins, aggregates, sub-plans that others read) is an input of the block and is not moved across.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, input_refs, shift_refs
from penstock.functions.registry import is_deterministic, make_call
from penstock.plan import nodes as n
from penstock.plan.conditions import EqualColumns, factored, implied, shared_facts
from penstock.plan.facts import known_facts
from penstock.plan.operators.filter.node import filtered
from penstock.plan.operators.join.keys import can_be_keys
from penstock.plan.operators.join.order import Connection, Link, Tree, link, order
from penstock.plan.operators.join.order import inputs_of as inputs_of_tree
from penstock.plan.properties import Analysis, constant_shift
from penstock.plan.rewriting import conjuncts, identity, position, shift, substitute
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.types.logical import LogicalType

replace = msgspec.structs.replace

_COMPARISONS = ("=", "<", "<=", ">", ">=")


@dataclass
class _Block:
    """A block that is being collected. ``conditions`` and ``outputs`` number the columns of all ``inputs``
    one after another; ``owner``: the input of each column."""

    inputs: list[n.Node] = field(default_factory=list)
    types: list[LogicalType] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    conditions: list[Expr] = field(default_factory=list)
    outputs: list[Expr] = field(default_factory=list)
    written: Tree = 0
    #: Whether a join of the block has hints: then all stay in the written order.
    hinted: bool = False

    def columns(self, number: int) -> list[int]:
        return [i for i, owner in enumerate(self.owner) if owner == number]

    def owners(self, expr: Expr) -> frozenset[int]:
        return frozenset(self.owner[i] for i in input_refs(expr))


@dataclass(frozen=True)
class Arranged:
    """An arranged block. ``join``: the uppermost join; ``parts``: conditions over its columns; ``outputs``:
    the block's own columns as expressions over them; ``above``: conditions over ``outputs`` that must stay
    above the block; ``joins``: the joins that are arranged already."""

    join: n.Join
    parts: list[Expr]
    outputs: list[Expr]
    above: list[Expr]
    joins: list[n.Join]


def arrange(node: n.Join, parts: Sequence[Expr], shared: Collection[int]) -> Arranged:
    """Arranges the block whose uppermost join is ``node``; ``parts`` are conditions over the columns of
    ``node``. ``shared``: ids of nodes that several other nodes read."""
    block = _Block()
    block.written, block.outputs = _take(node, block, shared)
    movable = [p for p in parts if is_deterministic(p)]
    above = [p for p in parts if not is_deterministic(p)]
    given = [f for p in movable for f in factored(p)]
    own = [f for p in block.conditions for f in factored(p)]
    conditions = [*own, *(substitute(p, block.outputs) for p in given)]
    facts = _facts(block, conditions)
    equal = EqualColumns(conditions)
    found = block.written if block.hinted else order(block.written, _connections(block, conditions, equal))
    derived = [] if block.hinted else _derived(found, block, conditions, equal)
    joins: list[n.Join] = []
    if found == block.written and not derived:
        join = _with_facts(node, facts, shared, joins)
        return Arranged(join, given, identity(node), above, joins)
    leaves = [filtered(leaf, facts[i]) for i, leaf in enumerate(block.inputs)]
    new, columns = _build(found, leaves, block, joins)
    assert isinstance(new, n.Join)
    conditions += derived
    at = {column: i for i, column in enumerate(columns)}
    moved = [shift_refs(c, at) for c in conditions]
    return Arranged(new, moved, [shift_refs(o, at) for o in block.outputs], above, joins)


# -- taking apart ------------------------------------------------------------------------------------


def _is_inner(node: n.Node) -> bool:
    return (
        isinstance(node, n.Join)
        and node.kind == "inner"
        and node.interval is None
        and node.window is None
        and not any(node.null_safe)
        and (node.condition is None or is_deterministic(node.condition))
    )


def _leads_on(node: n.Node, shared: Collection[int]) -> bool:
    """Whether filters and renamings lead to a join of the same block."""
    while id(node) not in shared:
        if isinstance(node, n.Join):
            return _is_inner(node)
        if isinstance(node, n.Filter):
            if not is_deterministic(node.condition):
                return False
        elif not isinstance(node, n.Project) or not all(isinstance(e, InputRef) for e in node.expressions):
            return False
        node = node.input
    return False


def _take(
    node: n.Node, block: _Block, shared: Collection[int], *, top: bool = True
) -> tuple[Tree, list[Expr]]:
    """Adds a sub-tree to the block. Returns its tree of joins, and its output columns as expressions over the
    block's columns."""
    if top or _leads_on(node, shared):
        match node:
            case n.Join():
                block.hinted |= node.hinted
                left, ours = _take(node.left, block, shared, top=False)
                right, theirs = _take(node.right, block, shared, top=False)
                both = [*ours, *theirs]
                for a, b in zip(node.left_keys, node.right_keys, strict=True):
                    block.conditions.append(make_call("=", [ours[a], theirs[b]]))
                block.conditions += [substitute(c, both) for c in conjuncts(node.condition)]
                return (left, right), both
            case n.Filter():
                tree, outputs = _take(node.input, block, shared, top=False)
                block.conditions += [substitute(c, outputs) for c in conjuncts(node.condition)]
                return tree, outputs
            case n.Project():
                tree, outputs = _take(node.input, block, shared, top=False)
                return tree, [substitute(e, outputs) for e in node.expressions]
    number, width = len(block.inputs), len(block.owner)
    block.inputs.append(node)
    block.types += node.schema.types
    block.owner += [number] * len(node.schema)
    return number, [shift(e, width) for e in identity(node)]


# -- what follows ------------------------------------------------------------------------------------


def _facts(block: _Block, conditions: list[Expr]) -> list[list[Expr]]:
    """For each input, the conditions over its own columns that follow from ``conditions`` and are not among
    them."""
    out: list[list[Expr]] = [[] for _ in block.inputs]

    def say(fact: Expr) -> None:
        [number] = block.owners(fact)
        first = block.owner.index(number)
        mine = shift(fact, -first)
        if position(mine, out[number]) is None:
            out[number].append(mine)

    known = [
        shift(fact, block.owner.index(number))
        for number, one in enumerate(block.inputs)
        if len(one.schema)
        for fact in known_facts(one)
    ]
    for fact in shared_facts([*conditions, *known], EqualColumns(conditions), block.types):
        say(fact)
    for part in conditions:
        for number in sorted(block.owners(part)):
            demand = implied(part, block.columns(number))
            if demand is not None:
                say(demand)
    return out


def _connections(block: _Block, conditions: list[Expr], equal: EqualColumns) -> list[Connection]:
    out: list[Connection] = []
    for part in conditions:
        if len(block.owners(part)) < 2:
            continue
        sides = _sides(part, block)
        if sides is None:
            out.append(Connection(block.owners(part), frozenset(), Link.CONDITION))
        else:
            out.append(Connection(*sides, Link.EQUALITY))
    for columns in equal.classes():
        for i, a in enumerate(columns):
            for b in columns[i + 1 :]:
                if block.owner[a] != block.owner[b]:
                    one, two = frozenset({block.owner[a]}), frozenset({block.owner[b]})
                    out.append(Connection(one, two, Link.DERIVED))
    return out


def _sides(part: Expr, block: _Block) -> tuple[frozenset[int], frozenset[int]] | None:
    """The inputs on either side of a condition by which a join can find rows: an equality, or a bound of
    event times (an interval join). None for another condition."""
    if not isinstance(part, Call) or part.function not in _COMPARISONS:
        return None
    a, b = part.args
    left, right = block.owners(a), block.owners(b)
    if not left or not right or left & right:
        return None
    if part.function == "=":
        return (left, right) if can_be_keys(a.type, b.type) else None
    return (left, right) if _is_time(a, block) and _is_time(b, block) else None


def _is_time(expr: Expr, block: _Block) -> bool:
    found = constant_shift(expr)
    if found is None:
        return False
    number = block.owner[found[0]]
    return found[0] - block.owner.index(number) in Analysis().of(block.inputs[number]).lags


def _derived(tree: Tree, block: _Block, conditions: list[Expr], equal: EqualColumns) -> list[Expr]:
    """For each join without an equality of its own, one equality that follows from others, if there is
    one."""
    if isinstance(tree, int):
        return []
    out = [*_derived(tree[0], block, conditions, equal), *_derived(tree[1], block, conditions, equal)]
    left, right = inputs_of_tree(tree[0]), inputs_of_tree(tree[1])
    if link(left, right, _connections(block, conditions, equal)) is not Link.DERIVED:
        return out
    for columns in equal.classes():
        ours = [c for c in columns if block.owner[c] in left]
        theirs = [c for c in columns if block.owner[c] in right]
        if ours and theirs:
            out.append(make_call("=", [InputRef(c, block.types[c]) for c in (ours[0], theirs[0])]))
    return out


# -- putting together --------------------------------------------------------------------------------


def _with_facts(
    node: n.Join, facts: list[list[Expr]], shared: Collection[int], joins: list[n.Join]
) -> n.Join:
    """The block in its written order, with each input filtered by its facts."""
    numbers = iter(range(len(facts)))

    def visit(one: n.Node, *, top: bool = False) -> n.Node:
        if not top and not _leads_on(one, shared):
            return filtered(one, facts[next(numbers)])
        new = n.with_inputs(one, tuple(visit(i) for i in n.inputs_of(one)))
        if isinstance(new, n.Join):
            joins.append(new)
        return new

    new = visit(node, top=True)
    assert isinstance(new, n.Join)
    return new


def _build(tree: Tree, leaves: list[n.Node], block: _Block, joins: list[n.Join]) -> tuple[n.Node, list[int]]:
    """Builds the joins of a tree, without conditions. Also returns the block's columns in the order of the
    tree."""
    if isinstance(tree, int):
        return leaves[tree], block.columns(tree)
    left, ours = _build(tree[0], leaves, block, joins)
    right, theirs = _build(tree[1], leaves, block, joins)
    taken: set[str] = set()
    fields: list[Field] = []
    for one in (*left.schema.fields, *right.schema.fields):
        name, i = one.name, 0
        while name in taken:
            name, i = f"{one.name}{i}", i + 1
        taken.add(name)
        fields.append(Field(name, one.type))
    join = n.Join(
        left=left, right=right, kind="inner", left_keys=(), right_keys=(), schema=Schema(tuple(fields))
    )
    joins.append(join)
    return join, [*ours, *theirs]
