"""Random queries over random tables: joins, groupings, rankings, set operations, subqueries in all places,
windows, and expressions of every type.

What is generated has one answer: orders are total where they decide, functions are those on which
Flink and DuckDB agree (or have the same in other words), floats are compared to nine digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.tables import TYPES, Table, literal
from tests.fuzz.tree import Node, leaf, walk

DECIMALS = ("DECIMAL(10, 2)", "DECIMAL(14, 4)")
NUMERIC = ("INT", "BIGINT", "DOUBLE", *DECIMALS)
#: Types whose common type with the key is the key: both engines widen them by themselves.
NARROWER = {
    "BIGINT": ("INT",),
    "DOUBLE": ("INT", "BIGINT", *DECIMALS),
    "DECIMAL(14, 4)": ("DECIMAL(10, 2)", "INT"),
}
ORDERED = (*NUMERIC, "STRING", "DATE", "TIMESTAMP(3)")
#: A scope: (reference, SQL type).
Scope = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Relation:
    """A derived table in parentheses with the types of its columns ``c0``, ``c1`` …"""

    node: Node
    types: tuple[str, ...]

    def scope(self, alias: str) -> Scope:
        return [(f"{alias}.c{i}", kind) for i, kind in enumerate(self.types)]


RELATION = "relation "


def relation_sort(types: tuple[str, ...]) -> str:
    return RELATION + "; ".join(types)


def sort_types(sort: str) -> list[str]:
    """The types of the columns of a relation, from its sort."""
    return sort.removeprefix(RELATION).split("; ")


class Generator:
    """Queries of one seed. ``streaming``: only what runs over an unbounded input, too."""

    def __init__(self, r: random.Random, tables: list[Table], *, streaming: bool) -> None:
        self.r = r
        self.tables = tables
        self.streaming = streaming
        self._aliases = 0
        self._subqueries = 3

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
            (1, self._distinct), (2, self._top), (2, self._windowed), (1, self._values), (1, self._unnested),
            (1, self._interval_joined), (1, self._with), (1, self._deduplicated),
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

    def _comparable(self, left: Scope, right: Scope) -> list[tuple[str, str, str]]:
        """Pairs of columns that ``=`` compares, with the left one's type: of one type, now and then of two."""
        mixed = self._chance(0.35)
        return [
            (x, y, k)
            for x, k in left
            for y, other in right
            if k == other or (mixed and k in NUMERIC and other in NUMERIC)
        ]

    def _narrowed(self, kind: str) -> str:
        """The type, or now and then one that both engines widen to it."""
        return self.r.choice(NARROWER[kind]) if kind in NARROWER and self._chance(0.25) else kind

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
        template = (
            f"(SELECT {listed} FROM (SELECT {', '.join(f'{a}.{c}' for c in columns)}, {function} OVER ({partition}ORDER BY {order}) "
            f"AS place FROM {{0}} AS {a}) AS {b} WHERE {b}.place <= {self.r.randint(1, 3)})"
        )
        return Relation(Node(relation_sort(types), template, (inner.node,)), types)

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
                kind, f"{r.choice(['ROW_NUMBER()', 'RANK()', 'DENSE_RANK()'])} OVER ({partition}{order})"
            )
        if kind == "BOOLEAN" or self._chance(0.3):
            column = self._column_or(kind, scope)
            return Node(
                kind,
                f"{r.choice(['LAG', 'LEAD'])}({{0}}, {r.randint(1, 3)}) OVER ({partition}{order})",
                (column,),
            )
        return Node(
            kind, f"{{0}} OVER ({partition}{order}{frame})", (self._aggregate(kind, scope, simple=True),)
        )

    def _windowed(self, depth: int, types: tuple[str, ...] | None) -> Relation:
        types = self._types(types)
        table, alias = self.r.choice(self.tables), self._alias()
        size = self.r.choice([5, 10])
        columns = ", ".join(name for name, _ in table.columns)
        if self._chance(0.5):
            ours = f"TABLE(TUMBLE(TABLE {table.name}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND))"
            theirs = (f"(SELECT {columns}, bucket AS window_start, bucket + INTERVAL {size} SECOND AS window_end FROM "
                      f"(SELECT *, time_bucket(INTERVAL {size} SECOND, ts) AS bucket FROM {table.name}))")  # fmt: skip
        else:
            ours = f"TABLE(HOP(TABLE {table.name}, DESCRIPTOR(ts), INTERVAL '{size // 5}' SECOND, INTERVAL '{size}' SECOND))"
            theirs = (f"(SELECT {columns}, bucket AS window_start, bucket + INTERVAL {size} SECOND AS window_end FROM "
                      f"(SELECT *, time_bucket(INTERVAL {size // 5} SECOND, ts) - to_seconds({size // 5} * hop) AS bucket "
                      f"FROM {table.name}, range(5) AS hops(hop)))")  # fmt: skip
        scope = [(f"{alias}.{name}", kind) for name, kind in table.columns]
        key = self.r.choice(table.columns[1:-1])
        keys = [f"{alias}.window_start", f"{alias}.window_end"]
        if self._chance(0.6):
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
        return self._select(types, items, group, (leaf("table", ours, theirs),))

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
        elements = Node("elements", separator=", ",
                        children=tuple(self.expression(kind, scope, 1) for _ in range(self.r.randint(1, 3))))  # fmt: skip
        source = f"{{}} AS {a} CROSS JOIN UNNEST(ARRAY[{{}}]) AS {u}(x)"
        scope = [*scope, (f"{u}.x", kind)]
        items = [self._column_or(k, scope) for k in types]
        return self._select(types, items, source, (inner.node, elements))

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

    # -- conditions ---------------------------------------------------------------------------

    def _where(self, scope: Scope, depth: int) -> Node:
        tests = [self._condition(scope, depth) for _ in range(self.r.choice([1, 1, 2]))]
        return Node("optional", " WHERE {0}", (Node("BOOLEAN", separator=" AND ", children=tuple(tests)),))

    def _condition(self, scope: Scope, depth: int) -> Node:
        if self._subqueries > 0 and self._chance(0.2):
            return self._subquery_condition(scope)
        if depth > 0 and self._chance(0.3):
            parts = (self._condition(scope, depth - 1), self._condition(scope, depth - 1))
            return Node(
                "BOOLEAN", self.r.choice(["({0} OR {1})", "({0} AND {1})", "(NOT {0} OR {1})"]), parts
            )
        return self._plain_condition(scope)

    def _plain_condition(self, scope: Scope, depth: int = 1) -> Node:
        r = self.r
        kind = r.choice(ORDERED)
        left = self.expression(kind, scope, depth)
        match r.randint(0, 6):
            case 0:
                return Node("BOOLEAN", r.choice(["{0} IS NULL", "{0} IS NOT NULL"]), (left,))
            case 1:
                listed = ", ".join(literal(r, kind) for _ in range(r.randint(1, 3)))
                return Node("BOOLEAN", f"{{0}} {r.choice(['IN', 'NOT IN'])} ({listed})", (left,))
            case 2:
                return Node(
                    "BOOLEAN",
                    "{0} BETWEEN {1} AND {2}",
                    (left, *(leaf(kind, literal(r, kind)) for _ in range(2))),
                )
            case 3:
                words = r.choice(["{0} IS DISTINCT FROM {1}", "{0} IS NOT DISTINCT FROM {1}"])
                return Node("BOOLEAN", words, (left, self.expression(kind, scope, 0)))
            case 4 if kind == "STRING":
                return Node("BOOLEAN", f"{{0}} LIKE '{r.choice(['x%', '%y', '_', '%e%', ''])}'", (left,))
            case 5:
                return self.expression("BOOLEAN", scope, 0)
            case _:
                compared = r.choice(NUMERIC) if kind in NUMERIC and self._chance(0.3) else kind
                other = self.expression(compared, scope, 0)
                return Node(
                    "BOOLEAN", f"{{0}} {r.choice(['=', '<>', '<', '<=', '>', '>='])} {{1}}", (left, other)
                )

    def _subquery_condition(self, scope: Scope) -> Node:
        r = self.r
        self._subqueries -= 1
        inner, alias = self.relation(r.choice([0, 1])), self._alias()
        rs = inner.scope(alias)
        pairs = self._comparable(scope, rs)
        if not pairs:
            return Node("BOOLEAN", f"EXISTS (SELECT 1 FROM {{0}} AS {alias})", (inner.node,))
        x, y, _ = r.choice(pairs)
        match r.randint(0, 3):
            case 0:
                return Node("BOOLEAN", f"{x} IN (SELECT {y} FROM {{0}} AS {alias})", (inner.node,))
            case 1:
                return Node("BOOLEAN", f"{x} NOT IN (SELECT {y} FROM {{0}} AS {alias})", (inner.node,))
            case 2:
                return Node(
                    "BOOLEAN", f"EXISTS (SELECT 1 FROM {{0}} AS {alias} WHERE {y} = {x})", (inner.node,)
                )
            case _:
                return Node(
                    "BOOLEAN", f"NOT EXISTS (SELECT 1 FROM {{0}} AS {alias} WHERE {y} = {x})", (inner.node,)
                )

    # -- expressions ----------------------------------------------------------------------------

    def expression(self, kind: str, scope: Scope, depth: int) -> Node:
        """Of exactly that type."""
        if depth <= 0 or self._chance(0.3):
            return self._column_or(kind, scope)
        if self._subqueries > 0 and self._chance(0.06):
            return self._scalar(kind)
        r, again = self.r, lambda k: self.expression(k, scope, depth - 1)
        common: list[Callable[[], Node]] = [
            lambda: Node(kind, "COALESCE({0}, {1})", (again(kind), again(self._narrowed(kind)))),
            lambda: Node(kind, "CASE WHEN {0} THEN {1} ELSE {2} END",
                         (self._plain_condition(scope, 0), again(self._narrowed(kind)), again(kind))),
            lambda: Node(kind, "CASE WHEN {0} THEN {1} END", (self._plain_condition(scope, 0), again(kind))),
            lambda: Node(kind, "NULLIF({0}, {1})", (again(kind), leaf(kind, literal(r, kind)))),
        ]  # fmt: skip
        return r.choice(common + self._of_kind(kind, again, scope))()

    def _of_kind(self, kind: str, again: Callable[[str], Node], scope: Scope) -> list[Callable[[], Node]]:
        r = self.r
        match kind:
            case "INT" | "BIGINT":
                text = [lambda: Node(kind, f"CAST(CHAR_LENGTH({{0}}) AS {kind})", (again("STRING"),)),
                        lambda: Node(kind, f"CAST(EXTRACT({r.choice(['YEAR', 'MONTH', 'DAY'])} FROM {{0}}) AS {kind})",
                                     (again(r.choice(["DATE", "TIMESTAMP(3)"])),))]  # fmt: skip
                cast = (
                    [lambda: Node(kind, "CAST({0} AS BIGINT)", (again("INT"),))] if kind == "BIGINT" else []
                )
                return [
                    *text, *cast,
                    lambda: Node(kind, f"({{0}} {r.choice('+-*')} {{1}})", (again(kind), again(kind))),
                    lambda: Node(kind, "({0} / 2)", (again(kind),), duckdb="({0} // 2)"),
                    lambda: Node(kind, f"CAST(MOD({{0}}, 3) AS {kind})", (again(kind),)),
                    lambda: Node(kind, "ABS({0})", (again(kind),)),
                    lambda: Node(kind, "(- {0})", (again(kind),)),
                ]  # fmt: skip
            case "DOUBLE":
                return [
                    lambda: Node(kind, f"({{0}} {r.choice('+-*')} {{1}})", (again(kind), again(kind))),
                    lambda: Node(kind, f"CAST({{0}} AS {kind})", (again(r.choice(["INT", "BIGINT", *DECIMALS])),)),
                    lambda: Node(kind, "FLOOR({0})", (again(kind),)),
                    lambda: Node(kind, "({0} / 4)", (again(kind),)),
                ]  # fmt: skip
            case "DECIMAL(10, 2)" | "DECIMAL(14, 4)":
                return [
                    lambda: Node(kind, f"CAST(({{0}} {r.choice('+-')} {{1}}) AS {kind})", (again(kind), again(r.choice(DECIMALS)))),
                    lambda: Node(kind, f"CAST(MOD({{0}}, 1000) AS {kind})", (again("INT"),)),
                    lambda: Node(kind, "ABS({0})", (again(kind),)),
                ]  # fmt: skip
            case "STRING":
                return [
                    lambda: Node(kind, "({0} || {1})", (again(kind), again(kind))),
                    lambda: Node(kind, f"{r.choice(['UPPER', 'LOWER', 'TRIM'])}({{0}})", (again(kind),)),
                    lambda: Node(kind, f"SUBSTRING({{0}}, {r.randint(1, 3)}, {r.randint(0, 3)})", (again(kind),)),
                    lambda: Node(kind, "REPLACE({0}, 'x', 'qq')", (again(kind),)),
                    lambda: Node(kind, "CAST({0} AS STRING)", (again(r.choice(["INT", "BIGINT", "DATE", *DECIMALS])),)),
                ]  # fmt: skip
            case "BOOLEAN":
                return [
                    lambda: Node(kind, "({0})", (self._plain_condition(scope, 0),)),
                    lambda: Node(kind, "(NOT {0})", (again(kind),)),
                ]
            case "DATE":
                days = r.randint(1, 40)
                return [
                    lambda: Node(kind, "CAST({0} AS DATE)", (again("TIMESTAMP(3)"),)),
                    lambda: Node(kind, f"({{0}} + INTERVAL '{days}' DAY)", (again(kind),), duckdb=f"CAST({{0}} + INTERVAL '{days}' DAY AS DATE)"),
                ]  # fmt: skip
            case _:
                n, unit = r.randint(1, 50), r.choice(["SECOND", "MINUTE", "HOUR", "DAY"])
                floor = r.choice(["MINUTE", "HOUR", "DAY", "MONTH", "YEAR"])
                return [
                    lambda: Node(kind, f"({{0}} {r.choice('+-')} INTERVAL '{n}' {unit})", (again(kind),)),
                    lambda: Node(kind, f"FLOOR({{0}} TO {floor})", (again(kind),), duckdb=f"date_trunc('{floor}', {{0}})"),
                    lambda: Node(kind, f"CAST({{0}} AS {kind})", (again("DATE"),)),
                ]  # fmt: skip

    def _scalar(self, kind: str) -> Node:
        self._subqueries -= 1
        inner, alias = self.relation(self.r.choice([0, 1])), self._alias()
        node = self._aggregate(kind, inner.scope(alias))
        empty = f"(SELECT {{0}} FROM {{1}} AS {alias} HAVING COUNT(*) > 0)" if self.streaming else None
        return Node(kind, f"(SELECT {{0}} FROM {{1}} AS {alias})", (node, inner.node), empty)

    def _aggregate(self, kind: str, scope: Scope, *, simple: bool = False) -> Node:
        r = self.r
        choices: list[Callable[[], Node]] = []
        # DuckDB's sums are wider: there an overflow is made an error, and the query is not compared.
        summed = None if simple else f"CAST(SUM({{0}}) AS {kind})"
        if kind != "BOOLEAN":
            choices.append(
                lambda: Node(kind, f"{r.choice(['MIN', 'MAX'])}({{0}})", (self.expression(kind, scope, 1),))
            )
        if kind == "BIGINT":
            choices.append(lambda: leaf(kind, "COUNT(*)"))
            choices.append(
                lambda: Node(kind, "COUNT({0})", (self.expression(r.choice(list(TYPES)), scope, 1),))
            )
            choices.append(lambda: Node(kind, "SUM({0})", (self.expression(kind, scope, 1),), summed))
            if not simple:
                choices.append(
                    lambda: Node(
                        kind, "COUNT(DISTINCT {0})", (self.expression(r.choice(list(TYPES)), scope, 1),)
                    )
                )
        if kind == "INT":
            choices.append(lambda: Node(kind, "SUM({0})", (self.expression(kind, scope, 1),), summed))
        if kind == "DOUBLE":
            choices.append(
                lambda: Node(kind, f"{r.choice(['SUM', 'AVG'])}({{0}})", (self.expression(kind, scope, 1),))
            )
        if kind in DECIMALS:
            choices.append(
                lambda: Node(kind, f"CAST(SUM({{0}}) AS {kind})", (self.expression(kind, scope, 1),))
            )
            if simple:
                choices.pop()
        if kind == "BOOLEAN":
            other = r.choice(["INT", "STRING", "BIGINT"])
            return Node(kind, f"(MIN({{0}}) {r.choice(['<', '=', '>='])} MAX({{1}}))",
                        (self.expression(other, scope, 0), self.expression(other, scope, 0)))  # fmt: skip
        made = r.choice(choices)()
        if (
            not simple
            and made.duckdb is None
            and made.template.startswith(("COUNT(", "MIN", "MAX"))
            and self._chance(0.15)
        ):
            return Node(kind, "{0} FILTER (WHERE {1})", (made, self._filter(scope)))
        return made

    def _filter(self, scope: Scope) -> Node:
        kind = self.r.choice(ORDERED)
        return Node("BOOLEAN", f"{{0}} {self.r.choice(['=', '<>', '<', '>='])} {{1}}",
                    (self._column_or(kind, scope), leaf(kind, literal(self.r, kind))))  # fmt: skip

    def _column_or(self, kind: str, scope: Scope) -> Node:
        """A column of that type, if there is one; else (and now and then) a constant."""
        columns = [name for name, other in scope if other == kind]
        if columns and self._chance(0.93):
            return leaf(kind, self.r.choice(columns))
        if self._chance(0.1):
            return leaf(kind, f"CAST(NULL AS {kind})")
        return leaf(kind, literal(self.r, kind))

    # -- the rest -------------------------------------------------------------------------------

    def _chance(self, p: float) -> bool:
        return self.r.random() < p

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"


def _as_text(column: str, kind: str) -> str:
    return column if kind == "STRING" else f"CAST({column} IS NULL AS STRING)"
