"""GROUP BY, aggregates, HAVING: windowed, updating and with grouping sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.functions.expr import AggregateCall, Expr, FieldAccess, InputRef, Literal
from penstock.plan import nodes as n
from penstock.plan.rewriting import plain, position
from penstock.sql.aggregate_calls import AggregateDraft, aggregate_nodes, draft, is_aggregate_node
from penstock.sql.consumption import consume
from penstock.sql.grouping_sets import SET_NUMBER, expand, number_of_set, product, sets_of
from penstock.sql.input_columns import InputColumns
from penstock.sql.ordered_aggregates import in_order
from penstock.sql.reading import dotted_parts, function_name
from penstock.sql.scope import Relation, unique_schema
from penstock.sql.windows import GroupWindow, as_instant, group_window, in_local_time, window_types
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.properties import WindowProperty
    from penstock.sql.queries import QueryBinder
    from penstock.sql.scalars import Special


class Aggregation:
    """Plans the grouping of one SELECT. ``node`` is the aggregate; ``special`` binds expressions above it.

    ``aggregates``: the aggregate calls of the SELECT. ``below``: gives the values of the subqueries inside
    these calls and inside the keys.
    """

    def __init__(
        self,
        ctx: QueryBinder,
        relation: Relation,
        select: exp.Select,
        aggregates: Sequence[exp.Expression],
        below: Special,
    ) -> None:
        self.ctx = ctx
        self.relation = relation
        self.binder = ctx.expressions(relation, below)
        self.window: GroupWindow | None = None
        self.key_exprs: list[Expr] = []
        self.drafts: list[AggregateDraft] = []
        #: The keys that have subqueries.
        self.subqueries: list[exp.Expression] = []
        group = select.args.get("group")
        self.group = group
        self.grouped = group is not None
        sets = self._group(group) if group else None
        self.calls: dict[int, int] = {}
        for node in aggregates:
            self.calls[id(node)] = self._add(draft(ctx, node, self.binder, grouped=self.grouped))
        self.sets = sets
        self.key_index: dict[int, InputRef] = {}
        self.window_columns: dict[str, InputRef] = {}
        #: Column of the aggregate's output that holds the number of the grouping set.
        self.set_index = 0
        self.node = ctx.hints.grouped(self._build(), self.relation)

    def _add(self, one: AggregateDraft) -> int:
        one = replace(
            one,
            args=tuple(plain(a) for a in one.args),
            filter=plain(one.filter) if one.filter is not None else None,
        )
        if one not in self.drafts:
            self.drafts.append(one)
        return self.drafts.index(one)

    def _group(self, group: exp.Group) -> list[list[int]] | None:
        if group.args.get("all"):
            raise self.ctx.source.unsupported("GROUP BY ALL", group, remedy="name the columns")
        if group.args.get("all") is False:
            raise self.ctx.source.unsupported(
                "GROUP BY DISTINCT", group, remedy="write each grouping set once"
            )
        sets: list[list[int]] | None = None
        in_all: list[int] = []
        if group.args.get("grouping_sets"):
            raise self.ctx.source.unsupported(
                "GROUP BY … GROUPING SETS without a comma between",
                group,
                remedy="GROUP BY GROUPING SETS (…) with all columns in the sets",
            )
        for item in group.expressions:
            if item.find(exp.Select) is not None:
                self.subqueries.append(item)
            if isinstance(item, (exp.GroupingSets, exp.Cube, exp.Rollup)):
                sets = product(sets, sets_of(item, self._item_keys))
                continue
            window = group_window(self.ctx, item, self.relation)
            if window is not None:
                if self.window is not None:
                    raise self.ctx.source.error("GROUP BY has two windows", item, expected="one window")
                self.window = window
                continue
            keys = self._item_keys(item)
            if sets is not None:
                sets = [s + keys for s in sets]
            else:
                in_all += keys
        if sets is not None:
            return [sorted(set(in_all + s)) for s in sets]
        return None

    def _item_keys(self, item: exp.Expression) -> list[int]:
        if isinstance(item, (exp.Tuple, exp.Paren)):
            parts = item.expressions if isinstance(item, exp.Tuple) else [item.this]
            return [k for part in parts for k in self._item_keys(part)]
        nested = next(aggregate_nodes(self.ctx, item), None)
        if nested is not None:
            raise self.ctx.source.error("an aggregate cannot stand in GROUP BY", nested)
        bound = self.binder.bind(item)
        at = position(bound, self.key_exprs)
        if at is None:
            self.key_exprs.append(bound)
            at = len(self.key_exprs) - 1
        return [at]

    # -- building ---------------------------------------------------------------------------

    def _build(self) -> n.Node:
        if self.window is not None and self.window.zone is not None:
            self.relation = in_local_time(self.relation, self.window.time, self.window.zone)
        columns = InputColumns(self.ctx, self.relation)
        window = self.ctx.analysis.of(self.relation.node).window
        grouped = {e.index for e in self.key_exprs if isinstance(e, InputRef)}
        windowed = (
            self.window is None
            and window is not None
            and window.start in grouped
            and window.end in grouped
            and (self.sets is None or self._in_every_set({window.start, window.end}))
        )
        key_positions = [columns.index(e) for e in self.key_exprs]
        calls = tuple(self._call(one, columns) for one in self.drafts)
        input_node = columns.node()
        types = input_node.schema.types
        names = input_node.schema.names
        if windowed or self.window is not None:
            if self.sets is not None:
                return self._window_sets(input_node, key_positions, calls, window if windowed else None)
            return self._window_node(input_node, key_positions, calls, window if windowed else None)
        if self.sets is not None:
            return self._expanded(input_node, key_positions, calls)
        fields = [(names[k], types[k]) for k in key_positions]
        fields += [(f"EXPR${i}", c.type) for i, c in enumerate(calls)]
        schema = unique_schema(fields)
        for i in range(len(key_positions)):
            self.key_index[i] = InputRef(i, schema.types[i])
        self.first_call = len(key_positions)
        return n.Aggregate(input=input_node, keys=tuple(key_positions), aggregates=calls, schema=schema)

    def _in_every_set(self, columns: set[int]) -> bool:
        assert self.sets is not None
        wanted = {i for i, e in enumerate(self.key_exprs) if isinstance(e, InputRef) and e.index in columns}
        return all(wanted <= set(members) for members in self.sets)

    def _window_sets(
        self,
        node: n.Node,
        keys: list[int],
        calls: tuple[AggregateCall, ...],
        window: WindowProperty | None,
    ) -> n.Node:
        """Grouping sets of a windowed table: each row is repeated once per set, then grouped by window."""
        if window is None:
            raise self.ctx.source.unsupported(
                f"GROUPING SETS with {self.window.name if self.window else 'a window'} in GROUP BY",
                self.group,
                expected="TABLE(TUMBLE(…)) with window_start and window_end in every set",
                remedy="GROUP BY window_start, window_end, GROUPING SETS (…) over the table function",
            )
        expanded, moved, by = expand(node, keys, calls, self.sets)
        types, names = expanded.schema.types, expanded.schema.names
        assert window.start is not None
        assert window.end is not None
        sides = {window.start: "start", window.end: "end"}
        kept = [i for i, k in enumerate(keys) if k not in sides]
        kinds = window_types(window.spec)
        fields = [(names[i], types[i]) for i in (*kept, by - 1)]
        fields += [(f"EXPR${i}", c.type) for i, c in enumerate(moved)]
        fields += [(f"window_{side}", kinds[side]) for side in kinds]
        schema = unique_schema(fields)
        schema = t.Schema(schema.fields, schema.names[-1] if window.spec.time is not None else None)
        first = len(kept) + 1 + len(moved)
        self.window_columns = {
            side: InputRef(first + i, schema.types[first + i]) for i, side in enumerate(kinds)
        }
        for new, i in enumerate(kept):
            self.key_index[i] = InputRef(new, schema.types[new])
        for i, k in enumerate(keys):
            if k in sides:
                self.key_index[i] = self.window_columns[sides[k]]
        self.set_index, self.first_call = len(kept), len(kept) + 1
        return n.WindowAggregate(
            input=expanded,
            window=window.spec,
            keys=(*kept, by - 1),
            aggregates=moved,
            windowed_input=(window.start + by, window.end + by),
            schema=schema,
        )

    def _expanded(self, node: n.Node, keys: list[int], calls: tuple[AggregateCall, ...]) -> n.Node:
        expanded, moved, by = expand(node, keys, calls, self.sets)
        types, names = expanded.schema.types, node.schema.names
        out = [(names[k], types[i]) for i, k in enumerate(keys)]
        out += [("$set", SET_NUMBER)] + [(f"EXPR${i}", c.type) for i, c in enumerate(calls)]
        schema = unique_schema(out)
        for i in range(len(keys)):
            self.key_index[i] = InputRef(i, schema.types[i])
        self.set_index, self.first_call = len(keys), by
        return n.Aggregate(input=expanded, keys=tuple(range(by)), aggregates=moved, schema=schema)

    def _grouping_function(self, node: exp.Expression) -> Expr | None:
        """The value of GROUPING(k …), GROUPING_ID(k …) or GROUP_ID() by
        grouping set; None for another node."""
        if not isinstance(node, exp.Anonymous):
            return None
        name = function_name(node).upper()
        if name not in ("GROUPING", "GROUPING_ID", "GROUP_ID"):
            return None
        keys = []
        for argument in node.expressions:
            at = position(self.binder.bind(argument), self.key_exprs)
            if at is None:
                raise self.ctx.source.error(f"{name} needs a column of GROUP BY", argument)
            keys.append(at)
        sets = self.sets if self.sets is not None else [list(range(len(self.key_exprs)))]
        return number_of_set(name, keys, sets, InputRef(self.set_index, SET_NUMBER))

    def _window_node(
        self,
        input_node: n.Node,
        key_positions: Sequence[int],
        calls: tuple[AggregateCall, ...],
        window: WindowProperty | None,
    ) -> n.Node:
        names, types = input_node.schema.names, input_node.schema.types
        side_of: dict[int, str] = {}
        ends: tuple[int, int] | None = None
        if self.window is not None:
            spec = self.window.spec
        else:
            assert window is not None, "windowed by its columns"
            spec = window.spec
        if window is not None:
            assert window.start is not None
            assert window.end is not None
            side_of = {window.start: "start", window.end: "end"}
            ends = (window.start, window.end)
            if window.time is not None:
                side_of[window.time] = "time"
        keys = [(i, k) for i, k in enumerate(key_positions) if k not in side_of]
        fields = [(names[k], types[k]) for _, k in keys]
        fields += [(f"EXPR${i}", c.type) for i, c in enumerate(calls)]
        kinds = window_types(spec)
        fields += [(f"window_{side}", kinds[side]) for side in ("start", "end", "time")]
        schema = unique_schema(fields)
        schema = t.Schema(schema.fields, schema.names[-1] if spec.time is not None else None)
        first = len(keys) + len(calls)
        sides = {side: InputRef(first + i, schema.types[first + i]) for i, side in enumerate(kinds)}
        for new, (i, _) in enumerate(keys):
            self.key_index[i] = InputRef(new, schema.types[new])
        for i, k in enumerate(key_positions):
            if k in side_of:
                self.key_index[i] = sides[side_of[k]]
        self.window_columns = sides
        self.first_call = len(keys)
        return n.WindowAggregate(
            input=input_node,
            window=spec,
            keys=tuple(k for _, k in keys),
            aggregates=calls,
            windowed_input=ends,
            schema=schema,
        )

    def _call(self, one: AggregateDraft, columns: InputColumns) -> AggregateCall:
        return AggregateCall(
            one.function,
            tuple(columns.index(a) for a in one.args),
            one.type,
            distinct=one.distinct,
            filter=columns.index(one.filter) if one.filter is not None else None,
            ignore_nulls=one.ignore_nulls,
            constants=one.constants,
            python=one.python,
        )

    # -- binding above the aggregate ----------------------------------------------------------

    def special(self, node: exp.Expression) -> Expr | None:
        """The column of an aggregate, a grouping function or a window bound; None for another expression."""
        if is_aggregate_node(self.ctx, node):
            return self._result(node)
        grouping = self._grouping_function(node)
        if grouping is not None:
            return grouping
        if self.window is not None:
            side = self.window.column_of(self.ctx, node, self.binder)
            if side == "clock":
                return self.ctx.call("PROCTIME", [], node)
            if side is not None:
                made = self.window_columns[side]
                local = side == "time" and self.window.zone is not None
                return as_instant(self.ctx, made) if local else made
        if isinstance(node, (exp.Literal, exp.Window, exp.Star)):
            return None
        if node in self.subqueries:
            consume(node)
            return self.key_index[self._item_keys(next(x for x in self.subqueries if x == node))[0]]
        if next(aggregate_nodes(self.ctx, node), None) is None and node.find(exp.Window, exp.Select) is None:
            known = self._key(node)
            if known is not None:
                return known
        parts = dotted_parts(node) if isinstance(node, (exp.Column, exp.Dot)) else None
        if parts is not None:
            field = self._field_of_key(node)
            if field is not None:
                return field
            name = ".".join(parts)
            column, _ = self.relation.resolve(parts, node, self.ctx.source)
            raise self.ctx.source.error(
                f"column '{name}' is neither grouped nor aggregated",
                node,
                expected=f"an aggregate of it, or '{name}' in GROUP BY",
                got=f"{column.name} {column.type}",
                remedy=f"add {name} to GROUP BY, or write e.g. MAX({name})",
            )
        return None

    def _result(self, node: exp.Expression) -> Expr:
        at = self.calls.get(id(node))
        if at is None:
            # The node is a copy of a known call: ``Overs`` copies an OVER clause that the WINDOW clause
            # completes.
            one = draft(self.ctx, node, self.binder, grouped=self.grouped)
            count = len(self.drafts)
            at = self._add(one)
            if len(self.drafts) > count:
                raise self.ctx.source.unsupported("an aggregate in this place", node)
        one = self.drafts[at]
        made = InputRef(self.first_call + at, one.type)
        if one.ordered is None:
            return made
        function, directions, separator = one.ordered
        return in_order(self.ctx, function, made, directions, separator)

    def _field_of_key(self, node: exp.Expression) -> Expr | None:
        """The field ``r.a.b`` if ``r`` or ``r.a`` is a key of GROUP BY; None otherwise."""
        bound, path = self.binder.bind(node), list[FieldAccess]()
        while isinstance(bound, FieldAccess):
            path.append(bound)
            bound = bound.arg
            at = position(bound, self.key_exprs)
            if at is not None:
                value: Expr = self.key_index[at]
                for step in reversed(path):
                    nullable = step.type.nullable or value.type.nullable
                    value = FieldAccess(value, step.index, step.type.with_nullable(nullable))
                return value
        return None

    def _key(self, node: exp.Expression) -> InputRef | None:
        if isinstance(node, exp.Anonymous) and self.window is not None:
            name = function_name(node).upper()
            if name.startswith(("TUMBLE_", "HOP_", "SESSION_")):
                return None
        if (
            not any(isinstance(child, (exp.Column, exp.Dot)) for child in node.walk())
            and not self._constant_key()
        ):
            return None
        try:
            bound = self.binder.bind(node)
        except PenstockError:
            if isinstance(node, exp.Column):
                raise
            # A part of the expression may be a key or hold an auxiliary window function, so the caller binds
            # the parts one by one.
            return None
        at = position(bound, self.key_exprs)
        return None if at is None else self.key_index[at]

    def _constant_key(self) -> bool:
        return any(isinstance(e, Literal) for e in self.key_exprs)
