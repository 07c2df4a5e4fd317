"""The query of a program's table: a syntax tree over named inputs, which is bound like a query of SQL.

A step knows its inputs, which are steps as well, so a loop binds a long chain of calls from its beginning to
its end. The plan nodes are those of ``SELECT … FROM (SELECT …)``, so plan, checks and rows are the same as in
SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.sql.errors import Position, Source
from penstock.sql.queries import QueryBinder
from penstock.sql.syntax import BoundTable

if TYPE_CHECKING:
    from types import FrameType

    from penstock.sql.scope import Relation

_PACKAGE = str(Path(__file__).absolute().parent.parent)


@dataclass(frozen=True, slots=True)
class CallPosition(Position):
    """The position of a call in a program, which stands for a statement's line and column."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


class CallSource(Source):
    """The source of a call that has no SQL text. Errors name the call and its line in the program."""

    def __init__(self, call: str) -> None:
        super().__init__("")
        self._call = call

    @property
    def within(self) -> str:
        return self._call

    def position(self, node: exp.Expression | None) -> Position:
        return CallPosition(text=self._call)


def here(call: str) -> str:
    """``call`` with the file and line of the program that makes the call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return call
    return f"{call} in {frame.f_code.co_filename}, line {frame.f_lineno}"


#: Binds the query of a step with a binder that knows the step's inputs by name.
Bind = Callable[[QueryBinder], "Relation"]


class Step:
    """One table: the relation that ``bind`` gives if the binder knows ``inputs`` by name.

    Args:
        bind: Makes the relation.
        inputs: Name in the query → the step.
        source: The text of the query, for positions in errors.
        where: The call that made the step.
    """

    __slots__ = ("bind", "inputs", "source", "where")

    def __init__(self, bind: Bind, inputs: dict[str, Step], source: Source, where: str) -> None:
        self.bind = bind
        self.inputs = inputs
        self.source = source
        self.where = where

    def __deepcopy__(self, memo: dict[int, Any]) -> Step:
        return self  # a copied syntax tree names the same table

    @classmethod
    def of_query(
        cls, query: exp.Expression, inputs: dict[str, Step], where: str, text: str | None = None
    ) -> Step:
        """A query as a step. ``text``: the text that was parsed; None if a program built the query."""
        source = CallSource(where) if text is None else Source(text)
        return cls(lambda ctx: ctx.statement(query), inputs, source, where)

    def relation(self, ctx: QueryBinder) -> Relation:
        """The relation of this step, with its inputs. The error of a step
        names the call that made the step."""
        bound: dict[int, Relation] = {}
        for step in self._in_order():
            known = {name: bound[id(made)] for name, made in step.inputs.items()}
            bound[id(step)] = step._bound(ctx, known)
        return bound[id(self)]

    def over(self, ctx: QueryBinder, known: dict[str, Relation]) -> Relation:
        """The relation of this step over the relations ``known`` of its inputs."""
        return self._bound(ctx, known)

    def _bound(self, ctx: QueryBinder, known: dict[str, Relation]) -> Relation:
        binder = QueryBinder(ctx.catalog, ctx.config, self.source, ctes=known, analysis=ctx.analysis)
        try:
            return self.bind(binder)
        except PenstockError as err:
            if not self.source.text and (err.where is None or err.where.startswith("line 0")):
                err.where = self.where
            raise

    def _in_order(self) -> list[Step]:
        """This step and the steps below it, each after its inputs."""
        order: list[Step] = []
        seen: set[int] = set()
        waiting: list[tuple[Step, bool]] = [(self, False)]
        while waiting:
            step, ready = waiting.pop()
            if ready:
                order.append(step)
            elif id(step) not in seen:
                seen.add(id(step))
                waiting.append((step, True))
                waiting += ((below, False) for below in step.inputs.values())
        return order

    def node(self) -> BoundTable:
        """The node that stands for this step where a statement holds a query."""
        return BoundTable.of(self.relation)
