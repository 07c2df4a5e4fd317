"""Queries: SELECT, VALUES and set operations → logical plan nodes.

Names and types are resolved here. ``plan.optimizer`` finds equi-keys, time bounds, Top-N and what a source can
apply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.config import LOCAL_TIME_ZONE
from penstock.functions.expr import Expr
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import SortKey
from penstock.plan import nodes as n
from penstock.plan.operators.normalize.node import table_rows
from penstock.plan.properties import Analysis
from penstock.sql.aggregate_calls import aggregate_nodes
from penstock.sql.aggregation import Aggregation
from penstock.sql.catalog import UID_HINT, source_ref, with_options
from penstock.sql.consumption import consume, consuming
from penstock.sql.dotted import catalog_name
from penstock.sql.errors import Source
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.join_nodes import make_join
from penstock.sql.joins import bind_correlate, bind_join
from penstock.sql.ordering import limited, order_keys, ordered
from penstock.sql.overs import Overs, window_nodes
from penstock.sql.pivoting import bind_pivots
from penstock.sql.qualify import either, qualified
from penstock.sql.reading import natural_name
from penstock.sql.scalars import Special, value_subqueries, with_scalars
from penstock.sql.scope import Relation, ScopeColumn, unique_schema
from penstock.sql.select_hints import NO_HINTS, SelectHints, check_tables, select_hints, warn_without_effect
from penstock.sql.set_operations import set_operation
from penstock.sql.subqueries import bind_condition, bind_where
from penstock.sql.syntax import WINDOW_FUNCTIONS, AsOf, BoundTable, TableArgument, TableFunction
from penstock.sql.temporal import time_travel
from penstock.sql.values import values_node
from penstock.sql.windows import bind_window_table
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.sql.catalog import Catalog


class QueryBinder:
    """Binds queries of one text against a catalog."""

    def __init__(
        self,
        catalog: Catalog,
        config: Mapping[str, str],
        source: Source,
        *,
        ctes: Mapping[str, Relation] | None = None,
        analysis: Analysis | None = None,
        hints: SelectHints = NO_HINTS,
    ) -> None:
        self.catalog = catalog
        self.config = config
        self.source = source
        self.ctes = dict(ctes or {})
        self.hints = hints
        self.analysis = analysis or Analysis()
        self.zone = LOCAL_TIME_ZONE.read(config)

    # -- helpers shared by the clause modules -----------------------------------------------

    def expressions(
        self, relation: Relation, special: Callable[[exp.Expression], Expr | None] | None = None
    ) -> ExpressionBinder:
        """A binder of expressions over the columns of ``relation``."""
        return ExpressionBinder(
            relation, self.source, zone=self.zone, functions=self.catalog.functions, special=special
        )

    def call(self, name: str, args: list[Expr], node: exp.Expression | None = None) -> Expr:
        """A typed call with the position of ``node``."""
        place = self.source.position(node)
        line, column, within = place.line, place.column, self.source.within
        return make_call(name, args, line=line, column=column, within=within, zone=self.zone)

    def project(self, relation: Relation, outputs: Sequence[tuple[str, Expr]]) -> Relation:
        """The relation of named expressions."""
        return self.project_qualified(relation, [(name, expr, None) for name, expr in outputs])

    def project_qualified(
        self, relation: Relation, outputs: Sequence[tuple[str, Expr, str | None]]
    ) -> Relation:
        """The relation of (name, expression, table) outputs; the table qualifies the name."""
        schema = unique_schema((name, expr.type) for name, expr, _ in outputs)
        expressions = tuple(expr for _, expr, _ in outputs)
        node = n.Project(input=relation.node, expressions=expressions, schema=schema)
        columns = tuple(
            ScopeColumn(name, table, i, expr.type) for i, (name, expr, table) in enumerate(outputs)
        )
        rowtimes = self.analysis.of(node).rowtimes
        if rowtimes:
            node = n.Project(
                input=relation.node,
                expressions=expressions,
                schema=t.Schema(schema.fields, schema.names[min(rowtimes)]),
            )
        return Relation(node, columns)

    def is_window_function(self, node: exp.Expression) -> bool:
        """Whether the node is a window table function such as TUMBLE."""
        return isinstance(node, TableFunction) and node.args["name"].upper() in WINDOW_FUNCTIONS

    # -- queries -------------------------------------------------------------------------------

    def statement(self, node: exp.Expression) -> Relation:
        """The query of a statement, with its visible columns only. Every clause is translated, or
        UnsupportedError names the clause that is not."""
        with consuming(node, self.source):
            return self.compact(self.query(node))

    def query(self, node: exp.Expression) -> Relation:
        """Any query expression; the visible columns of the relation are its result."""
        match node:
            case exp.Subquery():
                inner = self._with(node).query(node.this)
                inner = ordered(self, node, inner) if self._modified(node) else inner
                return self._aliased(inner, node.args.get("alias"))
            case exp.Select():
                return self._with(node)._hinted(node)._select(node)
            case exp.SetOperation():
                ctx = self._with(node)
                return (
                    ordered(ctx, node, set_operation(ctx, node))
                    if self._modified(node)
                    else set_operation(ctx, node)
                )
            case exp.Values():
                relation = Relation.of(values_node(self, node))
                relation = self._aliased(relation, node.args.get("alias"))
                return ordered(self, node, relation) if self._modified(node) else relation
            case exp.Paren():
                return self.query(node.this)
            case exp.Table():
                return self.table_item(node)
            case BoundTable():
                relation = node.meta["bind"](self)
                assert isinstance(relation, Relation)
                return relation
        raise self.source.unsupported(f"{type(node).__name__} as a query", node)

    @staticmethod
    def _modified(node: exp.Expression) -> bool:
        return any(node.args.get(k) for k in ("order", "limit", "offset"))

    def _with(self, node: exp.Expression) -> QueryBinder:
        clause = node.args.get("with_")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            steps = "write each step as a query of its own, as many as are needed"
            raise self.source.unsupported("WITH RECURSIVE", clause, remedy=steps)
        inner = QueryBinder(self.catalog, self.config, self.source, ctes=self.ctes, analysis=self.analysis)
        for cte in clause.expressions:
            relation = inner.query(cte.this)
            alias = cte.args["alias"]
            inner.ctes[alias.name] = inner._aliased(relation, alias)
        return inner

    def _aliased(self, relation: Relation, alias: exp.Expression | None) -> Relation:
        if alias is None:
            return relation
        names = [c.name for c in alias.args.get("columns") or []]
        visible = relation.visible
        if names and len(names) != len(visible):
            raise self.source.error(
                f"alias '{alias.name}' names {len(names)} columns", alias, expected=f"{len(visible)} names",
                got=f"{len(names)}",
            )  # fmt: skip
        return relation.aliased(alias.name or None, names)

    def compact(self, relation: Relation) -> Relation:
        """The relation with exactly its visible columns, in order."""
        visible = relation.visible
        schema = relation.node.schema
        if [c.index for c in visible] == list(range(len(schema))) and [
            c.name for c in visible
        ] == schema.names:
            return relation
        return self.project(relation, [(c.name, relation.ref(c)) for c in visible])

    # -- SELECT ----------------------------------------------------------------------------------

    def _hinted(self, select: exp.Select) -> QueryBinder:
        """The binder of a SELECT, with its own hints only."""
        hints = select_hints(self, select)
        if hints is self.hints:
            return self
        return QueryBinder(
            self.catalog, self.config, self.source, ctes=self.ctes, analysis=self.analysis, hints=hints
        )

    def _select(self, select: exp.Select) -> Relation:
        relation = self.from_clause(select)
        check_tables(self, select, self.hints, relation)
        where = select.args.get("where")
        if where is not None:
            relation = bind_where(self, relation, where.this)
        clauses = [select.args[k] for k in ("having", "order", "qualify") if select.args.get(k)]
        roots = [*select.expressions, *clauses]
        named = select.args.get("windows") or ()
        having, group = select.args.get("having"), select.args.get("group")
        windows = window_nodes(roots)
        if named and not windows:
            raise self.source.unsupported(
                "a WINDOW clause that no OVER names", named[0], remedy="leave it out"
            )
        aggregates = [a for root in (*roots, *named) for a in aggregate_nodes(self, root)]
        special: Special | None = None
        rows = relation
        if aggregates or group is not None or having is not None:
            for item in select.expressions:
                if item.find(exp.Star) is not None and isinstance(item, (exp.Star, exp.Column)):
                    raise self.source.error(
                        "'*' cannot be grouped", item, expected="the grouped columns by name"
                    )
            below = [s for root in (*aggregates, *([group] if group else [])) for s in value_subqueries(root)]
            relation, scalars = with_scalars(self, relation, below)
            aggregation = Aggregation(self, relation, select, aggregates, scalars)
            keys = [x for root in roots for x in root.walk() if x in aggregation.subqueries]
            aggregates += keys  # planned below the aggregation, as calls are
            # An expression above an aggregate cannot read the rows below it, so this relation has no columns.
            # ``special`` gives the grouped columns.
            relation, special = Relation(aggregation.node, ()), aggregation.special
            if having is not None:
                relation = bind_condition(self, relation, having.this, "HAVING", special, outer=rows)
        if windows:
            inner = [s for w in (*windows, *named) for s in value_subqueries(w, aggregates)]
            relation, special = with_scalars(self, relation, inner, special, outer=rows)
            overs = Overs(self, relation, windows, self.expressions(relation, special), named)
            relation, special = overs.relation, either(overs.special, special)
        qualify = select.args.get("qualify")
        if qualify is not None:
            relation, special = qualified(self, select, qualify, relation, special, windows)
        ordered_by = select.args.get("order")
        above = [*select.expressions, *([ordered_by] if ordered_by else [])]
        values = [s for root in above for s in value_subqueries(root, (*aggregates, *windows))]
        relation, special = with_scalars(self, relation, values, special, outer=rows)
        warn_without_effect(self, select, self.hints)
        return self._project_select(select, relation, special)

    def _project_select(self, select: exp.Select, relation: Relation, special: Special) -> Relation:
        binder = self.expressions(relation, special)
        outputs: list[tuple[str, Expr, str | None]] = []
        for i, item in enumerate(select.expressions):
            outputs += self._select_item(item, i, relation, binder)
        if not outputs:
            raise self.source.error("SELECT gives no column", select, expected="at least one expression")
        order = select.args.get("order")
        sort_keys: list[SortKey] = []
        visible = len(outputs)
        if order is not None:
            sort_keys, outputs = order_keys(self, order, outputs, binder, bool(select.args.get("distinct")))
        result = self.project_qualified(relation, outputs)
        if len(outputs) > visible:
            columns = [replace(c, hidden=i >= visible) for i, c in enumerate(result.columns)]
            result = Relation(result.node, tuple(columns))
        result = Relation(result.node, tuple(_unnamed(c) for c in result.columns))
        if select.args.get("distinct"):
            if select.args["distinct"].args.get("on"):
                raise self.source.unsupported("DISTINCT ON", select.args["distinct"])
            keys = tuple(range(len(outputs)))
            schema = t.Schema(result.node.schema.fields)
            node = n.Aggregate(input=result.node, keys=keys, aggregates=(), schema=schema)
            window = self.analysis.of(result.node).window
            if window is not None and window.start is not None and window.end is not None:
                node = result.node if self._already_distinct(result.node) else node  # type: ignore[assignment]
            result = result.over(node)
        result = limited(self, select, result, tuple(sort_keys))
        if len(outputs) > visible:
            result = self.project(result, [(c.name, result.ref(c)) for c in result.visible])
        names = result.node.schema.names
        return Relation(result.node, tuple(replace(c, name=names[c.index]) for c in result.columns))

    def _already_distinct(self, node: n.Node) -> bool:
        return bool(self.analysis.of(node).unique)

    def _select_item(
        self, item: exp.Expression, position: int, relation: Relation, binder: ExpressionBinder
    ) -> list[tuple[str, Expr, str | None]]:
        if isinstance(item, exp.Star):
            if not relation.visible:
                raise self.source.error("'*' needs a FROM clause", item)
            return [(c.name, relation.ref(c), c.table) for c in relation.visible]
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            table = item.table
            columns = [c for c in relation.visible if c.table == table]
            if not columns:
                known = sorted({c.table for c in relation.visible if c.table})
                raise self.catalog.unknown(table, self.source.where(item), known, "table")
            return [(c.name, relation.ref(c), c.table) for c in columns]
        alias = None
        if isinstance(item, exp.Alias):
            alias, item = item.alias, item.this
        bound = binder.bind(item)
        name = alias or natural_name(item) or f"EXPR${position}"
        return [(name, bound, None)]

    # -- FROM and WHERE ----------------------------------------------------------------------------

    def from_clause(self, select: exp.Select) -> Relation:
        """The relation of FROM; if there is no FROM, one row in which a user can name no column."""
        clause = select.args.get("from_")
        if clause is None:
            empty = t.Schema((t.Field("ZERO", t.IntType(nullable=False)),))
            from penstock.sql.values import encode_rows

            node = n.Values(schema=empty, data=encode_rows(empty, [(0,)]))
            return Relation(node, ())
        relation = self._from_item(clause.this)
        for lateral in select.args.get("laterals") or []:
            relation = bind_correlate(self, relation, lateral, "inner", lateral)
        for join in select.args.get("joins") or []:
            relation = bind_join(self, relation, join)
        return relation

    def _from_item(self, node: exp.Expression) -> Relation:
        if isinstance(node, (exp.Lateral, exp.Unnest)) or (
            isinstance(node, TableFunction) and not self.is_window_function(node)
        ):
            empty = t.Schema((t.Field("ZERO", t.IntType(nullable=False)),))
            from penstock.sql.values import encode_rows

            start = Relation(n.Values(schema=empty, data=encode_rows(empty, [(0,)])), ())
            return bind_correlate(self, start, node, "inner", node)
        return self.table_item(node)

    def table_item(self, node: exp.Expression) -> Relation:
        """A table, view, CTE, subquery or window function with its alias and joins."""
        match node:
            case exp.Table():
                relation = self._named(node)
            case TableFunction():
                if not self.is_window_function(node):
                    raise self.catalog.unknown(
                        node.args["name"], self.source.where(node), sorted(WINDOW_FUNCTIONS), "table function"
                    )
                relation = self._aliased(bind_window_table(self, node), node.args.get("alias"))
            case exp.Subquery() | exp.Values() | exp.Select() | exp.SetOperation():
                relation = self.query(node)
            case TableArgument():
                relation = self.table_item(node.this)
            case AsOf():
                raise time_travel(self.source, node)
            case _:
                raise self.source.unsupported(f"{type(node).__name__} in FROM", node)
        relation = bind_pivots(self, relation, node)
        for join in node.args.get("joins") or []:
            relation = bind_join(self, relation, join)
        return relation

    def _named(self, node: exp.Table) -> Relation:
        name = catalog_name([p.name for p in node.parts])
        alias = node.args.get("alias")
        if name in self.ctes:
            relation = self.ctes[name]
        elif name in self.catalog.views:
            relation = self._view(name)
        elif name in self.catalog.tables:
            table = self.catalog.tables[name]
            uid = None
            hint = node.args.get("options_hint")
            if hint is not None:
                consume(hint)
                options = dict(hint.meta["options"])
                uid = options.pop(UID_HINT, None)
                table = with_options(table, options)
            ref = source_ref(table, self.config)
            relation = Relation.of(table_rows(ref, uid=None if uid is None else str(uid)))
        else:
            known = [*self.ctes, *self.catalog.names()]
            raise self.catalog.unknown(name, self.source.where(node), known, "table")
        if alias is not None:
            return self._aliased(relation, alias)
        return relation.aliased(name.rsplit(".", 1)[-1])

    def _view(self, name: str) -> Relation:
        view = self.catalog.views[name]
        binder = QueryBinder(self.catalog, self.config, Source(view.text, view=name), analysis=self.analysis)
        relation = binder.compact(binder.query(view.query))
        return relation.aliased(name, view.columns)


def _unnamed(column: ScopeColumn) -> ScopeColumn:
    return replace(column, table=None)


__all__ = ["QueryBinder", "make_join"]
