"""Window functions with OVER: ROW_NUMBER, RANK and running aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.functions.expr import AggregateCall, Expr, InputRef, Literal
from penstock.jobgraph.specs import SortKey
from penstock.plan import nodes as n
from penstock.plan.rewriting import plain, position
from penstock.sql.aggregation import AggregateDraft, draft, is_aggregate_node
from penstock.sql.expressions import ExpressionBinder, function_name, literal_number
from penstock.sql.scope import Relation, unique_schema
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.queries import QueryBinder

RANKING = {"ROW_NUMBER", "RANK", "DENSE_RANK"}
_UNSUPPORTED = {"NTILE", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "PERCENT_RANK", "CUME_DIST"}


def window_nodes(roots: list[exp.Expression]) -> list[exp.Window]:
    found: list[exp.Window] = []
    for root in roots:
        found += [w for w in root.find_all(exp.Window) if w not in found]
    return found


class Overs:
    """The OVER functions of one SELECT, planned above ``relation``."""

    def __init__(
        self, ctx: QueryBinder, relation: Relation, windows: list[exp.Window], binder: ExpressionBinder
    ) -> None:
        self.ctx = ctx
        self.results: dict[int, tuple[exp.Window, InputRef]] = {}
        groups: dict[tuple, list[tuple[exp.Window, AggregateDraft]]] = {}
        for window in windows:
            partition = tuple(plain(binder.bind(e)) for e in window.args.get("partition_by") or [])
            order = tuple(ctx.sort_item(o, binder) for o in self._order(window))
            frame, preceding = self._frame(window)
            key = (partition, order, frame, preceding)
            groups.setdefault(key, []).append((window, self._function(window, binder)))
        self.relation = relation
        for key, members in groups.items():
            self._plan(key, members)

    def special(self, node: exp.Expression) -> Expr | None:
        if isinstance(node, exp.Window):
            for window, ref in self.results.values():
                if window is node or window == node:
                    return ref
        return None

    def _order(self, window: exp.Window) -> list[exp.Ordered]:
        if isinstance(window.args.get("alias"), exp.Identifier):
            raise self.ctx.source.unsupported("a named WINDOW", window, remedy="write the window out")
        order = window.args.get("order")
        return list(order.expressions) if order is not None else []

    def _function(self, window: exp.Window, binder: ExpressionBinder) -> AggregateDraft:
        inner = window.this
        name = function_name(inner).upper() if isinstance(inner, exp.Anonymous) else ""
        if name in RANKING:
            if inner.expressions:
                raise self.ctx.source.error(f"{name} takes no argument", inner)
            if not self._order(window):
                raise self.ctx.source.error(
                    f"{name} needs ORDER BY", window, expected=f"{name}() OVER (PARTITION BY … ORDER BY …)"
                )
            return AggregateDraft(name, (), t.BigIntType(nullable=False))
        if name in _UNSUPPORTED - {"FIRST_VALUE", "LAST_VALUE"} or not is_aggregate_node(self.ctx, inner):
            raise self.ctx.source.unsupported(
                f"{name or 'this function'} with OVER",
                window,
                remedy="ROW_NUMBER, RANK, DENSE_RANK and aggregates work",
            )
        if not self._order(window):
            raise self.ctx.source.unsupported(
                f"{name} OVER without ORDER BY (it would need all rows first)",
                window,
                remedy="add ORDER BY for a running aggregate, or join the rows with a GROUP BY of them",
            )
        return draft(self.ctx, inner, binder)

    def _frame(self, window: exp.Window) -> tuple[str, int | None]:
        spec = window.args.get("spec")
        if spec is None:
            return "range", None
        kind = str(spec.args.get("kind") or "").upper()
        if kind not in ("ROWS", "RANGE"):
            raise self.ctx.source.unsupported(f"an OVER frame of {kind}", window)
        end = spec.args.get("end")
        if end not in (None, "CURRENT ROW"):
            raise self.ctx.source.unsupported(
                "an OVER frame that does not end at CURRENT ROW", window, remedy="… AND CURRENT ROW"
            )
        start = spec.args.get("start")
        if start == "UNBOUNDED":
            return kind.lower(), None
        if start == "CURRENT ROW":
            return kind.lower(), 0
        if str(spec.args.get("start_side") or "").upper() != "PRECEDING":
            raise self.ctx.source.unsupported("an OVER frame that starts with FOLLOWING", window)
        if kind == "ROWS":
            count = literal_number(start)
            if count is None:
                raise self.ctx.source.error("ROWS n PRECEDING needs a whole number", start)
            return "rows", count
        bound = ExpressionBinder(Relation.of(n.Values(schema=t.Schema(()), data="")), self.ctx.source).bind(
            start
        )
        if not isinstance(bound, Literal) or not isinstance(bound.type, t.DayTimeIntervalType):
            raise self.ctx.source.error(
                "RANGE … PRECEDING needs an interval", start, expected="INTERVAL '1' HOUR"
            )
        return "range", bound.value

    def _plan(self, key: tuple, members: list[tuple[exp.Window, AggregateDraft]]) -> None:
        partition, order, frame, preceding = key
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
            frame=frame, preceding=preceding, schema=t.Schema(schema.fields, base.schema.rowtime),
        )  # fmt: skip
        for i, (window, d) in enumerate(members):
            self.results[len(self.results)] = (window, InputRef(len(base.schema) + i, d.type))
        self.relation = self.relation.over(node)
