"""Random queries over random tables: joins, groupings, rankings, set operations, subqueries in all places,
windows, and expressions of every type.

What is generated has one answer: orders are total where they decide, functions are those on which
Flink and DuckDB agree (or have the same in other words), floats are compared to nine digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.expressions import Expressions, Relation, Scope
from tests.fuzz.tables import TYPES, literal
from tests.fuzz.tree import Node, leaf, walk
from tests.fuzz.windows import windowed_table

RELATION = "relation "


def relation_sort(types: tuple[str, ...]) -> str:
    return RELATION + "; ".join(types)


def sort_types(sort: str) -> list[str]:
    """The types of the columns of a relation, from its sort."""
    return sort.removeprefix(RELATION).split("; ")


class Generator(Expressions):
    """Queries of one seed. ``streaming``: only what runs over an unbounded input, too."""

    # -- the whole ------------------------------------------------------------------------

    def query(self) -> Node:
        relation = self.relation(self.r.choice([2, 3, 3, 4]))
        alias = self._alias()
        columns = ", ".join(f"{alias}.c{i}" for i in range(len(relation.types)))
        tail = leaf("optional", "")
        if self._chance(0.15):
            tail = leaf("optional", f" ORDER BY {columns} LIMIT {self.r.randint(0, 6)}")
        where = self._where(relation.scope(alias), 1) if self._chance(0.3) else leaf("optional", "")
        return Node(
            "query", f"SELECT {columns} FROM {{0}} AS {alias}{{1}}{{2}}", (relation.node, where, tail)
        )

    def atoms(self, query: Node) -> dict[str, list[Node]]:
        """The smallest nodes of each sort in ``query`` that ask for no column: constants, and for a
        relation the constants of its types, once a row of each table."""
        constants = {kind: literal(random.Random(0), kind) for kind in TYPES}
        found = {kind: [leaf(kind, text)] for kind, text in constants.items()}
        found["optional"] = [leaf("optional", "")]
        for sort in {node.sort for _, node in walk(query) if node.sort.startswith(RELATION)}:
            columns = ", ".join(f"{constants[kind]} AS c{i}" for i, kind in enumerate(sort_types(sort)))
            found[sort] = [leaf(sort, f"(SELECT {columns} FROM {table.name})") for table in self.tables]
        return found

    # -- relations --------------------------------------------------------------------------

    def relation(self, depth: int, types: tuple[str, ...] | None = None) -> Relation:
        if depth <= 0:
            return self._base(0, types)
        r = self.r
        kinds: list[tuple[int, Callable[[int, tuple[str, ...] | None], Relation]]] = [
            (2, self._base), (3, self._projected), (5, self._grouped), (5, self._joined), (2, self._combined),
            (1, self._distinct), (2, self._top), (2, self._windowed), (1, self._values), (1, self._unnested), (1, self._pivoted),
            (1, self._interval_joined), (1, self._with), (1, self._deduplicated), (2, self._lateral),
            (2, self._over_time), (1, self._window_ranked), (1, self._window_joined),
        ]  # fmt: skip
        if not self.streaming:
            kinds.append((3, self._over))
        [(_, make)] = r.choices(kinds, [w for w, _ in kinds])
        return make(depth - 1, types)

    def _types(self, types: tuple[str, ...] | None, most: int = 4) -> tuple[str, ...]:
        return types or tuple(self.r.choices(list(TYPES), k=self.r.randint(1, most)))

    def _base(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, alias = self.r.choice(self.tables), self._alias()
        scope = [(f"{alias}.{name}", kind) for name, kind in table.columns]
        where = self._where(scope, 1) if self._chance(0.4) else leaf("optional", "")
        return self._select(types, [self._column_or(kind, scope) for kind in types],
                            f"{table.name} AS {alias}{{}}", (where,))  # fmt: skip

    def _projected(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        inner, alias = self.relation(depth), self._alias()
        scope = inner.scope(alias)
        where = self._where(scope, 2) if self._chance(0.6) else leaf("optional", "")
        items = [self.expression(kind, scope, 2) for kind in types]
        return self._select(types, items, f"{{}} AS {alias}{{}}", (inner.node, where))

    def _grouped(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        inner, alias = self.relation(depth), self._alias()
        scope = inner.scope(alias)
        keys = [self._key(scope) for _ in range(self.r.choice([0, 1, 1, 1, 2, 2]))]
        clause, sets = self._group_by(keys)
        items = []
        for kind in types:
            same = [key for key in keys if key.sort == kind]
            # A key of a grouping set may be NULL for another reason than the data: it is left to the sets.
            if same and (not sets or same[0].template.startswith("t")) and self._chance(0.4):
                items.append(self.r.choice(same[:1] if sets else same))
            else:
                items.append(self._aggregate(kind, scope))
        tests = [self._having(scope)] if self._chance(0.4) else []
        return self._select(
            types, items, f"{{}} AS {alias}{{}}{{}}", (inner.node, clause, self._kept(tests, keys, sets))
        )

    def _key(self, scope: Scope) -> Node:
        """Of some column: a constant number would be the place of a column."""
        made = self.expression(self.r.choice(list(TYPES)), scope, 1)
        column, kind = self.r.choice(scope)
        return made if any(name in made.text() for name, _ in scope) else leaf(kind, column)

    def _kept(self, tests: list[Node], keys: list[Node], sets: bool) -> Node:
        """HAVING. DuckDB has to be told where Flink gives no row for no input: grouping sets, and streams."""
        whole = sets or (self.streaming and not keys)
        if not tests:
            return leaf("having", "", " HAVING COUNT(*) > 0") if whole else leaf("optional", "")
        duckdb = " HAVING COUNT(*) > 0 AND {0}" if whole else None
        return Node("having", " HAVING {0}", tuple(tests), duckdb)

    def _group_by(self, keys: list[Node]) -> tuple[Node, bool]:
        """The clause; whether it has several grouping sets."""
        if not keys:
            return leaf("optional", ""), False
        if len(keys) == 2 and self._chance(0.3):
            words = ["ROLLUP ({0}, {1})", "CUBE ({0}, {1})", "GROUPING SETS (({0}), ({0}, {1}), ())"]
            return Node("group by", f" GROUP BY {self.r.choice(words)}", tuple(keys)), True
        listed = Node("keys", separator=", ", children=tuple(keys))
        return Node("group by", " GROUP BY {0}", (listed,)), False

    def _having(self, scope: Scope) -> Node:
        r = self.r
        if self._chance(0.3) and self._subqueries > 0:
            scalar = self._scalar("BIGINT")
            return Node("BOOLEAN", f"COUNT(*) {r.choice(['>=', '<', '<>'])} {{0}}", (scalar,))
        kind = r.choice(["BIGINT", "INT", "DOUBLE"])
        return Node("BOOLEAN", f"{{0}} {r.choice(['>', '<=', '<>', '='])} {{1}}",
                    (self._aggregate(kind, scope), leaf(kind, literal(r, kind))))  # fmt: skip

    def _joined(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        left, right = self.relation(depth), self.relation(self.r.choice([0, depth]))
        a, b = self._alias(), self._alias()
        ls, rs = left.scope(a), right.scope(b)
        join = self.r.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self._on(ls, rs)
        scope = ls + rs
        where = self._where(scope, 1) if self._chance(0.3) else leaf("optional", "")
        items = [self._column_or(kind, scope) for kind in types]
        source = f"{{}} AS {a} {join} {{}} AS {b} ON {{}}{{}}"
        return self._select(types, items, source, (left.node, right.node, on, where))

    def _on(self, left: Scope, right: Scope) -> Node:
        """At least one equality (else many joins are refused over streams), and sometimes more."""
        pairs = [pair for pair in self._comparable(left, right) if pair[2] != "BOOLEAN"]
        if pairs:
            x, y, kind = self.r.choice(pairs)
            if kind in ("INT", "BIGINT") and self._chance(0.25):
                y = f"{y} + 1"
            equal = leaf("BOOLEAN", f"{x} = {y}")
        else:
            (x, k1), (y, k2) = self.r.choice(left), self.r.choice(right)
            kind = "STRING"
            equal = leaf("BOOLEAN", f"{_as_text(x, k1)} = {_as_text(y, k2)}")
        extra = []
        if self._chance(0.35):
            extra.append(self._plain_condition(left + right))
        return Node("BOOLEAN", separator=" AND ", children=(equal, *extra))

    def _combined(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types, 3)
        narrowed = tuple(self._narrowed(kind) for kind in types)
        left, right = self.relation(depth, types), self.relation(self.r.choice([0, depth]), narrowed)
        operator = self.r.choice(
            ["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        )
        a, b = self._alias(), self._alias()
        names = [f"c{i}" for i in range(len(types))]
        ours, theirs = (", ".join(f"{x}.{n}" for n in names) for x in (a, b))
        template = f"(SELECT {ours} FROM {{0}} AS {a} {operator} SELECT {theirs} FROM {{1}} AS {b})"
        return Relation(Node(relation_sort(types), template, (left.node, right.node)), types)

    def _distinct(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        inner, alias = self.relation(depth, types), self._alias()
        columns = ", ".join(f"{alias}.c{i}" for i in range(len(types)))
        template = f"(SELECT DISTINCT {columns} FROM {{0}} AS {alias})"
        return Relation(Node(relation_sort(types), template, (inner.node,)), types)

    def _top(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """Equal rows may stand for one another: every column is in the order."""
        types = self._types(types)
        inner, a, b = self.relation(depth, types), self._alias(), self._alias()
        columns = [f"c{i}" for i in range(len(types))]
        order = ", ".join(
            f"{a}.{c} {self.r.choice(['ASC', 'DESC'])}" for c in self.r.sample(columns, len(columns))
        )
        partition = f"PARTITION BY {a}.{self.r.choice(columns)} " if self._chance(0.7) else ""
        function = self.r.choice(["ROW_NUMBER()", "ROW_NUMBER()", "RANK()", "DENSE_RANK()"] if not self.streaming
                                 else ["ROW_NUMBER()"])  # fmt: skip
        shown = [
            "place" if kind == "BIGINT" and function == "ROW_NUMBER()" and self._chance(0.3) else column
            for kind, column in zip(types, columns, strict=True)
        ]
        listed = ", ".join(f"{b}.{c} AS {name}" for c, name in zip(shown, columns, strict=True))
        if "place" not in shown and self._chance(0.3):
            direct = ", ".join(f"{a}.{c} AS {c}" for c in columns)
            kept = f"QUALIFY {function} OVER ({partition}ORDER BY {order}) <= {self.r.randint(1, 3)}"
            return Relation(
                Node(relation_sort(types), f"(SELECT {direct} FROM {{0}} AS {a} {kept})", (inner.node,)),
                types,
            )
        template = (
            f"(SELECT {listed} FROM (SELECT {', '.join(f'{a}.{c}' for c in columns)}, {function} OVER ({partition}ORDER BY {order}) "
            f"AS place FROM {{0}} AS {a}) AS {b} WHERE {b}.place <= {self.r.randint(1, 3)})"
        )
        return Relation(Node(relation_sort(types), template, (inner.node,)), types)

    def _lateral(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """The first rows, or the groups, of another relation for each row."""
        types = self._types(types)
        r = self.r
        left, right, a, b, c = (
            self.relation(depth),
            self.relation(0),
            self._alias(),
            self._alias(),
            self._alias(),
        )
        ls, rs = left.scope(a), right.scope(b)
        pairs = self._comparable(ls, rs)
        if not pairs:
            return self._base(0, types)
        where = self._related(pairs)
        columns = [name for name, _ in rs]
        if self._chance(0.4):
            key = r.choice(columns)
            lateral = f"(SELECT {key} AS c0, COUNT(*) AS c1 FROM {{}} AS {b} WHERE {where} GROUP BY {key})"
            shown = [(f"{c}.c0", dict(rs)[key]), (f"{c}.c1", "BIGINT")]
        else:
            order = ", ".join(
                f"{name} {r.choice(['ASC', 'DESC'])}" for name in r.sample(columns, len(columns))
            )
            listed = ", ".join(f"{name} AS c{i}" for i, name in enumerate(columns))
            lateral = (
                f"(SELECT {listed} FROM {{}} AS {b} WHERE {where} ORDER BY {order} LIMIT {r.randint(1, 2)})"
            )
            shown = [(f"{c}.c{i}", kind) for i, (_, kind) in enumerate(rs)]
        join, on = r.choice([("CROSS JOIN", ""), ("LEFT JOIN", " ON TRUE")])
        source = f"{{}} AS {a} {join} LATERAL {lateral} AS {c}{on}"
        items = [self._column_or(kind, [*ls, *shown, *shown]) for kind in types]
        return self._select(types, items, source, (left.node, right.node))

    def _deduplicated(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, a, b = self.r.choice(self.tables), self._alias(), self._alias()
        key, order = self.r.choice(table.columns[1:-1])[0], self.r.choice(["ASC", "DESC"])
        by = f"{a}.ts {order}, {a}.id {order}"
        scope = [(f"{b}.{name}", kind) for name, kind in table.columns]
        names = ", ".join(f"{a}.{name}" for name, _ in table.columns)
        source = (f"(SELECT {names}, ROW_NUMBER() OVER (PARTITION BY {a}.{key} ORDER BY {by}) AS place "
                  f"FROM {table.name} AS {a}) AS {b} WHERE {b}.place = 1")  # fmt: skip
        return self._select(types, [self._column_or(kind, scope) for kind in types], source, ())

    def _over(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, a = self.r.choice(self.tables), self._alias()
        scope = [(f"{a}.{name}", kind) for name, kind in table.columns]
        items = []
        for kind in types:
            items.append(
                self._over_item(kind, scope, a) if self._chance(0.6) else self._column_or(kind, scope)
            )
        return self._select(types, items, f"{table.name} AS {a}", ())

    def _over_item(self, kind: str, scope: Scope, a: str) -> Node:
        r = self.r
        partition = f"PARTITION BY {r.choice(scope)[0]} " if self._chance(0.7) else ""
        order = f"ORDER BY {a}.id {r.choice(['ASC', 'DESC'])}"
        frame = r.choice(["", "", f" ROWS BETWEEN {r.randint(0, 3)} PRECEDING AND CURRENT ROW",
                          " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                          " ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING"])  # fmt: skip
        if kind == "BIGINT" and self._chance(0.3):
            return leaf(
                kind,
                f"{r.choice(['ROW_NUMBER()', 'RANK()', 'DENSE_RANK()', 'NTILE(3)'])} OVER ({partition}{order})",
            )
        if kind == "BOOLEAN" or self._chance(0.3):
            column = self._column_or(kind, scope)
            call, place = r.choice(["LAG", "LEAD"]), r.randint(1, 3)
            over, default = f"OVER ({partition}{order})", r.choice(["", f", {literal(r, kind)}"])
            nulls = r.choice(["", "", " IGNORE NULLS", " RESPECT NULLS"])
            return Node(
                kind,
                f"{call}({{0}}, {place}{default}){nulls} {over}",
                (column,),
                f"{call}({{0}}, {place}{default}{nulls}) {over}",
            )
        aggregate = self._aggregate(kind, scope, simple=True)
        if aggregate.template.startswith(("COUNT({", "MAX(")) and self._chance(0.3):
            function, _, argument = aggregate.template.partition("(")
            aggregate = Node(kind, f"{function}(DISTINCT {argument}", aggregate.children)
        return Node(kind, f"{{0}} OVER ({partition}{order}{frame})", (aggregate,))

    def _windowed(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, alias = self.r.choice(self.tables), self._alias()
        key = self.r.choice(table.columns[1:-1])
        ours, theirs, keyed = windowed_table(self.r, table, key[0])
        scope = [(f"{alias}.{name}", kind) for name, kind in table.columns]
        keys = [f"{alias}.window_start", f"{alias}.window_end"]
        if keyed or self._chance(0.6):
            keys.insert(self.r.randint(0, 2), f"{alias}.{key[0]}")
        items = []
        for kind in types:
            if kind == "TIMESTAMP(3)" and self._chance(0.7):
                items.append(leaf(kind, f"{alias}.{self.r.choice(['window_start', 'window_end'])}"))
            elif kind == key[1] and len(keys) == 3 and self._chance(0.5):
                items.append(leaf(kind, f"{alias}.{key[0]}"))
            else:
                items.append(self._aggregate(kind, scope))
        group = f"{{}} AS {alias} GROUP BY {', '.join(keys)}"
        if len(keys) == 2 and self._chance(0.4):
            sets = self.r.choice(["ROLLUP ({0})", "GROUPING SETS (({0}), ())", "CUBE ({0})"]).format(
                f"{alias}.{key[0]}"
            )
            group += f", {sets}"
        return self._select(types, items, group, (leaf("table", ours, theirs),))

    def _over_time(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """OVER by event time, in frames that hold all rows of a time or none, since the order of those rows is not fixed."""
        types = self._types(types)
        r, table, a = self.r, self.r.choice(self.tables), self._alias()
        scope = [(f"{a}.{name}", kind) for name, kind in table.columns]
        partition = f"PARTITION BY {a}.{r.choice(table.columns[1:-1])[0]} " if self._chance(0.7) else ""
        start = r.choice(
            [
                "UNBOUNDED PRECEDING",
                "INTERVAL '3' SECOND PRECEDING",
                "INTERVAL '10' SECOND PRECEDING",
                "CURRENT ROW",
            ]
        )
        over = f"OVER ({partition}ORDER BY {a}.ts RANGE BETWEEN {start} AND CURRENT ROW)"
        items = []
        for kind in types:
            if kind == "BOOLEAN" or self._chance(0.3):
                items.append(self._column_or(kind, scope))
                continue
            aggregate = self._aggregate(kind, scope, simple=True)
            if aggregate.template.startswith(("COUNT({", "MAX(")) and self._chance(0.3):
                function, _, argument = aggregate.template.partition("(")
                aggregate = Node(kind, f"{function}(DISTINCT {argument}", aggregate.children)
            items.append(Node(kind, f"{{0}} {over}", (aggregate,)))
        return self._select(types, items, f"{table.name} AS {a}", ())

    def _window_ranked(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """The first rows of each window, with or without a key."""
        types = self._types(types)
        r, table, a, b = self.r, self.r.choice(self.tables), self._alias(), self._alias()
        key = r.choice(table.columns[1:-1])
        ours, theirs, keyed = windowed_table(r, table, key[0])
        columns = [name for name, _ in table.columns]
        by = f"{a}.window_start, {a}.window_end" + (f", {a}.{key[0]}" if keyed or self._chance(0.4) else "")
        order = ", ".join(
            f"{a}.{name} {r.choice(['ASC', 'DESC'])}" for name in (r.choice(columns[1:-1]), "id")
        )
        listed = ", ".join(f"{a}.{name}" for name in columns)
        source = (f"(SELECT {listed}, {a}.window_start, {a}.window_end, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) "
                  f"AS place FROM {{}} AS {a}) AS {b} WHERE {b}.place <= {r.randint(1, 3)}")  # fmt: skip
        scope = [
            (f"{b}.{name}", kind)
            for name, kind in [*table.columns, ("window_start", "TIMESTAMP(3)"), ("place", "BIGINT")]
        ]
        return self._select(
            types, [self._column_or(k, scope) for k in types], source, (leaf("table", ours, theirs),)
        )

    def _window_joined(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """The rows of two tables that are in the same window."""
        types = self._types(types)
        r, (left, right), a, b = (
            self.r,
            [self.r.choice(self.tables) for _ in "ab"],
            self._alias(),
            self._alias(),
        )
        kind = r.choice(["INT", "BIGINT", "STRING", "DATE"])
        offset, size = r.choice([0, 2]), r.choice([5, 10])
        parts = []
        for table in (left, right):
            more = f", INTERVAL '{offset}' SECOND" if offset else ""
            ours = f"TABLE(TUMBLE(TABLE {table.name}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND{more}))"
            begin = f"time_bucket(INTERVAL {size} SECOND, ts, TIMESTAMP '2000-01-01 00:00:0{offset}')"
            theirs = f"(SELECT *, {begin} AS window_start, {begin} + INTERVAL {size} SECOND AS window_end FROM {table.name})"
            parts.append(leaf("table", ours, theirs))
        join = r.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        source = (f"{{}} AS {a} {join} {{}} AS {b} ON {a}.{left.of_type(kind)} = {b}.{right.of_type(kind)} "
                  f"AND {a}.window_start = {b}.window_start AND {a}.window_end = {b}.window_end")  # fmt: skip
        scope = [
            (f"{x}.{name}", k)
            for x, table in ((a, left), (b, right))
            for name, k in [*table.columns, ("window_end", "TIMESTAMP(3)")]
        ]
        return self._select(types, [self._column_or(k, scope) for k in types], source, tuple(parts))

    def _values(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        rows = []
        for _ in range(self.r.randint(1, 4)):
            values = [f"CAST(NULL AS {k})" if self._chance(0.2) else literal(self.r, k) for k in types]
            rows.append(
                leaf("row", f"({', '.join(f'CAST({v} AS {k})' for v, k in zip(values, types, strict=True))})")
            )
        alias = self._alias()
        names = ", ".join(f"c{i}" for i in range(len(types)))
        listed = Node("rows", separator=", ", children=tuple(rows))
        node = Node(relation_sort(types), f"(SELECT * FROM (VALUES {{0}}) AS {alias}({names}))", (listed,))
        return Relation(node, types)

    def _unnested(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        inner, a, u = self.relation(depth), self._alias(), self._alias()
        kind = self.r.choice(["INT", "BIGINT", "STRING"])
        scope = inner.scope(a)
        elements = self._elements(kind, scope)
        source = f"{{}} AS {a} CROSS JOIN UNNEST(ARRAY[{{}}]) AS {u}(x)"
        if self._chance(0.5):
            items = [self._column_or(k, [*scope, (f"{u}.x", kind)]) for k in types]
            return self._select(types, items, source, (inner.node, elements))
        other = self.r.choice(["INT", "BIGINT", "STRING"])
        both = Node(
            "table",
            f"{{}} AS {a} CROSS JOIN UNNEST(ARRAY[{{}}], ARRAY[{{}}]) AS {u}(x, y)",
            (inner.node, elements, self._elements(other, scope)),
            f"{{}} AS {a} CROSS JOIN LATERAL (SELECT unnest([{{}}]) AS x, unnest([{{}}]) AS y) AS {u}",
        )
        items = [self._column_or(k, [*scope, (f"{u}.x", kind), (f"{u}.y", other)]) for k in types]
        return self._select(types, items, "{}", (both,))

    def _elements(self, kind: str, scope: Scope) -> Node:
        return Node("elements", separator=", ",
                    children=tuple(self.expression(kind, scope, 1) for _ in range(self.r.randint(1, 3))))  # fmt: skip

    def _pivoted(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, alias = self.r.choice(self.tables), self._alias()
        of = [k for k in ("INT", "BIGINT", "STRING") if k in [kind for _, kind in table.columns]]
        key, value = self.r.choice(table.columns), self.r.choice(table.columns[:-1])
        axis = self.r.choice(of)
        rows = f"(SELECT {key[0]} AS c0, {value[0]} AS c1, {table.of_type(axis)} AS c2 FROM {table.name})"
        wanted = dict(zip("pq", (literal(self.r, axis) for _ in range(2)), strict=True))
        ours = ", ".join(f"{v} AS {name}" for name, v in wanted.items())
        columns = ", ".join(
            f"MAX(c1) FILTER (WHERE c2 = {v}) AS {name}_m, COUNT(*) FILTER (WHERE c2 = {v}) AS {name}_n"
            for name, v in wanted.items()
        )
        source = leaf("table", f"{rows} PIVOT (MAX(c1) AS m, COUNT(*) AS n FOR c2 IN ({ours}))",
                      f"(SELECT c0, {columns} FROM {rows} GROUP BY c0)")  # fmt: skip
        scope = [(f"{alias}.c0", key[1])]
        for name in wanted:
            scope += [(f"{alias}.{name}_m", value[1]), (f"{alias}.{name}_n", "BIGINT")]
        return self._select(types, [self._column_or(k, scope) for k in types], f"{{}} AS {alias}", (source,))

    def _interval_joined(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        left, right, a, b = (
            self.r.choice(self.tables),
            self.r.choice(self.tables),
            self._alias(),
            self._alias(),
        )
        kind = self.r.choice(["INT", "BIGINT", "STRING", "DATE"])
        join = self.r.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        low, high = self.r.randint(0, 9), self.r.randint(0, 9)
        scope = [(f"{x}.{name}", k) for x, table in ((a, left), (b, right)) for name, k in table.columns]
        source = (f"{left.name} AS {a} {join} {right.name} AS {b} ON {a}.{left.of_type(kind)} = {b}.{right.of_type(kind)} "
                  f"AND {a}.ts BETWEEN {b}.ts - INTERVAL '{low}' SECOND AND {b}.ts + INTERVAL '{high}' SECOND")  # fmt: skip
        return self._select(types, [self._column_or(k, scope) for k in types], source, ())

    def _with(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        """A common table expression that is read twice."""
        types = self._types(types)
        inner, name, a, b = self.relation(depth), self._alias(), self._alias(), self._alias()
        scope = inner.scope(a) + inner.scope(b)
        on = self._on(inner.scope(a), inner.scope(b))
        items = [self._column_or(k, scope) for k in types]
        columns = self._items(items)
        join = self.r.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
        template = f"(WITH {name} AS {{0}} SELECT {{1}} FROM {name} AS {a} {join} {name} AS {b} ON {{2}})"
        return Relation(Node(relation_sort(types), template, (inner.node, columns, on)), types)

    def _select(
        self, types: tuple[str, ...], items: list[Node], source: str, parts: tuple[Node, ...]
    ) -> Relation:
        """``source``: the text after FROM, with ``{}`` for each of ``parts``."""
        places = source.format(*(f"{{{i + 1}}}" for i in range(len(parts))))
        node = Node(relation_sort(types), f"(SELECT {{0}} FROM {places})", (self._items(items), *parts))
        return Relation(node, types)

    def _items(self, items: list[Node]) -> Node:
        named = tuple(Node("item", f"{{0}} AS c{i}", (item,)) for i, item in enumerate(items))
        return Node("items", ", ".join(f"{{{i}}}" for i in range(len(named))), named)


def _as_text(column: str, kind: str) -> str:
    return column if kind == "STRING" else f"CAST({column} IS NULL AS STRING)"
