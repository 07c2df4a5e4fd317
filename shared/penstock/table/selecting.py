"""Makes a SELECT list of what a program selects: rules become columns, and columns get Flink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.functions.aggregates import is_aggregate
from penstock.sql.reading import dotted_parts
from penstock.table.expression import Expression
from penstock.table.marks import Bound, ColumnChoice, ColumnRange, FieldAt, Flattened, RowCount, WindowTime
from penstock.table.syntax import column, identifier
from penstock.table.udf import MARKED
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.sql.functions import UserFunctions
    from penstock.table.windows import GroupWindow

#: (name or None, expression): an item of a SELECT list.
Item = tuple[str | None, exp.Expression]


def expression(value: Any, what: str) -> Expression:
    """``value``, which must be an expression. Raises SpecError, which names ``what``, if it is not."""
    if isinstance(value, Expression):
        return value
    raise SpecError(
        f"{what} takes expressions",
        expected="col('a'), lit(1), …",
        got=repr(value),
        remedy=f"write col({value!r})" if isinstance(value, str) else "lit(…) makes a constant",
    )


class Selecting:
    """Makes syntax trees of expressions over one table.

    Args:
        schema: The table's columns.
        functions: The session's functions.
        inline: Registers a function object and gives its name.
        window: The group window whose times may be asked for.
        type_of: The type of an expression over the table.
    """

    def __init__(
        self,
        schema: t.Schema,
        functions: UserFunctions,
        inline: Callable[[Any], str],
        type_of: Callable[[exp.Expression], t.LogicalType],
        window: GroupWindow | None = None,
    ) -> None:
        self._schema = schema
        self._functions = functions
        self._inline = inline
        self._window = window
        self._type_of = type_of

    def node(self, value: Expression) -> exp.Expression:
        """The syntax tree of one expression, without a name."""
        made = value._node.copy().transform(self._placed, copy=False)
        if isinstance(made, (ColumnChoice, ColumnRange, Flattened, exp.Star)):
            raise SpecError(
                "several columns where one expression is expected", expected="one column", got=str(value)
            )
        return made

    def _placed(self, node: exp.Expression) -> exp.Expression:
        match node:
            case exp.Anonymous() if MARKED in node.meta:
                node.set("this", self._inline(node.meta.pop(MARKED)))
            case WindowTime():
                return self._window_time(node)
            case exp.Dot(this=exp.Column() | exp.Dot()) if (parts := dotted_parts(node)) is not None:
                return _path(parts)
            case FieldAt(this=inner):
                return self._field_at(inner.copy().transform(self._placed, copy=False), node.args["index"])
            case RowCount() | Bound():
                raise SpecError("a bound of an OVER window here", expected="a value", got=str(node.this))
        return node

    def _field_at(self, row: exp.Expression, index: int) -> exp.Expression:
        type_ = self._type_of(row)
        if not isinstance(type_, t.RowType) or not 0 <= index < len(type_.fields):
            raise SpecError(
                "no such field",
                expected=f"get(0) to get({len(type_.fields) - 1})"
                if isinstance(type_, t.RowType)
                else "a ROW",
                got=f"get({index}) of {type_}",
            )
        made = exp.Dot(this=row, expression=identifier(type_.fields[index].name))
        parts = dotted_parts(made)
        return made if parts is None else _path(parts)

    def _window_time(self, node: WindowTime) -> exp.Expression:
        window, named, kind = self._window, node.this, node.args["kind"]
        if window is not None and isinstance(named, exp.Column) and named.name == window.name:
            return window.call(kind)
        if isinstance(named, exp.Column):  # a field of a ROW that has this name
            return _path([named.name, str(kind).lower()])
        raise SpecError(
            f"{str(kind).lower()} of what is no window",
            expected="col('w') of window(….alias('w'))",
            got=named.sql(dialect=""),
        )

    # -- lists -------------------------------------------------------------------------------

    def items(self, fields: Iterable[Any], what: str) -> list[Item]:
        """A SELECT list: the columns that rules choose, and other expressions
        with the names that they have."""
        out: list[Item] = []
        for field in fields:
            given = expression(field, what)
            match given._node:
                case exp.Star() | exp.Column(this=exp.Identifier(this="*")):
                    out += [(name, column(name)) for name in self._schema.names]
                case ColumnChoice() as choice:
                    out += [(name, column(name)) for name in self.chosen(choice)]
                case ColumnRange() as span:
                    out += [(name, column(name)) for name in self._range(span)]
                case Flattened(this=inner):
                    out += self._flattened(Expression(inner), given._names)
                case exp.Ordered():
                    raise SpecError(f"{what}: asc and desc belong to order_by", got=str(given))
                case _:
                    if len(given._names) > 1:
                        raise SpecError(
                            f"{what}: one column with several names", expected="alias('name')", got=str(given)
                        )
                    node = self.node(given)
                    parts = dotted_parts(node) if isinstance(node, (exp.Column, exp.Dot)) else None
                    name = given._names[0] if given._names else parts[-1] if parts else None
                    out.append((name, node))
        return out

    def chosen(self, choice: ColumnChoice) -> list[str]:
        """The columns of ``with_columns`` or ``without_columns``."""
        names: list[str] = []
        for part in choice.expressions:
            match part:
                case ColumnRange():
                    names += self._range(part)
                case exp.Column():
                    names.append(self._known(part.name))
                case exp.Literal(is_string=True):
                    names.append(self._known(str(part.this)))
                case exp.Literal():
                    names += self._range(ColumnRange(start=int(part.this), end=int(part.this)))
                case ColumnChoice():
                    names += self.chosen(part)
                case exp.Star():
                    names += self._schema.names
                case _:
                    raise SpecError(
                        "not a column", expected="col('a'), range_('a', 'c'), 3", got=part.sql(dialect="")
                    )
        if not choice.args.get("without"):
            return names
        return [name for name in self._schema.names if name not in names]

    def _known(self, name: str) -> str:
        if name in self._schema.names:
            return name
        raise SpecError(
            f"unknown column '{name}'", expected="one of " + ", ".join(self._schema.names), got=repr(name)
        )

    def _range(self, span: ColumnRange) -> list[str]:
        names = list(self._schema.names)
        first, last = (
            names.index(self._known(edge)) if isinstance(edge, str) else int(edge) - 1
            for edge in (span.args["start"], span.args["end"])
        )
        if not 0 <= first <= last < len(names):
            raise SpecError(
                "columns out of range",
                expected=f"from 1 to {len(names)}, the first before the last",
                got=f"range_({span.args['start']!r}, {span.args['end']!r})",
            )
        return names[first : last + 1]

    def _flattened(self, value: Expression, names: tuple[str, ...]) -> list[Item]:
        node = self.node(value)
        type_ = self._type_of(node)
        if not isinstance(type_, t.RowType):
            return [(names[0] if names else None, node)]
        if names and len(names) != len(type_.fields):
            raise SpecError(
                "names of flattened fields",
                expected=f"{len(type_.fields)} names",
                got=", ".join(names),
            )
        prefix = dotted_parts(node) if isinstance(node, (exp.Column, exp.Dot)) else None
        out: list[Item] = []
        for i, field in enumerate(type_.fields):
            name = names[i] if names else "$".join([*(prefix or ["_c0"]), field.name])
            out.append((name, exp.Dot(this=node.copy(), expression=identifier(field.name))))
        return [(name, _path(p) if (p := dotted_parts(n)) else n) for name, n in out]

    # -- names -------------------------------------------------------------------------------

    def named(self, items: Sequence[Item]) -> list[exp.Expression]:
        """The list with Flink's names for nameless items: ``EXPR$n``
        (aggregates, window times) or ``_cn``."""
        counted: list[exp.Expression] = []
        for _, node in items:
            for part in self._counted(node):
                if part not in counted:
                    counted.append(part)
        out: list[exp.Expression] = []
        for i, (name, node) in enumerate(items):
            if name is None:
                name = f"EXPR${counted.index(node)}" if node in counted else f"_c{i}"
            if isinstance(node, exp.Column) and node.name == name and not node.table:
                out.append(node)
            else:
                out.append(exp.Alias(this=node, alias=identifier(name)))
        return out

    def _counted(self, node: exp.Expression) -> list[exp.Expression]:
        if isinstance(node, exp.Window):
            return []
        if self.is_aggregate(node) or (self._window is not None and _is_time_of(node, self._window)):
            return [node]
        return [x for child in node.iter_expressions() for x in self._counted(child)]

    def is_aggregate(self, node: exp.Expression) -> bool:
        """Whether the node itself is a call of an aggregate function."""
        name = str(node.this) if isinstance(node, exp.Anonymous) else str(node.args.get("name", ""))
        return bool(name) and (is_aggregate(name.upper()) or self._functions.aggregate(name) is not None)


def _is_time_of(node: exp.Expression, window: GroupWindow) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).startswith(f"{window.function}_")


def _path(parts: Sequence[str]) -> exp.Expression:
    """The node that the parser makes of ``a.b.c``."""
    if len(parts) == 1:
        return column(parts[0])
    node: exp.Expression = column(parts[0], parts[1])
    for part in parts[2:]:
        node = exp.Dot(this=node, expression=identifier(part))
    return node


def refuse_rows(call: Expression, method: str, *, several: bool) -> None:
    """Raise SpecError for a function that gives one row in ``flat_aggregate``, or ``several`` rows in another method."""
    function = call._node.meta.get("function")
    if function is None or (function.kind == "table_aggregate") == several:
        return
    raise SpecError(
        f"{'flat_aggregate' if several else method} of '{function.name}'",
        expected="what udtaf made"
        if several
        else "a function that gives one row; flat_aggregate takes what udtaf made",
        got=f"a function of the kind {function.kind}",
    )
