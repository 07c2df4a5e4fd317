"""Random conditions and expressions of every type, over the columns in scope."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.functions import Functions
from tests.fuzz.tables import TYPES, Table, literal
from tests.fuzz.tree import Node, leaf

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


class Expressions(Functions, ABC):
    """Expressions of one seed. ``streaming``: only what runs over an unbounded input, too."""

    def __init__(self, r: random.Random, tables: list[Table], *, streaming: bool) -> None:
        self.r = r
        self.tables = tables
        self.streaming = streaming
        self._aliases = 0
        self._subqueries = 3

    @abstractmethod
    def relation(self, depth: int, types: tuple[str, ...] | None = None) -> Relation:
        """A derived table, for a subquery. ``depth``: how many others may be inside it; ``types``: of its columns,
        if they are given."""

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
        related = f" WHERE {self._related(pairs)}" if self._chance(0.5) else ""
        match r.randint(0, 9):
            case 0:
                return Node("BOOLEAN", f"{x} IN (SELECT {y} FROM {{0}} AS {alias})", (inner.node,))
            case 1:
                return Node("BOOLEAN", f"{x} NOT IN (SELECT {y} FROM {{0}} AS {alias})", (inner.node,))
            case 2:
                return Node(
                    "BOOLEAN", f"EXISTS (SELECT 1 FROM {{0}} AS {alias} WHERE {y} = {x})", (inner.node,)
                )
            case 3:
                return Node(
                    "BOOLEAN", f"NOT EXISTS (SELECT 1 FROM {{0}} AS {alias} WHERE {y} = {x})", (inner.node,)
                )
            case 4:
                words = f"EXISTS (SELECT 1 FROM {{0}} AS {alias} WHERE {self._related(pairs)})"
            case 5:
                groups = f"GROUP BY {y} HAVING COUNT(*) {r.choice(['>', '<=', '='])} {r.randint(1, 2)}"
                words = f"EXISTS (SELECT {y} FROM {{0}} AS {alias} WHERE {self._related(pairs)} {groups})"
            case 6:
                word = r.choice(["IN", "NOT IN"])
                words = f"{x} {word} (SELECT {y} FROM {{0}} AS {alias} WHERE {self._related(pairs)})"
            case _:
                operator, word = r.choice(["=", "<>", "<", "<=", ">", ">="]), r.choice(["ANY", "ALL"])
                words = f"{x} {operator} {word} (SELECT {y} FROM {{0}} AS {alias}{related})"
        return Node("BOOLEAN", words, (inner.node,))

    def _related(self, pairs: list[tuple[str, str, str]]) -> str:
        """A condition between columns of an outer and of an inner query."""
        r = self.r
        tests = []
        for _ in range(r.choice([1, 1, 1, 2])):
            x, y, _ = r.choice(pairs)
            tests.append(f"{y} {r.choice(['=', '=', '<', '>=', '<>'])} {x}")
        return r.choice([" AND ", " OR "]).join(tests)

    # -- expressions ----------------------------------------------------------------------------

    def expression(self, kind: str, scope: Scope, depth: int) -> Node:
        """Of exactly that type."""
        if depth <= 0 or self._chance(0.3):
            return self._column_or(kind, scope)
        if self._subqueries > 0 and self._chance(0.06):
            return self._scalar_of(kind, scope) if self._chance(0.5) else self._scalar(kind)
        r, again = self.r, lambda k: self.expression(k, scope, depth - 1)
        common: list[Callable[[], Node]] = [
            lambda: Node(kind, "COALESCE({0}, {1})", (again(kind), again(self._narrowed(kind)))),
            lambda: Node(kind, "CASE WHEN {0} THEN {1} ELSE {2} END",
                         (self._plain_condition(scope, 0), again(self._narrowed(kind)), again(kind))),
            lambda: Node(kind, "CASE WHEN {0} THEN {1} END", (self._plain_condition(scope, 0), again(kind))),
            lambda: Node(kind, "NULLIF({0}, {1})", (again(kind), leaf(kind, literal(r, kind)))),
        ]  # fmt: skip
        if self._chance(0.45):
            return r.choice(self.calls(kind, again))()
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

    def _scalar_of(self, kind: str, scope: Scope) -> Node:
        """A scalar subquery that names columns of the outer query: an aggregate, or the first of the rows."""
        r = self.r
        self._subqueries -= 1
        inner, alias = self.relation(r.choice([0, 1])), self._alias()
        rs = inner.scope(alias)
        pairs = self._comparable(scope, rs)
        if not pairs:
            self._subqueries += 1
            return self._column_or(kind, scope)
        where = self._related(pairs)
        same = [name for name, k in rs if k == kind]
        if same and self._chance(0.3):
            y = r.choice(same)
            tail = f"ORDER BY {y} {r.choice(['ASC', 'DESC'])} LIMIT 1{r.choice(['', ' OFFSET 1'])}"
            return Node(kind, f"(SELECT {y} FROM {{0}} AS {alias} WHERE {where} {tail})", (inner.node,))
        template = f"(SELECT {{0}} FROM {{1}} AS {alias} WHERE {where})"
        return Node(kind, template, (self._aggregate(kind, rs, simple=True), inner.node))

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

    # -- types, chances, names -----------------------------------------------------------------

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

    def _chance(self, p: float) -> bool:
        return self.r.random() < p

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"
