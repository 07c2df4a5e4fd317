"""``Expression``: a computation over the columns of a table, as SQL's syntax tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError, UnsupportedError
from penstock.table.expression_aggregates import Aggregates
from penstock.table.expression_base import cast_node, literal, node_of
from penstock.table.expression_collections import Collections
from penstock.table.expression_numbers import Numbers
from penstock.table.expression_texts import Texts
from penstock.table.expression_times import Times
from penstock.table.marks import FieldAt, Flattened, WindowTime
from penstock.table.syntax import call, identifier
from penstock.table.types import logical_type

if TYPE_CHECKING:
    from typing import NoReturn


class Expression(Numbers, Texts, Times, Collections, Aggregates):
    """A computation: ``col``, ``lit``, the call of a function, or an operator or method on other expressions.

    ``col('r').x`` is the field ``x`` of a ROW. Programs get expressions from ``penstock.table.expressions``.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    # -- operators -------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return self._binary(exp.Add, other)

    def __radd__(self, other: Any) -> Expression:
        return self._binary(exp.Add, other, swapped=True)

    def __sub__(self, other: Any) -> Expression:
        return self._binary(exp.Sub, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._binary(exp.Sub, other, swapped=True)

    def __mul__(self, other: Any) -> Expression:
        return self._binary(exp.Mul, other)

    def __rmul__(self, other: Any) -> Expression:
        return self._binary(exp.Mul, other, swapped=True)

    def __truediv__(self, other: Any) -> Expression:
        return self._binary(exp.Div, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._binary(exp.Div, other, swapped=True)

    def __mod__(self, other: Any) -> Expression:
        return self._binary(exp.Mod, other)

    def __rmod__(self, other: Any) -> Expression:
        return self._binary(exp.Mod, other, swapped=True)

    def __pow__(self, other: Any) -> Expression:
        return self._call("POWER", other)

    def __rpow__(self, other: Any) -> Expression:
        return Expression(call("POWER", [node_of(other), self._node.copy()]))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._binary(exp.EQ, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._binary(exp.NEQ, other)

    def __lt__(self, other: Any) -> Expression:
        return self._binary(exp.LT, other)

    def __le__(self, other: Any) -> Expression:
        return self._binary(exp.LTE, other)

    def __gt__(self, other: Any) -> Expression:
        return self._binary(exp.GT, other)

    def __ge__(self, other: Any) -> Expression:
        return self._binary(exp.GTE, other)

    def __and__(self, other: Any) -> Expression:
        return self._binary(exp.And, other)

    def __rand__(self, other: Any) -> Expression:
        return self._binary(exp.And, other, swapped=True)

    def __or__(self, other: Any) -> Expression:
        return self._binary(exp.Or, other)

    def __ror__(self, other: Any) -> Expression:
        return self._binary(exp.Or, other, swapped=True)

    def __invert__(self) -> Expression:
        return self._made(exp.Not(this=self._node.copy()))

    def __neg__(self) -> Expression:
        return self._made(exp.Neg(this=self._node.copy()))

    def __pos__(self) -> Expression:
        return self

    def __bool__(self) -> NoReturn:
        raise SpecError(
            "an expression has no truth value before it runs",
            expected="& for AND, | for OR, ~ for NOT, if_then_else(…) for a choice",
            got="and, or, not, if, or a comparison chained like a < b < c",
        )

    def __getitem__(self, index: Any) -> Expression:
        return self.at(index)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    # -- names and types ---------------------------------------------------------------------

    def alias(self, name: str, *extra_names: str) -> Expression:
        """Name the column. The columns of a table function take several names."""
        return Expression(self._node, (name, *extra_names))

    def as_argument(self, name: str) -> Expression:
        """Give the argument of a call its name.

        Raises:
            UnsupportedError: Always: no function has named arguments.
        """
        raise UnsupportedError(
            "as_argument: named arguments of functions",
            expected="arguments by position",
            got=name,
            remedy="give them in the function's order",
        )

    def cast(self, data_type: Any) -> Expression:
        """The value cast to ``data_type``. A value that cannot be cast is an error."""
        return self._made(cast_node(self._node.copy(), logical_type(data_type, "of cast")))

    def try_cast(self, data_type: Any) -> Expression:
        """The value cast to ``data_type``; NULL if it cannot be cast."""
        return self._made(cast_node(self._node.copy(), logical_type(data_type, "of try_cast"), safe=True))

    @property
    def asc(self) -> Expression:
        """The key of ``order_by`` that puts the least value first."""
        return self._made(exp.Ordered(this=self._node.copy(), nulls_first=True))

    @property
    def desc(self) -> Expression:
        """The key of ``order_by`` that puts the greatest value first."""
        return self._made(exp.Ordered(this=self._node.copy(), desc=True, nulls_first=False))

    # -- conditions ---------------------------------------------------------------------------

    def between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether the value is at least ``lower_bound`` and at most ``upper_bound``."""
        return self._made(
            exp.Between(this=self._node.copy(), low=node_of(lower_bound), high=node_of(upper_bound))
        )

    def not_between(self, lower_bound: Any, upper_bound: Any) -> Expression:
        """Whether the value is below ``lower_bound`` or above ``upper_bound``."""
        return ~self.between(lower_bound, upper_bound)

    def then(self, if_true: Any, if_false: Any) -> Expression:
        """``if_true`` where this condition is TRUE, else ``if_false``."""
        branch = exp.If(this=self._node.copy(), true=node_of(if_true))
        return self._made(exp.Case(ifs=[branch], default=node_of(if_false)))

    def _is(self, what: exp.Expression, *, negated: bool = False) -> Expression:
        made: exp.Expression = exp.Is(this=self._node.copy(), expression=what)
        return self._made(exp.Not(this=made) if negated else made)

    @property
    def is_null(self) -> Expression:
        """Whether the value is NULL."""
        return self._is(exp.Null())

    @property
    def is_not_null(self) -> Expression:
        """Whether the value is not NULL."""
        return self._is(exp.Null(), negated=True)

    @property
    def is_true(self) -> Expression:
        """Whether the condition is TRUE. FALSE if the condition is NULL."""
        return self._is(exp.Boolean(this=True))

    @property
    def is_false(self) -> Expression:
        """Whether the condition is FALSE. FALSE if the condition is NULL."""
        return self._is(exp.Boolean(this=False))

    @property
    def is_not_true(self) -> Expression:
        """Whether the condition is FALSE or NULL."""
        return self._is(exp.Boolean(this=True), negated=True)

    @property
    def is_not_false(self) -> Expression:
        """Whether the condition is TRUE or NULL."""
        return self._is(exp.Boolean(this=False), negated=True)

    def in_(self, first_element_or_table: Any, *remaining_elements: Any) -> Expression:
        """Whether the value is one of the elements, or a row of a table of one column."""
        if not isinstance(first_element_or_table, Expression) and hasattr(first_element_or_table, "as_query"):
            if remaining_elements:
                raise SpecError("in_ of a table and values", expected="a table, or values", got="both")
            return self._made(
                exp.In(this=self._node.copy(), query=exp.Subquery(this=first_element_or_table.as_query()))
            )
        values = [node_of(v) for v in (first_element_or_table, *remaining_elements)]
        return self._made(exp.In(this=self._node.copy(), expressions=values))

    def like(self, pattern: Any, escape: Any = None) -> Expression:
        """Whether the text fits ``pattern``, in which ``%`` stands for any text and ``_`` for any character.

        After the character ``escape`` they stand for themselves.
        """
        made: exp.Expression = exp.Like(this=self._node.copy(), expression=node_of(pattern))
        return self._made(made if escape is None else exp.Escape(this=made, expression=node_of(escape)))

    def similar(self, pattern: Any) -> Expression:
        """Whether the text fits ``pattern``, a regular expression of SQL (SIMILAR TO)."""
        return self._made(exp.SimilarTo(this=self._node.copy(), expression=node_of(pattern)))

    # -- texts whose calls have words between --------------------------------------------------

    def concat(self, other: Any) -> Expression:
        """This text followed by ``other``."""
        return self._call("CONCAT", other)

    def _trimmed(self, side: str, character: Any) -> Expression:
        given = literal(" ") if character is None else node_of(character)
        return self._made(call("TRIM", [literal(side), given, self._node.copy()]))

    def trim_leading(self, character: Any = None) -> Expression:
        """The text without ``character`` (None: blanks) at its beginning."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Expression:
        """The text without ``character`` (None: blanks) at its end."""
        return self._trimmed("TRAILING", character)

    def trim(self, character: Any = None) -> Expression:
        """The text without ``character`` (None: blanks) at both ends."""
        return self._trimmed("BOTH", character)

    def log(self, base: Any = None) -> Expression:
        """The logarithm to ``base``; the natural logarithm if ``base`` is None."""
        if base is None:
            return self._call("LN")
        return Expression(call("LOG", [node_of(base), self._node.copy()]))

    # -- aggregates and windows ---------------------------------------------------------------

    @property
    def distinct(self) -> Expression:
        """The aggregate over the distinct values of a group: ``col('a').count.distinct``."""
        node_ = self._node.copy()
        if not isinstance(node_, exp.Anonymous) or not node_.expressions:
            raise SpecError(
                "distinct of what is no aggregate", expected="col('a').count.distinct", got=str(self)
            )
        return self._made(call(str(node_.this), [exp.Distinct(expressions=node_.expressions)]))

    @property
    def sum0(self) -> Expression:
        """The sum over a group; 0 if the group has no values."""
        return Expression(call("COALESCE", [self.sum._node, literal(0)]))

    def over(self, alias: Any) -> Expression:
        """The aggregate over the OVER window that ``alias`` names: ``col('a').sum.over(col('w'))``."""
        if not isinstance(node_of(alias), exp.Column):
            raise SpecError("over takes a window's name", expected="over(col('w'))", got=str(alias))
        name = node_of(alias).name
        return self._made(exp.Window(this=self._node.copy(), alias=identifier(name), over="OVER"))

    def _window_time(self, kind: str) -> Expression:
        return self._made(WindowTime(this=self._node.copy(), kind=kind))

    @property
    def start(self) -> Expression:
        """The time at which a group window begins: ``col('w').start``."""
        return self._window_time("START")

    @property
    def end(self) -> Expression:
        """The time at which a group window ends. The window does not contain this time."""
        return self._window_time("END")

    @property
    def rowtime(self) -> Expression:
        """The event time of a group window's result, for windows over the results."""
        return self._window_time("ROWTIME")

    @property
    def proctime(self) -> Expression:
        """The processing time of a group window's result."""
        return self._window_time("PROCTIME")

    # -- fields ---------------------------------------------------------------------------------

    def get(self, name_or_index: str | int) -> Expression:
        """The field ``name_or_index`` of a ROW: its name, or its position from 0."""
        if isinstance(name_or_index, str):
            return self._made(exp.Dot(this=self._node.copy(), expression=identifier(name_or_index)))
        return self._made(FieldAt(this=self._node.copy(), index=int(name_or_index)))

    @property
    def flatten(self) -> Expression:
        """The fields of a ROW, which ``select`` makes columns."""
        return self._made(Flattened(this=self._node.copy()))

    def at(self, index: Any) -> Expression:
        """The element ``index`` (from 1) of an ARRAY, or the value of the key ``index`` of a MAP."""
        return self._made(exp.Bracket(this=self._node.copy(), expressions=[node_of(index)]))

    def __str__(self) -> str:
        named = f" AS {', '.join(self._names)}" if self._names else ""
        return self._node.sql(dialect="") + named

    __repr__ = __str__
