"""Projection push-down: only columns that somebody needs are computed, kept and read.

Works on the whole DAG at once, so that two consumers of one sub-plan keep sharing it:
the sub-plan gives the union of what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr, InputRef, Literal, input_refs, shift_refs
from penstock.plan import nodes as n
from penstock.plan.rewriting import walk
from penstock.types.logical import BooleanType, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

replace = msgspec.structs.replace
Mapping_ = dict[int, int]


def prune(sinks: Sequence[n.Sink], *, narrow: bool = True) -> tuple[n.Sink, ...]:
    """The plan with unused columns gone. Sinks must share sub-plans by identity. ``narrow``: operators
    that keep rows get no column that only other consumers of their input need, so that these do not
    decide what is in their state."""
    pruner = _Pruner(_needed([(sink, set(range(len(sink.schema)))) for sink in sinks]), narrow=narrow)
    return tuple(pruner.run(sink)[0] for sink in sinks)  # type: ignore[misc]


def _needed(roots: Sequence[tuple[n.Node, set[int]]]) -> dict[int, set[int]]:
    """By node (id) of the plans below: the columns that somebody needs, given those of the roots."""
    order = walk([root for root, _ in roots])
    needed: dict[int, set[int]] = {id(node): set() for node in order}
    for root, columns in roots:
        needed[id(root)] |= columns
    for node in reversed(order):
        for child, columns in _demands(node, needed[id(node)]):
            needed[id(child)] |= columns
    return needed


def _refs(exprs: Iterable[Expr | None]) -> set[int]:
    out: set[int] = set()
    for expr in exprs:
        if expr is not None:
            out |= input_refs(expr)
    return out


def _split(columns: Iterable[int], width: int) -> tuple[set[int], set[int]]:
    left = {c for c in columns if c < width}
    return left, {c - width for c in columns if c >= width}


def _call_columns(aggregates: Iterable[n.AggregateCall]) -> set[int]:
    out: set[int] = set()
    for call in aggregates:
        out |= set(call.args)
        if call.filter is not None:
            out.add(call.filter)
    return out


def _kept_calls(node: n.Aggregate | n.WindowAggregate, need: set[int]) -> list[int]:
    """Which aggregates are wanted. One stays so that a group without them has a row count."""
    first = len(node.keys)
    kept = [i for i in range(len(node.aggregates)) if first + i in need]
    if not kept and node.aggregates and not node.keys and isinstance(node, n.Aggregate):
        kept = [0]
    return kept


def _demands(node: n.Node, need: set[int]) -> list[tuple[n.Node, set[int]]]:
    """What a node asks of each input, given what is asked of it."""
    match node:
        case n.Scan() | n.Values():
            return []
        case n.Filter():
            return [(node.input, need | _refs([node.condition]))]
        case n.Project():
            return [(node.input, _refs(node.expressions[i] for i in need))]
        case n.Expand():
            return [(node.input, _refs(one[i] for one in node.projections for i in need))]
        case n.AssignWatermarks():
            mark = node.watermark
            extra = ({mark.rowtime} if mark.rowtime is not None else set()) | _refs([mark.expr])
            if node.timestamp_function is not None:
                extra |= set(range(len(node.input.schema)))
            return [(node.input, need | extra)]
        case n.LocalTime():
            return [(node.input, {c for c in need if c < len(node.input.schema)} | {node.time})]
        case n.WindowTable():
            width = len(node.input.schema)
            time = {node.window.time} if node.window.time is not None else set()
            return [(node.input, {c for c in need if c < width} | time | set(node.keys))]
        case n.Aggregate():
            calls = [node.aggregates[i] for i in _kept_calls(node, need)]
            return [(node.input, set(node.keys) | _call_columns(calls))]
        case n.WindowAggregate():
            calls = [node.aggregates[i] for i in _kept_calls(node, need)]
            time = {node.window.time} if node.window.time is not None and not node.windowed_input else set()
            return [
                (node.input, set(node.keys) | _call_columns(calls) | time | set(node.windowed_input or ()))
            ]
        case n.Join():
            width = len(node.left.schema)
            if node.kind in ("semi", "anti"):
                left, right = set(need), set[int]()
            else:
                left, right = _split(need, width)
            more_left, more_right = _split(_refs([node.condition]), width)
            left |= more_left | set(node.left_keys)
            right |= more_right | set(node.right_keys)
            if node.interval:
                left.add(node.interval[0])
                right.add(node.interval[1])
            if node.window:
                left |= set(node.window[0])
                right |= set(node.window[1])
            return [(node.left, left), (node.right, right)]
        case n.TemporalJoin():
            width = len(node.left.schema)
            left, right = _split(need | _refs([node.condition]), width)
            left |= set(node.left_keys) | ({node.left_time} if node.left_time is not None else set())
            right |= set(node.right_keys) | ({node.right_time} if node.right_time is not None else set())
            return [(node.left, left), (node.right, right)]
        case n.Union_():
            return [(i, set(need)) for i in node.inputs]
        case n.Sort():
            return [(node.input, need | {k.index for k in node.order})]
        case n.Limit():
            return [(node.input, set(need))]
        case n.TopN():
            width = len(node.input.schema)
            more = set(node.partition) | {k.index for k in node.order} | set(node.window or ())
            return [(node.input, {c for c in need if c < width} | more)]
        case n.Over():
            width = len(node.input.schema)
            more = set(node.partition) | {k.index for k in node.order} | _call_columns(node.aggregates)
            return [(node.input, {c for c in need if c < width} | more)]
        case n.Correlate():
            width = len(node.input.schema)
            return [(node.input, {c for c in need if c < width} | _refs(node.args))]
        case n.SideOutput():
            inner = node.input
            if isinstance(inner, n.WindowAggregate):
                return [(inner, set()), (inner.input, set(need))]
            return [(inner, set(range(len(inner.schema))))]
        case n.Sink() | n.SetOperation() | n.Transform():
            return [(i, set(range(len(i.schema)))) for i in n.inputs_of(node)]
    raise AssertionError(node)


class _Pruner:
    """Rebuilds nodes; ``run`` gives the new node and old column → new column."""

    def __init__(self, needed: dict[int, set[int]], *, narrow: bool) -> None:
        self.needed = needed
        self.narrow = narrow
        self.memo: dict[int, tuple[n.Node, n.Node, Mapping_]] = {}

    def run(self, node: n.Node) -> tuple[n.Node, Mapping_]:
        found = self.memo.get(id(node))
        if found is None:
            new, mapping = self._rebuild(node, self.needed[id(node)])
            found = (node, new, mapping)
            self.memo[id(node)] = found
        return found[1], found[2]

    def own(self, node: n.Node, child: n.Node) -> tuple[n.Node, Mapping_]:
        """An input of an operator that keeps its rows: what it gets when nobody else reads anything."""
        new, mapping = self.run(child)
        if not self.narrow or isinstance(new, n.Project):
            return new, mapping
        alone, kept = _Pruner(_needed(_demands(node, self.needed[id(node)])), narrow=True).run(child)
        if len(alone.schema) >= len(new.schema):
            return new, mapping
        wanted = [mapping[c] for c in sorted(kept, key=lambda c: kept[c])]
        types = new.schema.types
        project = n.Project(
            input=new,
            expressions=tuple(InputRef(i, types[i]) for i in wanted),
            schema=_with_rowtime(new.schema, _pick(new.schema, wanted)),
        )
        return project, dict(kept)

    def exact(self, node: n.Node, columns: list[int]) -> n.Node:
        """The input with exactly these of its old columns, in order."""
        new, mapping = self.run(node)
        wanted = [mapping[c] for c in columns]
        if wanted == list(range(len(new.schema))):
            return new
        types = new.schema.types
        return n.Project(
            input=new,
            expressions=tuple(InputRef(i, types[i]) for i in wanted),
            schema=_pick(node.schema, columns),
        )

    def _rebuild(self, node: n.Node, need: set[int]) -> tuple[n.Node, Mapping_]:
        match node:
            case n.Scan():
                return _scan(node, need)
            case n.Values():
                return node, _same(len(node.schema))
            case n.Filter():
                child, m = self.run(node.input)
                new = replace(
                    node, input=child, condition=shift_refs(node.condition, m), schema=_like(child, node, m)
                )
                return new, m
            case n.Project():
                child, m = self.run(node.input)
                kept = sorted(need) or _at_hand(node, m)
                if not kept:
                    return _rows_only(child), {}
                exprs = tuple(shift_refs(node.expressions[i], m) for i in kept)
                return replace(node, input=child, expressions=exprs, schema=_pick(node.schema, kept)), _at(
                    kept
                )
            case n.Expand():
                child, m = self.run(node.input)
                kept = sorted(need)
                lists = tuple(tuple(shift_refs(one[i], m) for i in kept) for one in node.projections)
                return replace(node, input=child, projections=lists, schema=_pick(node.schema, kept)), _at(
                    kept
                )
            case n.AssignWatermarks():
                child, m = self.run(node.input)
                mark = node.watermark
                mark = replace(
                    mark,
                    rowtime=m[mark.rowtime] if mark.rowtime is not None else None,
                    expr=shift_refs(mark.expr, m) if mark.expr is not None else None,
                )
                return replace(node, input=child, watermark=mark, schema=_like(child, node, m)), m
            case n.LocalTime():
                child, m = self.run(node.input)
                return self._appending(node, child, m, time=m[node.time])
            case n.WindowTable():
                keeps = node.window.kind == "session"
                child, m = self.own(node, node.input) if keeps else self.run(node.input)
                return self._appending(
                    node, child, m, window=_window(node.window, m), keys=tuple(m[k] for k in node.keys)
                )
            case n.Aggregate() | n.WindowAggregate():
                return self._aggregate(node, need)
            case n.Join() | n.TemporalJoin():
                return self._join(node)
            case n.Union_():
                kept = sorted(need) or [0]
                if not need and any(0 not in self.run(i)[1] for i in node.inputs):
                    rows = tuple(_rows_only(self.run(i)[0]) for i in node.inputs)
                    return replace(node, inputs=rows, schema=rows[0].schema), {}
                inputs = tuple(self.exact(i, kept) for i in node.inputs)
                return replace(node, inputs=inputs, schema=_pick(node.schema, kept)), _at(kept)
            case n.Sort():
                child, m = self.own(node, node.input)
                order = tuple(replace(k, index=m[k.index]) for k in node.order)
                return replace(node, input=child, order=order, schema=_like(child, node, m)), m
            case n.Limit():
                child, m = self.run(node.input)
                return replace(node, input=child, schema=_like(child, node, m)), m
            case n.TopN():
                return self._top_n(node, need)
            case n.Over():
                child, m = self.own(node, node.input)
                return self._appending(
                    node,
                    child,
                    m,
                    partition=tuple(m[c] for c in node.partition),
                    order=tuple(replace(k, index=m[k.index]) for k in node.order),
                    aggregates=tuple(_call(c, m) for c in node.aggregates),
                )
            case n.Correlate():
                child, m = self.run(node.input)
                return self._appending(node, child, m, args=tuple(shift_refs(a, m) for a in node.args))
            case n.SideOutput():
                child, m = self.run(node.input)
                if isinstance(node.input, n.WindowAggregate):
                    inner, m = self.run(node.input.input)
                    return replace(node, input=child, schema=_like(inner, node, m)), m
                return replace(node, input=child), _same(len(node.schema))
            case n.Sink() | n.SetOperation() | n.Transform():
                inputs = tuple(self.exact(i, list(range(len(i.schema)))) for i in n.inputs_of(node))
                return n.with_inputs(node, inputs), _same(len(node.schema))
        raise AssertionError(node)

    def _appending(
        self, node: n.Node, child: n.Node, m: Mapping_, **changes: object
    ) -> tuple[n.Node, Mapping_]:
        """A node whose output is its input's columns, then columns of its own."""
        width, new_width = len(node.input.schema), len(child.schema)  # type: ignore[union-attr]
        own = node.schema.fields[width:]
        mapping = {**m, **{width + i: new_width + i for i in range(len(own))}}
        leading = _like(child, node, m).fields
        schema = _with_rowtime(node.schema, Schema((*leading, *own)))
        return replace(node, input=child, schema=schema, **changes), mapping

    def _aggregate(self, node: n.Aggregate | n.WindowAggregate, need: set[int]) -> tuple[n.Node, Mapping_]:
        child, m = self.run(node.input)
        kept = _kept_calls(node, need)
        first = len(node.keys)
        columns = [*range(first), *(first + i for i in kept)]
        changes: dict[str, object] = {
            "input": child,
            "keys": tuple(m[k] for k in node.keys),
            "aggregates": tuple(_call(node.aggregates[i], m) for i in kept),
        }
        if isinstance(node, n.WindowAggregate):
            start = first + len(node.aggregates)
            sides = [i for i in range(len(node.window_columns)) if start + i in need]
            sides = sides or [node.window_columns.index("end")] if not columns else sides
            columns += [start + i for i in sides]
            changes["window_columns"] = tuple(node.window_columns[i] for i in sides)
            window = node.window
            changes["window"] = window if node.windowed_input else _window(window, m)
            if node.windowed_input:
                changes["windowed_input"] = tuple(m[c] for c in node.windowed_input)
        schema = _with_rowtime(node.schema, _pick(node.schema, columns))
        return replace(node, schema=schema, **changes), _at(columns)

    def _join(self, node: n.Join | n.TemporalJoin) -> tuple[n.Node, Mapping_]:
        left, ml = self.own(node, node.left)
        # A table that is looked up is no input.
        looked_up = isinstance(node, n.TemporalJoin) and node.lookup
        right, mr = self.run(node.right) if looked_up else self.own(node, node.right)
        width, new_width = len(node.left.schema), len(left.schema)
        both = {**ml, **{c + width: i + new_width for c, i in mr.items()}}
        changes: dict[str, object] = {
            "left": left,
            "right": right,
            "left_keys": tuple(ml[k] for k in node.left_keys),
            "right_keys": tuple(mr[k] for k in node.right_keys),
            "condition": shift_refs(node.condition, both) if node.condition is not None else None,
        }
        if isinstance(node, n.TemporalJoin):
            changes["left_time"] = ml[node.left_time] if node.left_time is not None else None
            changes["right_time"] = mr[node.right_time] if node.right_time is not None else None
        else:
            if node.interval:
                a, b, low, high = node.interval
                changes["interval"] = (ml[a], mr[b], low, high)
            if node.window:
                (ls, le), (rs, re) = node.window
                changes["window"] = ((ml[ls], ml[le]), (mr[rs], mr[re]))
            if node.kind in ("semi", "anti"):
                return replace(node, schema=_like(left, node, ml), **changes), ml
        fields = (*left.schema.fields, *right.schema.fields)
        return replace(node, schema=_renamed(fields, node, both), **changes), both

    def _top_n(self, node: n.TopN, need: set[int]) -> tuple[n.Node, Mapping_]:
        child, m = self.own(node, node.input)
        width = len(node.input.schema)
        ranked = node.rank_column and width in need
        changes: dict[str, object] = {
            "partition": tuple(m[c] for c in node.partition),
            "order": tuple(replace(k, index=m[k.index]) for k in node.order),
            "window": tuple(m[c] for c in node.window) if node.window else None,
            "rank_column": ranked,
        }
        if ranked:
            return self._appending(node, child, m, **changes)
        schema = _with_rowtime(node.schema, _like(child, node, m))
        return replace(node, input=child, schema=schema, **changes), m


def _scan(node: n.Scan, need: set[int]) -> tuple[n.Node, Mapping_]:
    have = list(node.projection) if node.projection is not None else list(range(len(node.table.schema)))
    watermark = node.table.watermark
    kept = set(need)
    if watermark is not None:
        wanted = {watermark.rowtime} if watermark.rowtime is not None else set()
        wanted |= input_refs(watermark.expr) if watermark.expr is not None else set()
        kept |= {i for i, column in enumerate(have) if column in wanted}
    columns = sorted(kept) or [_narrowest(node)]
    schema = _with_rowtime(node.schema, _pick(node.schema, columns))
    return replace(node, projection=tuple(have[c] for c in columns), schema=schema), _at(columns)


def _narrowest(node: n.Scan) -> int:
    """A column that is cheap to read, for a query that needs only the number of rows."""
    from penstock.types import logical as t

    cheap = (t.BooleanType, *t.INTEGERS, t.DateType, *t.TIMESTAMPS, t.DoubleType)
    return next((i for i, type_ in enumerate(node.schema.types) if isinstance(type_, cheap)), 0)


def _at_hand(node: n.Project, available: Mapping_) -> list[int]:
    """A column that can be computed of what the input gives anyway, for whoever counts rows."""
    for i, expr in enumerate(node.expressions):
        if input_refs(expr) <= set(available):
            return [i]
    return []


def _rows_only(node: n.Node) -> n.Project:
    """As many rows, of one constant: nobody reads a column."""
    one = Literal(True, BooleanType(nullable=False))
    return n.Project(input=node, expressions=(one,), schema=Schema((Field("$row", one.type),)))


def _window(spec: n.WindowSpec, m: Mapping_) -> n.WindowSpec:
    return replace(spec, time=m[spec.time]) if spec.time is not None else spec


def _call(call: n.AggregateCall, m: Mapping_) -> n.AggregateCall:
    return replace(
        call, args=tuple(m[a] for a in call.args), filter=m[call.filter] if call.filter is not None else None
    )


def _same(width: int) -> Mapping_:
    return {i: i for i in range(width)}


def _at(kept: Sequence[int]) -> Mapping_:
    return {column: i for i, column in enumerate(kept)}


def _pick(schema: Schema, columns: Sequence[int]) -> Schema:
    return schema.select(columns)


def _with_rowtime(old: Schema, new: Schema) -> Schema:
    return Schema(new.fields, old.rowtime if old.rowtime in new.names else None)


def _like(child: n.Node, node: n.Node, m: Mapping_) -> Schema:
    """The node's own names and types for the child's columns that it passes on."""
    return _renamed(child.schema.fields, node, m)


def _renamed(given: Sequence[Field], node: n.Node, m: Mapping_) -> Schema:
    """Columns under the node's own names and types; such as it never had under other ones."""
    back = {new: old for old, new in m.items()}
    fields: list[Field] = []
    taken = set(node.schema.names)
    for i, field in enumerate(given):
        if i in back and back[i] < len(node.schema):
            fields.append(node.schema.fields[back[i]])
        else:
            name = field.name
            while name in taken:
                name += "_"
            fields.append(Field(name, field.type))
        taken.add(fields[-1].name)
    rowtime = node.schema.rowtime if any(f.name == node.schema.rowtime for f in fields) else None
    return Schema(tuple(fields), rowtime)
