"""Consequences of conditions: common parts of ORs, and facts that equal columns share.

Conditions here are conjuncts of WHERE or ON. A row passes if they are TRUE, so FALSE and unknown are treated
alike. All functions consider only expressions that give the same value each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import Call, Expr, InputRef, Literal, children, input_refs
from penstock.functions.registry import is_deterministic, make_call
from penstock.plan.rewriting import conjunction, conjuncts, position, without_repeats
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Field, IntType, Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from penstock.types.logical import LogicalType

#: Comparisons with constants that hold for every column equal to the compared one.
_SHARED = ("=", "<>", "<", "<=", ">", ">=", "IN", "NOT IN")


def factored(condition: Expr | None) -> list[Expr]:
    """The conjuncts of a condition, with the common part of all branches of an OR taken out: ``(a AND b) OR
    (a AND c)`` → ``a``, ``b OR c``. Three-valued logic is distributive, so the value is the same for
    NULLs, too."""
    return [found for part in conjuncts(condition) for found in _without_common(part)]


def _without_common(part: Expr) -> list[Expr]:
    branches = [conjuncts(branch) for branch in disjuncts(part)]
    if len(branches) < 2:
        return [part]
    common = [
        one
        for one in branches[0]
        if is_deterministic(one) and all(position(one, other) is not None for other in branches[1:])
    ]
    if not common:
        return [part]
    rests: list[Expr] = []
    for branch in branches:
        rest = conjunction([one for one in branch if position(one, common) is None])
        if rest is None:
            # ``a OR (a AND b)`` is ``a``.
            return common
        rests.append(rest)
    return [*common, *factored(_disjunction(rests))]


def disjuncts(expr: Expr) -> list[Expr]:
    """The branches of an OR. Any other condition counts as one branch."""
    if isinstance(expr, Call) and expr.function == "OR":
        return [branch for arg in expr.args for branch in disjuncts(arg)]
    return [expr]


def _disjunction(parts: Sequence[Expr]) -> Expr:
    unique = without_repeats(parts)
    return unique[0] if len(unique) == 1 else make_call("OR", unique)


def implied(part: Expr, columns: Collection[int]) -> Expr | None:
    """The condition that an OR puts on these columns alone. Each branch has conjuncts over nothing else; one
    of these must hold. None if a branch has no such conjunct, or the OR reads nothing else."""
    branches = disjuncts(part)
    if len(branches) < 2 or input_refs(part) <= set(columns) or not is_deterministic(part):
        return None
    demands: list[Expr] = []
    for branch in branches:
        inside = [one for one in conjuncts(branch) if input_refs(one) and input_refs(one) <= set(columns)]
        demand = conjunction(inside)
        if demand is None:
            return None
        demands.append(demand)
    return _disjunction(demands)


class EqualColumns:
    """Classes of columns that conditions make equal, by ``column = column`` of one type."""

    def __init__(self, parts: Iterable[Expr], pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._class: dict[int, set[int]] = {}
        for part in parts:
            pair = equal_pair(part)
            if pair is not None:
                self._join(pair[0].index, pair[1].index)
        for a, b in pairs:
            self._join(a, b)

    def _join(self, a: int, b: int) -> None:
        merged = self._class.get(a, {a}) | self._class.get(b, {b})
        for column in merged:
            self._class[column] = merged

    def of(self, column: int) -> set[int]:
        """The columns equal to ``column``, including ``column``."""
        return self._class.get(column, {column})

    def classes(self) -> list[list[int]]:
        """Every class of equal columns, each as a sorted list."""
        return [sorted(found) for column, found in sorted(self._class.items()) if column == min(found)]


def equal_pair(part: Expr) -> tuple[InputRef, InputRef] | None:
    """The two columns of ``column = column`` if both have the same type; otherwise None."""
    if not isinstance(part, Call) or part.function != "=" or len(part.args) != 2:
        return None
    a, b = part.args
    if not isinstance(a, InputRef) or not isinstance(b, InputRef) or a.index == b.index:
        return None
    return (a, b) if a.type.with_nullable(True) == b.type.with_nullable(True) else None


def shared_facts(parts: Sequence[Expr], equal: EqualColumns, types: Sequence[LogicalType]) -> list[Expr]:
    """``a = b AND a > 5`` → ``b > 5``: comparisons of a column with constants, applied to the columns that
    are equal to it. Comparisons that ``parts`` contains already are left out. ``types``: of all columns."""
    out: list[Expr] = []
    for part in parts:
        column = compared_with_constants(part)
        if column is None:
            continue
        assert isinstance(part, Call)
        for other in sorted(equal.of(column) - {column}):
            args = [InputRef(other, types[other]) if isinstance(a, InputRef) else a for a in part.args]
            fact = make_call(part.function, args)
            if position(fact, parts) is None and position(fact, out) is None:
                out.append(fact)
    return out


def compared_with_constants(part: Expr) -> int | None:
    """The column of a condition that compares one column with constants; None for any other condition."""
    if not isinstance(part, Call) or part.function not in _SHARED:
        return None
    columns = [arg for arg in part.args if isinstance(arg, InputRef)]
    constants = [arg for arg in part.args if isinstance(arg, Literal) and arg.value is not None]
    if len(columns) != 1 or len(columns) + len(constants) != len(part.args):
        return None
    return columns[0].index


def never_true(condition: Expr) -> bool:
    """Whether a condition is FALSE or NULL for every row."""
    if isinstance(condition, Literal):
        return not condition.value
    if not _constant(condition) or not is_deterministic(condition):
        return False
    one = Batch(Schema((Field("ZERO", IntType(nullable=False)),)), [Column.of(IntType(nullable=False), [0])])
    try:
        value = compile_expr(condition)(one).to_pylist()[0]
    except (PenstockError, ArithmeticError, ValueError):
        return False  # The evaluation fails; a row that reaches the condition must see that error.
    return not value


def _constant(expr: Expr) -> bool:
    return isinstance(expr, Literal) or (isinstance(expr, Call) and all(map(_constant, children(expr))))
