"""The node of table functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.functions.expression_text import text
from penstock.jobgraph.specs import TableFunctionSpec
from penstock.plan import soundness
from penstock.plan.lineage import bounded, expression, opaque
from penstock.plan.node import Node, Unary
from penstock.plan.rewriting import below_own_columns
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties
    from penstock.plan.translation import Translator


class Correlate(Unary, frozen=True, kw_only=True, tag="correlate"):
    """LATERAL TABLE(f(args)) and UNNEST: pairs each row with every row that the function returns for it."""

    reads: ClassVar[tuple[str, ...]] = ("args",)

    input: Node
    function: str
    args: tuple[Expr, ...]
    kind: Literal["inner", "left"] = "inner"
    builtin: bool = True
    per: Literal["record", "batch"] = "record"
    asynchronous: bool = False
    schema: Schema

    def properties(self, analysis: Analysis) -> Properties:
        return replace(analysis.of(self.input), unique=())

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return empty[0]

    def lowered(self, part: Expr) -> Expr | None:
        return below_own_columns(part, len(self.input.schema))

    def unawaited(self) -> tuple[str, Sequence[Expr]]:
        return "an argument of a table function", self.args

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        args = ", ".join(expression(a, below.columns) for a in self.args)
        call = bounded(f"{self.kind} {self.function}({args})")
        made = (f"{call}.{i}" for i in range(len(self.schema) - len(below.columns)))
        return opaque(below.tables, f"{call} for each of {below.rows}", (*below.columns, *made))

    def explained(self) -> str:
        args = ", ".join(text(a, self.input.schema) for a in self.args)
        return f"Correlate({self.kind}, {self.function}({args}))"

    def check(self) -> None:
        given = self.input.schema.types
        for expr in self.args:
            soundness.expression(expr, given)
        soundness.types(self.schema.types[: len(given)], given)

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = TableFunctionSpec(
            function=self.function, args=self.args, kind=self.kind, builtin=self.builtin, per=self.per,
            on_error=translator.on_error, asynchronous=self.asynchronous,
        )  # fmt: skip
        source = translator.visit(self.input)
        op = translator.add(self, "table-function", f"Correlate({self.function})", spec, [source])
        op.chain = not self.asynchronous
        return op
