"""Pushes predicates into and below joins. Equalities between the two sides become the keys of the join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, input_refs, transform
from penstock.functions.registry import is_deterministic
from penstock.plan import nodes as n
from penstock.plan.conditions import EqualColumns, factored, implied, shared_facts
from penstock.plan.facts import known_facts
from penstock.plan.operators.filter.node import filtered
from penstock.plan.operators.join.block import arrange
from penstock.plan.operators.join.keys import as_keys, as_lookup_keys
from penstock.plan.operators.project.appending import append_columns
from penstock.plan.rewriting import conjunction, conjuncts, identity, position, shift
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from penstock.plan.pushdown import PushDown

replace = msgspec.structs.replace


def push(pusher: PushDown, node: n.Join, parts: list[Expr]) -> n.Node:
    """Pushes ``parts`` into a join. Adjacent inner joins are arranged as one block, once."""
    if node.kind == "inner" and id(node) not in pusher.arranged:
        return _push_block(pusher, node, parts)
    return _push_join(pusher, node, parts)


def push_temporal(pusher: PushDown, node: n.TemporalJoin, parts: list[Expr]) -> n.Node:
    """Pushes ``parts`` into a temporal join: conditions on the left go below, equalities become keys."""
    width = len(node.left.schema)
    down = [p for p in parts if all(i < width for i in input_refs(p)) and is_deterministic(p)]
    stay = [p for p in parts if p not in down]
    left = pusher.push(node.left, down) if down else pusher.run(node.left)
    right = pusher.run(node.right)
    keys, residual, left, right = _split(
        conjuncts(node.condition), left, right, width, plain_right=node.lookup
    )
    if not keys:
        new = replace(node, left=left, right=right, condition=conjunction(residual))
        return filtered(new, stay)
    wide = wide_schema(node, left, right, width)
    new = replace(
        node,
        left=left,
        right=right,
        left_keys=tuple(a for a, _ in keys),
        right_keys=tuple(b for _, b in keys),
        condition=conjunction(residual),
        schema=wide,
    )
    return filtered(narrowed(new, node, len(left.schema), width), stay)


def _push_block(pusher: PushDown, node: n.Join, parts: list[Expr]) -> n.Node:
    """Pushes ``parts`` into a block of adjacent inner joins."""
    found = arrange(node, parts, pusher.shared)
    for join in found.joins:
        pusher.arranged[id(join)] = join
    new = _push_join(pusher, found.join, found.parts)
    if found.outputs != identity(new):
        new = n.Project(input=new, expressions=tuple(found.outputs), schema=node.schema)
    return filtered(new, found.above)


def _push_join(pusher: PushDown, node: n.Join, parts: list[Expr]) -> n.Node:
    """Pushes a condition to the side whose columns it reads; equalities between the sides become keys."""
    width = len(node.left.schema)
    total = width + len(node.right.schema)
    one_sided = node.kind in ("semi", "anti")
    on = factored(node.condition)
    left_down: list[Expr] = []
    right_down: list[Expr] = []
    stay: list[Expr] = []
    for part in parts:
        refs = input_refs(part)
        movable = is_deterministic(part) and bool(refs)
        if movable and max(refs) < width and node.kind in ("inner", "left", "semi", "anti"):
            left_down.append(part)
        elif movable and not one_sided and min(refs) >= width and node.kind in ("inner", "right"):
            right_down.append(shift(part, -width))
        elif node.kind == "inner" and movable:
            on.append(part)
        else:
            stay.append(part)
    residual: list[Expr] = []
    for part in on:
        refs = input_refs(part)
        movable = is_deterministic(part) and bool(refs)
        if movable and max(refs) < width and node.kind in ("inner", "right", "semi"):
            left_down.append(part)
        elif (
            movable
            and width <= min(refs)
            and max(refs) < total
            and node.kind in ("inner", "left", "semi", "anti")
        ):
            right_down.append(shift(part, -width))
        else:
            residual.append(part)
    if node.kind in ("left", "semi", "anti"):
        left_facts, right_facts = _facts_of_sides(node, left_down, right_down, residual)
        left_down, right_down = [*left_down, *left_facts], [*right_down, *right_facts]
    left = pusher.push(node.left, left_down) if left_down else pusher.run(node.left)
    right = pusher.push(node.right, right_down) if right_down else pusher.run(node.right)
    given = list(zip(node.left_keys, node.right_keys, strict=True))
    keys, residual, left, right = _split(residual, left, right, width)
    pairs = tuple(dict.fromkeys([*given, *keys]))
    schema = left.schema if one_sided else wide_schema(node, left, right, width)
    new = replace(
        node,
        left=left,
        right=right,
        left_keys=tuple(a for a, _ in pairs),
        right_keys=tuple(b for _, b in pairs),
        condition=conjunction(residual),
        schema=schema,
    )
    return filtered(narrowed(new, node, len(left.schema), width), stay)


def _facts_of_sides(
    node: n.Join, left_down: list[Expr], right_down: list[Expr], on: list[Expr]
) -> tuple[list[Expr], list[Expr]]:
    """Conditions that ON and the conditions on either side imply for the other side. Rows on the right that
    match no left row make no difference; a left row without a match is dropped only by a semi join."""
    width = len(node.left.schema)
    total = width + len(node.right.schema)
    types = (*node.left.schema.types, *node.right.schema.types)
    pairs = [(a, b + width) for a, b in zip(node.left_keys, node.right_keys, strict=True)]
    of_left, of_right = known_facts(node.left), known_facts(node.right)
    said = [*left_down, *of_left, *(shift(p, width) for p in (*right_down, *of_right)), *on]
    facts = shared_facts(said, EqualColumns(on, pairs), types)
    sides = (range(width), range(width, total))
    facts += [demand for part in on for side in sides if (demand := implied(part, side)) is not None]
    left = [f for f in facts if node.kind == "semi" and max(input_refs(f)) < width]
    right = [shift(f, -width) for f in facts if min(input_refs(f)) >= width]
    return left, right


def _split(
    parts: list[Expr], left: n.Node, right: n.Node, width: int, *, plain_right: bool = False
) -> tuple[list[tuple[int, int]], list[Expr], n.Node, n.Node]:
    """Equalities between the sides → key pairs. Computed keys become columns appended to their side, so the
    residual is re-indexed to the wider left. ``plain_right``: the right side cannot compute (a looked-up
    table), so its keys are columns."""
    keys: list[tuple[Expr, Expr]] = []
    residual: list[Expr] = []
    for part in parts:
        pair = None
        if isinstance(part, Call) and part.function == "=" and is_deterministic(part):
            a, b = part.args
            ra, rb = input_refs(a), input_refs(b)
            if ra and rb and max(ra) < width <= min(rb):
                pair = (a, shift(b, -width))
            elif ra and rb and max(rb) < width <= min(ra):
                pair = (b, shift(a, -width))
        found = None if pair is None else as_lookup_keys(*pair) if plain_right else as_keys(*pair)
        if found is None:
            residual.append(part)
        else:
            keys.append(found)
    left, left_keys = _with_columns(left, [a for a, _ in keys])
    right, right_keys = _with_columns(right, [b for _, b in keys])
    more = len(left.schema) - width
    if more:
        residual = [grown(part, width, more) for part in residual]
    return list(zip(left_keys, right_keys, strict=True)), residual, left, right


def grown(expr: Expr, width: int, by: int) -> Expr:
    """The condition of a join after its left side of ``width`` columns got ``by`` more columns."""
    return transform(
        expr,
        lambda e: InputRef(e.index + by, e.type) if isinstance(e, InputRef) and e.index >= width else e,
    )


def _with_columns(node: n.Node, exprs: list[Expr]) -> tuple[n.Node, list[int]]:
    """Appends a column for each expression that is not a plain column. Also returns the column of each
    expression."""
    base = identity(node)
    extra: list[Expr] = []
    at: list[int] = []
    for expr in exprs:
        if isinstance(expr, InputRef):
            at.append(expr.index)
            continue
        known = position(expr, extra)
        if known is None:
            extra.append(expr)
            known = len(extra) - 1
        at.append(len(base) + known)
    if not extra:
        return node, at
    return append_columns(node, extra), at


def wide_schema(node: n.Join | n.TemporalJoin, left: n.Node, right: n.Node, width: int) -> Schema:
    """The join's own names and types, plus the appended key columns of either side."""
    own = node.schema.fields
    taken = {f.name for f in own}
    fields: list[Field] = []
    sides = ((left, 0, width), (right, width, len(own) - width))
    for side, first, count in sides:
        fields += own[first : first + count]
        for extra in side.schema.fields[count:]:
            name, i = extra.name, 0
            while name in taken:
                name, i = f"{extra.name}_{i}", i + 1
            taken.add(name)
            fields.append(Field(name, extra.type.with_nullable(True)))
    return Schema(tuple(fields))


def narrowed(new: n.Node, old: n.Join | n.TemporalJoin, left_width: int, width: int) -> n.Node:
    """The node without the appended key columns."""
    if len(new.schema) == len(old.schema):
        return new
    types = new.schema.types
    keep = list(range(width))
    if not (isinstance(old, n.Join) and old.kind in ("semi", "anti")):
        keep += range(left_width, left_width + len(old.schema) - width)
    return n.Project(input=new, expressions=tuple(InputRef(i, types[i]) for i in keep), schema=old.schema)
