"""``Table``: a query that a program builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.table.executable import ExecutableTable
from penstock.table.expression import Expression
from penstock.table.grouping import (
    RECORD,
    AggregatedTable,
    FlatAggregateTable,
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    over_rows,
    unpack,
)
from penstock.table.lateral import lateral_join
from penstock.table.selecting import Selecting, expression
from penstock.table.steps import Step, here
from penstock.table.syntax import column, identifier, named_table
from penstock.table.windows import GroupWindow, OverWindow

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType

LEFT, RIGHT = "$left", "$right"


class Table(ExecutableTable):
    """A query. Methods make another query of it; ``execute`` runs it."""

    def __getattr__(self, name: str) -> Expression:
        """The column ``name``: ``table.a`` is ``col('a')``."""
        if name.startswith("_") or name not in self._schema.names:
            raise AttributeError(f"a Table has no attribute {name!r}, nor has this one such a column")
        return Expression(column(name))

    # -- making queries ------------------------------------------------------------------------

    def _selecting(self, window: GroupWindow | None = None) -> Selecting:
        return Selecting(self._schema, self._env.functions, self._env.inline, self._type_of, window)

    def _type_of(self, node: exp.Expression) -> LogicalType:
        probe = exp.Select(expressions=[exp.Alias(this=node.copy(), alias=identifier("x"))])
        return self._queried("flatten", probe)._schema.types[0]

    def _queried(self, call: str, select: exp.Select, right: Table | None = None) -> Table:
        """The table of ``select`` FROM this table. ``right``: the other table that ``select`` names."""
        if select.args.get("from_") is None:
            select.set("from_", exp.From(this=named_table(LEFT)))
        return self._of_query(call, select, right)

    def _of_query(self, call: str, query: exp.Expression, right: Table | None = None) -> Table:
        inputs = {LEFT: self._step}
        if right is not None:
            if right._env is not self._env:
                raise SpecError(
                    "tables of two environments", expected="tables of one", got=call, where=here(call)
                )
            inputs[RIGHT] = right._step
        return self._env.table_of(Step.of_query(query, inputs, here(f"{call}()")))

    def as_query(self) -> exp.Select:
        """The table as a query inside an expression."""
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=self._step.node())))

    def _columns(self) -> list[str]:
        return list(self._schema.names)

    # -- columns -------------------------------------------------------------------------------

    def select(self, *fields: Expression) -> Table:
        """Choose columns, and compute others from them or aggregates over all rows."""
        selecting = self._selecting()
        items = selecting.named(selecting.items(fields, "select"))
        return self._queried("select", exp.Select(expressions=items))

    def alias(self, field: str, *fields: str) -> Table:
        """Rename the first columns, in order. Further columns keep their names."""
        names = (field, *fields)
        if len(names) > len(self._schema):
            raise SpecError(
                "alias names more columns than there are",
                expected=f"at most {len(self._schema)} names: {', '.join(self._columns())}",
                got=", ".join(names),
            )
        return self._renamed("alias", dict(zip(self._columns(), names, strict=False)))

    def _renamed(self, call: str, names: dict[str, str]) -> Table:
        items = [
            exp.Alias(this=column(old), alias=identifier(names[old])) if names.get(old, old) != old else column(old)
            for old in self._columns()
        ]  # fmt: skip
        return self._queried(call, exp.Select(expressions=items))

    def add_columns(self, *fields: Expression) -> Table:
        """Append columns."""
        items = self._selecting().items(fields, "add_columns")
        taken = [name for name, _ in items if name in self._schema.names]
        if taken:
            raise SpecError(
                f"add_columns: column '{taken[0]}' is there already",
                expected="a new name",
                got=", ".join(taken),
                remedy="add_or_replace_columns replaces it",
            )
        selecting = self._selecting()
        return self._queried("add_columns", exp.Select(expressions=[exp.Star(), *selecting.named(items)]))

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Append columns. A column whose name the table has already replaces that column."""
        selecting = self._selecting()
        items = selecting.named(selecting.items(fields, "add_or_replace_columns"))
        made = {item.alias_or_name: item for item in items}
        old = [made.pop(name, column(name)) for name in self._columns()]
        return self._queried("add_or_replace_columns", exp.Select(expressions=[*old, *made.values()]))

    def rename_columns(self, *fields: Expression) -> Table:
        """Rename columns: ``col('a').alias('b')``."""
        names: dict[str, str] = {}
        for field in fields:
            given = expression(field, "rename_columns")
            if not isinstance(given._node, exp.Column) or len(given._names) != 1:
                raise SpecError(
                    "rename_columns takes columns with a name", expected="col('a').alias('b')", got=str(given)
                )
            names[self._known(given._node.name)] = given._names[0]
        return self._renamed("rename_columns", names)

    def drop_columns(self, *fields: Expression) -> Table:
        """Remove columns."""
        from penstock.table.expressions import without_columns

        for field in fields:
            expression(field, "drop_columns")
        if not fields:
            raise SpecError("drop_columns without a column", expected="col('a')", got="nothing")
        return self.select(without_columns(*fields))

    def _known(self, name: str) -> str:
        if name in self._schema.names:
            return name
        raise SpecError(
            f"unknown column '{name}'", expected="one of " + ", ".join(self._columns()), got=repr(name)
        )

    # -- rows ----------------------------------------------------------------------------------

    def filter(self, predicate: Expression) -> Table:
        """The rows for which ``predicate`` is TRUE."""
        condition = self._selecting().node(expression(predicate, "filter"))
        return self._queried("filter", exp.Select(expressions=[exp.Star()], where=exp.Where(this=condition)))

    where = filter

    def distinct(self) -> Table:
        """Each row once."""
        return self._queried("distinct", exp.Select(expressions=[exp.Star()], distinct=exp.Distinct()))

    def order_by(self, *fields: Expression) -> Table:
        """Sort the rows: ``col('a').desc``.

        In streaming mode ``fetch`` must follow, or the first key must be the event time.
        """
        selecting = self._selecting()
        keys = []
        for field in fields:
            node = selecting.node(expression(field, "order_by"))
            keys.append(node if isinstance(node, exp.Ordered) else exp.Ordered(this=node, nulls_first=True))
        return self._limited("order_by", {"order": exp.Order(expressions=keys)}, {})

    def offset(self, offset: int) -> Table:
        """Skip the first ``offset`` rows; follows ``order_by``."""
        clause = exp.Offset(expression=exp.Literal.number(str(_count(offset, "offset"))))
        return self._limited("offset", {"offset": clause}, {"order"})

    def fetch(self, fetch: int) -> Table:
        """Keep the first ``fetch`` rows."""
        clause = exp.Limit(expression=exp.Literal.number(str(_count(fetch, "fetch"))))
        return self._limited("fetch", {"limit": clause}, {"order", "offset"})

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Skip the first ``offset`` rows, and keep the next ``fetch`` rows."""
        return (self.offset(offset) if offset else self).fetch(fetch)

    def _limited(
        self, call: str, clause: dict[str, exp.Expression], before: set[str] | dict[str, Any]
    ) -> Table:
        """Add ``clause`` to this table's SELECT if that has only clauses of ``before``; else to a new one."""
        table, known = self, dict[str, exp.Expression]()
        if self._cut is not None and set(self._cut[1]) <= set(before):
            table, known = self._cut
        clauses = {**known, **clause}
        if set(clauses) == {"offset"}:
            clauses["limit"] = exp.Limit(expression=exp.Literal.number(str(2**31 - 1)))
        copies = {key: value.copy() for key, value in clauses.items()}
        made = table._queried(call, exp.Select(expressions=[exp.Star()], **copies))
        made._cut = (table, {**known, **clause})
        return made

    # -- two tables ------------------------------------------------------------------------------

    def join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """Pairs of rows for which ``join_predicate`` is TRUE; None: all
        pairs. Columns need different names."""
        return self._joined("join", right, join_predicate, None)

    def left_outer_join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """The pairs of ``join``, and this table's rows that are in no pair."""
        return self._joined("left_outer_join", right, join_predicate, "LEFT")

    def right_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """The pairs of ``join``, and the rows of ``right`` that are in no pair."""
        return self._joined("right_outer_join", right, join_predicate, "RIGHT")

    def full_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """The pairs of ``join``, and the rows of both tables that are in no pair."""
        return self._joined("full_outer_join", right, join_predicate, "FULL")

    def _joined(self, call: str, right: Table, predicate: Expression | None, side: str | None) -> Table:
        both = [name for name in self._columns() if name in right._schema.names]
        if both:
            raise SpecError(
                f"{call}: both tables have a column '{both[0]}'",
                expected="different names",
                got=", ".join(both),
                where=here(f"{call}()"),
                remedy="rename_columns(col('a').alias('b')) or alias(…) on one side",
            )
        args: dict[str, Any] = {} if side is None else {"side": side}
        if predicate is not None:
            fields = (*self._schema.fields, *right._schema.fields)
            selecting = Selecting(
                type(self._schema)(fields), self._env.functions, self._env.inline, self._type_of
            )
            args["on"] = selecting.node(expression(predicate, call))
        elif side is not None:
            args["on"] = exp.Boolean(this=True)
        join = exp.Join(this=named_table(RIGHT), **args)
        return self._queried(call, exp.Select(expressions=[exp.Star()], joins=[join]), right)

    def join_lateral(self, table_function_call: Any, join_predicate: Expression | None = None) -> Table:
        """Each row with the rows that a table function gives for it."""
        return lateral_join(self, "join_lateral", table_function_call, join_predicate, left=False)

    def left_outer_join_lateral(
        self, table_function_call: Any, join_predicate: Expression | None = None
    ) -> Table:
        """Each row with the rows that a table function gives for it, or with NULLs if it gives none."""
        return lateral_join(self, "left_outer_join_lateral", table_function_call, join_predicate, left=True)

    def _set(self, call: str, kind: type[exp.SetOperation], right: Table, *, all_: bool) -> Table:
        query = kind(this=named_table(LEFT), expression=named_table(RIGHT), distinct=not all_)
        return self._of_query(call, query, right)

    def minus(self, right: Table) -> Table:
        """The rows that ``right`` does not have, each once."""
        return self._set("minus", exp.Except, right, all_=False)

    def minus_all(self, right: Table) -> Table:
        """The rows of this table; each occurrence in ``right`` removes one occurrence."""
        return self._set("minus_all", exp.Except, right, all_=True)

    def union(self, right: Table) -> Table:
        """The rows of both tables, each once."""
        return self._set("union", exp.Union, right, all_=False)

    def union_all(self, right: Table) -> Table:
        """The rows of both tables."""
        return self._set("union_all", exp.Union, right, all_=True)

    def intersect(self, right: Table) -> Table:
        """The rows that both tables have, each once."""
        return self._set("intersect", exp.Intersect, right, all_=False)

    def intersect_all(self, right: Table) -> Table:
        """The rows that both tables have, each as often as both have it."""
        return self._set("intersect_all", exp.Intersect, right, all_=True)

    # -- groups and windows ------------------------------------------------------------------------

    def group_by(self, *fields: Expression) -> GroupedTable:
        """Group rows by values; ``select`` follows."""
        return GroupedTable(self, fields)

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """Group rows by a window of time; ``group_by`` follows. ``window``: ``Tumble…alias('w')`` and the like."""
        if not isinstance(window, GroupWindow):
            raise SpecError(
                "window takes a named group window",
                expected="Tumble.over(lit(10).minutes).on(col('ts')).alias('w')",
                got=repr(window),
            )
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Define windows around each row; ``select`` follows. ``over_windows``: ``Over…alias('w')``."""
        for window in over_windows:
            if not isinstance(window, OverWindow):
                raise SpecError(
                    "over_window takes named OVER windows",
                    expected="Over.partition_by(col('a')).order_by(col('ts')).alias('w')",
                    got=repr(window),
                )
        return OverWindowedTable(self, over_windows)

    # -- functions over rows -------------------------------------------------------------------------

    def map(self, func: Any) -> Table:
        """Replace each row by the value of a scalar function. The fields of a ROW become columns.

        ``func``: a result of ``udf``, which then gets the whole row, or a call of one.
        """
        call, names = over_rows(self, func)
        return unpack(self.select(call.alias(RECORD)), names)

    def flat_map(self, func: Any) -> Table:
        """Replace each row by the rows of a table function. ``func``: as in ``map``, but of ``udtf``."""
        call, names = over_rows(self, func)
        joined = lateral_join(
            self, "flat_map", call.alias(*names) if names else call, None, left=False, apart=True
        )
        from penstock.table.expressions import col

        return joined.select(*(col(name) for name in joined._columns()[len(self._schema) :]))

    def aggregate(self, func: Any) -> AggregatedTable:
        """Aggregate all rows by one function; ``select`` follows. ``func``:
        as in ``map``, but of ``udaf``."""
        return GroupedTable(self, ()).aggregate(func)

    def flat_aggregate(self, func: Any) -> FlatAggregateTable:
        """Aggregate all rows by one function that gives several rows; ``select`` follows. ``func``: as in ``map``,
        but of ``udtaf``."""
        return GroupedTable(self, ()).flat_aggregate(func)


def _count(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise SpecError(f"{what} takes a number of rows", expected="0 or more", got=repr(number))
    return number
