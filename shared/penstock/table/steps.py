"""A table of a program: a syntax tree over named inputs, bound as SQL's queries are.

A step knows its inputs, which are steps as well, so a long chain of calls is bound from its beginning to
its end in a loop. The nodes are those of ``SELECT … FROM (SELECT …)``: plan, checks and rows are SQL's.
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
    """A call in a program where a statement has its line and column."""

    text: str = ""

    def __str__(self) -> str:
        return self.text


class CallSource(Source):
    """What the binder reads for a call that has no text: errors name the call and its line."""

    def __init__(self, call: str) -> None:
        super().__init__("")
        self._call = call

    def position(self, node: exp.Expression | None) -> Position:
        return CallPosition(text=self._call)


def here(call: str) -> str:
    """``call`` with the file and line of the program that makes it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return call
    return f"{call} in {frame.f_code.co_filename}, line {frame.f_lineno}"


#: Binds what a step is, given the binder that knows its inputs by name.
Bind = Callable[[QueryBinder], "Relation"]


class Step:
    """One table: what ``bind`` gives when its ``inputs`` are known by the names in it.

    Args:
        bind: Makes the relation.
        inputs: Name in ``bind`` → the step.
        source: The text that ``bind`` reads, for the places of errors.
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
        """A query as a step. ``text``: what was parsed; None: a program has built it."""
        source = CallSource(where) if text is None else Source(text)
        return cls(lambda ctx: ctx.statement(query), inputs, source, where)

    def relation(self, ctx: QueryBinder) -> Relation:
        """The rows, bound for a statement. The error of a step names the call that made it."""
        bound: dict[int, Relation] = {}
        for step in self._in_order():
            known = {name: bound[id(made)] for name, made in step.inputs.items()}
            bound[id(step)] = step._bound(ctx, known)
        return bound[id(self)]

    def over(self, ctx: QueryBinder, known: dict[str, Relation]) -> Relation:
        """As ``relation``, with the relations of the inputs given."""
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
        """This step and those below it, each after its inputs."""
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
        """The step where a statement holds a query."""
        return BoundTable.of(self.relation)
