"""Window functions with OVER: ROW_NUMBER, RANK and running aggregates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.functions.aggregates import infer_aggregate
from penstock.functions.expr import AggregateCall, Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import SortKey
from penstock.plan import nodes as n
from penstock.plan.rewriting import plain, position
from penstock.sql.aggregate_calls import AggregateDraft, draft, is_aggregate_node
from penstock.sql.consumption import consume, variant
from penstock.sql.errors import did_you_mean
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.ordering import sort_item
from penstock.sql.reading import function_name
from penstock.sql.scope import Relation, unique_schema
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sql.queries import QueryBinder

_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE")
_SHIFTS = ("LAG", "LEAD")
#: The frame of an OVER window: kind, preceding, following. None means all rows on that side.
_Frame = tuple[str, int | None, int | None]


def _order(window: exp.Window) -> list[exp.Ordered]:
    order = window.args.get("order")
    return list(order.expressions) if order is not None else []


def _name(node: exp.Expression) -> str:
    """The name of a called function in capitals; empty for another expression."""
    return function_name(node).upper() if isinstance(node, exp.Anonymous) else ""


def window_nodes(roots: list[exp.Expression]) -> list[exp.Window]:
    """The OVER calls of one SELECT, without those of its subqueries."""
    queries = (exp.Select, exp.SetOperation, exp.Subquery)
    parts = (part for root in roots for part in root.dfs(prune=lambda node: isinstance(node, queries)))
    return [part for part in parts if isinstance(part, exp.Window)]


class Overs:
    """The OVER functions of one SELECT, planned above ``relation``. ``named``:
    the windows of its WINDOW clause."""

    def __init__(
        self,
        ctx: QueryBinder,
        relation: Relation,
        windows: list[exp.Window],
        binder: ExpressionBinder,
        named: Sequence[exp.Window] = (),
    ) -> None:
        self.ctx = ctx
        self.relation = relation
        self.binder = binder
        self.named = {w.name: w for w in named}
        self.results: dict[int, tuple[exp.Window, InputRef]] = {}
        groups: dict[tuple[Any, ...], list[tuple[exp.Window, AggregateDraft]]] = {}
        different: list[exp.Window] = []
        different += (w for w in windows if w not in different)
        for window in different:
            spelt = self._spelt(window)
            partition = tuple(plain(binder.bind(e)) for e in spelt.args.get("partition_by") or [])
            order = tuple(sort_item(ctx, o, binder) for o in _order(spelt))
            function = self._function(window, bool(order), binder)
            frame = self._frame(spelt, function, bool(order))
            # Ranks and shifts have no frame and run apart from aggregates.
            kind = next((i for i, names in enumerate((_RANKS, _SHIFTS)) if function.function in names), 2)
            groups.setdefault((partition, order, frame, kind), []).append((window, function))
        for (partition, order, frame, _), members in groups.items():
            self._plan(partition, order, frame, members)

    def special(self, node: exp.Expression) -> Expr | None:
        """The column of an OVER call; None for another expression."""
        if isinstance(node, exp.Window):
            for window, ref in self.results.values():
                if window is node:
                    return ref
                if window == node:
                    consume(node)
                    return ref
        return None

    def _spelt(self, window: exp.Window) -> exp.Window:
        """The window; ``OVER w`` and ``OVER (w …)`` get the clauses of ``w`` in the WINDOW clause."""
        alias = window.args.get("alias")
        if alias is None:
            return window
        known = self.named.get(alias.name)
        if known is None:
            raise self.ctx.source.error(
                f"unknown window '{alias.name}'",
                alias,
                expected="one of the WINDOW clause: " + (", ".join(self.named) or "(there is none)"),
                got=repr(alias.name),
                remedy=did_you_mean(alias.name, self.named),
            )
        added = {}
        for part in ("partition_by", "order", "spec"):
            if known.args.get(part) is None:
                continue
            if window.args.get(part):
                raise self.ctx.source.error(
                    f"window '{alias.name}' has that clause already", window, expected="another clause"
                )
            added[part] = known.args[part]
        return variant(window, lambda args: args.update(added))

    def _function(self, window: exp.Window, ordered: bool, binder: ExpressionBinder) -> AggregateDraft:
        inner = window.this
        ignores = isinstance(inner, exp.IgnoreNulls)
        if isinstance(inner, (exp.IgnoreNulls, exp.RespectNulls)) and _name(inner.this) in _SHIFTS:
            inner = inner.this
        name = _name(inner)
        if name in _RANKS or name in _SHIFTS:
            if not ordered:
                raise self.ctx.source.error(
                    f"{name} needs ORDER BY",
                    window,
                    expected=f"{name}(…) OVER (PARTITION BY … ORDER BY …)",
                    got="OVER without ORDER BY",
                    remedy="say by what the rows are ordered",
                )
            made = self._window_function(name, inner, binder)
            if ignores and not made.constants[0]:
                raise self.ctx.source.error(
                    f"{name} of 0 rows with IGNORE NULLS", window, expected="1 row or more", got="0 rows"
                )
            return replace(made, ignore_nulls=ignores)
        if not is_aggregate_node(self.ctx, inner):
            raise self.ctx.source.unsupported(
                f"{name or 'this function'} with OVER",
                window,
                expected="an aggregate, or one of " + ", ".join([*_RANKS, *_SHIFTS]),
                remedy=did_you_mean(name, [*_RANKS, *_SHIFTS]) if name else None,
            )
        return draft(self.ctx, inner, binder, over=True)

    def _window_function(self, name: str, node: exp.Anonymous, binder: ExpressionBinder) -> AggregateDraft:
        args = [plain(binder.bind(a)) for a in node.expressions]
        place = self.ctx.source.position(node)
        type_ = infer_aggregate(
            name, [a.type for a in args], distinct=False, grouped=False, line=place.line, column=place.column
        )
        counted = args[:1] if name == "NTILE" else args[1:2]
        number = 1
        if counted:
            count = counted[0]
            if (
                not isinstance(count, Literal)
                or not isinstance(count.value, int)
                or count.value < (name == "NTILE")
            ):
                raise self.ctx.source.error(
                    f"{name} takes a constant number of {'buckets' if name == 'NTILE' else 'rows'}",
                    node,
                    expected="a whole number" + (" above 0" if name == "NTILE" else ""),
                    got=str(count.type) if not isinstance(count, Literal) else str(count.value),
                )
            number = count.value
        if name == "NTILE":
            return AggregateDraft(name, (), type_, constants=(number,))
        if name not in _SHIFTS:
            return AggregateDraft(name, (), type_)
        shifted = (args[0],)
        if len(args) > 2:
            default = args[2]
            if default.type.with_nullable(True) != args[0].type.with_nullable(True):
                default = make_call(
                    "CAST",
                    [default],
                    type=args[0].type.with_nullable(default.type.nullable),
                    zone=self.ctx.zone,
                )
            shifted = (args[0], default)  # type: ignore[assignment]
        return AggregateDraft(name, shifted, type_, constants=(number,))

    def _frame(self, window: exp.Window, function: AggregateDraft, ordered: bool) -> _Frame:
        spec = window.args.get("spec")
        if spec is None:
            return ("range", None, 0) if ordered else ("rows", None, None)
        if function.function in _RANKS or function.function in _SHIFTS:
            raise self.ctx.source.error(
                f"{function.function} takes no frame", window, expected="PARTITION BY and ORDER BY only"
            )
        kind = str(spec.args.get("kind") or "").upper()
        if kind not in ("ROWS", "RANGE"):
            raise self.ctx.source.unsupported(f"an OVER frame of {kind}", window, expected="ROWS or RANGE")
        if kind == "RANGE" and not ordered:
            raise self.ctx.source.error("a RANGE frame needs ORDER BY", window, expected="ORDER BY, or ROWS")
        start = self._bound(spec, "start", kind, window)
        end = self._bound(spec, "end", kind, window)
        preceding = None if start is None else -start
        if start is not None and end is not None and start > end:
            raise self.ctx.source.error(
                "the OVER frame ends before it starts", window, expected="BETWEEN … PRECEDING AND … FOLLOWING"
            )
        return kind.lower(), preceding, end

    def _bound(self, spec: exp.WindowSpec, edge: str, kind: str, window: exp.Window) -> int | None:
        """The distance from the current row, in rows or units; negative
        before the row; None for UNBOUNDED."""
        value = spec.args.get(edge)
        side = str(spec.args.get(f"{edge}_side") or "").upper()
        if value is None or value == "CURRENT ROW":
            return 0
        if value == "UNBOUNDED":
            if side != ("PRECEDING" if edge == "start" else "FOLLOWING"):
                raise self.ctx.source.error(
                    f"an OVER frame cannot {edge} at UNBOUNDED {side}", window, expected="the other side"
                )
            return None
        sign = -1 if side == "PRECEDING" else 1
        bound = ExpressionBinder(Relation.of(n.Values(schema=t.Schema(()), data="")), self.ctx.source).bind(
            value
        )
        whole = isinstance(bound, Literal) and isinstance(bound.type, t.INTEGERS)
        interval = isinstance(bound, Literal) and isinstance(bound.type, t.DayTimeIntervalType)
        if not whole and not (interval and kind == "RANGE"):
            raise self.ctx.source.error(
                f"{kind} … {side} needs a constant",
                value,
                expected="a whole number"
                + (" or an interval, e.g. INTERVAL '1' HOUR" if kind == "RANGE" else ""),
                got=str(bound.type),
            )
        assert isinstance(bound, Literal)
        if interval:
            order = _order(window)[0].this
            if isinstance(self.binder.bind(order).type, t.DateType):
                return sign * (int(bound.value) // 86_400_000_000)
        return sign * int(bound.value)

    def _plan(
        self,
        partition: tuple[Expr, ...],
        order: tuple[tuple[Expr, bool, bool], ...],
        frame: _Frame,
        members: list[tuple[exp.Window, AggregateDraft]],
    ) -> None:
        base = self.relation.node
        extra: list[Expr] = []

        def index(expr: Expr) -> int:
            if isinstance(expr, InputRef):
                return expr.index
            at = position(expr, extra)
            if at is None:
                extra.append(expr)
                at = len(extra) - 1
            return len(base.schema) + at

        partition_index = tuple(index(e) for e in partition)
        order_index = tuple(SortKey(index(e), desc, first) for e, desc, first in order)
        calls = tuple(
            AggregateCall(
                d.function, tuple(index(a) for a in d.args), d.type, distinct=d.distinct,
                filter=index(d.filter) if d.filter is not None else None, ignore_nulls=d.ignore_nulls,
                constants=d.constants, python=d.python,
            )
            for _, d in members
        )  # fmt: skip
        if extra:
            fields = base.schema.fields
            exprs = tuple(InputRef(i, f.type) for i, f in enumerate(fields))
            schema = unique_schema(
                [(f.name, f.type) for f in fields] + [(f"$o{i}", e.type) for i, e in enumerate(extra)]
            )
            base = n.Project(
                input=base, expressions=(*exprs, *extra), schema=t.Schema(schema.fields, base.schema.rowtime)
            )
        names = [(f.name, f.type) for f in base.schema.fields]
        names += [(f"w{i}$o", c.type) for i, c in enumerate(calls)]
        schema = unique_schema(names)
        node = n.Over(
            input=base, partition=partition_index, order=order_index, aggregates=calls,
            frame=frame[0], preceding=frame[1], following=frame[2],  # type: ignore[arg-type]
            schema=t.Schema(schema.fields, base.schema.rowtime),
        )  # fmt: skip
        for i, (window, d) in enumerate(members):
            self.results[len(self.results)] = (window, InputRef(len(base.schema) + i, d.type))
        self.relation = self.relation.over(node)
