"""Joins of a table with the rows of a table function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError
from penstock.sql.syntax import TableFunction
from penstock.table.grouping import over_rows
from penstock.table.selecting import Selecting, expression
from penstock.table.steps import here
from penstock.table.syntax import identifier
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.table.expression import Expression
    from penstock.table.table import Table

#: The alias of the function's rows in the join.
ROWS = "$rows"


def lateral_join(
    table: Table,
    call: str,
    function_call: Any,
    predicate: Expression | None,
    *,
    left: bool,
    apart: bool = False,
) -> Table:
    """``table`` joined with the rows of a table function.

    Args:
        table: The left side of the join.
        call: The method's name, for errors.
        function_call: The function's call, perhaps with names for its columns.
        predicate: A condition on both.
        left: Keep rows for which the function gives none.
        apart: The function's columns may have names that the table has, too. Such columns get other names.
    """
    made, given_names = over_rows(table, function_call)
    given = made.alias(*given_names) if given_names else made
    node = table._selecting().node(given)
    if not isinstance(node, exp.Anonymous):
        raise SpecError(
            f"{call} takes the call of a table function",
            expected="split(col('a')).alias('b'), or call('name', …)",
            got=str(given),
            where=here(f"{call}()"),
        )
    name = str(node.this)
    names = list(given._names) or _result_names(table, name)
    both = [n for n in names if n in table._schema.names]
    if both and not apart:
        raise SpecError(
            f"{call}: the table has a column '{both[0]}' already",
            expected="other names for the function's columns",
            got=", ".join(names),
            where=here(f"{call}()"),
            remedy="split(col('a')).alias('x', 'y') names them",
        )
    columns = {"columns": [identifier(n) for n in names]} if names and not apart else {}
    if apart and given._names:
        columns = {"columns": [identifier(n) for n in names]}
    function = TableFunction(
        name=name, expressions=node.expressions, alias=exp.TableAlias(this=identifier(ROWS), **columns)
    )
    args: dict[str, Any] = {"side": "LEFT"} if left else {}
    if predicate is not None:
        fields = (*table._schema.fields, *(t.Field(n, t.NullType()) for n in names))
        env = table._env
        selecting = Selecting(t.Schema(fields), env.functions, env.inline, table._type_of)
        args["on"] = selecting.node(expression(predicate, call))
    elif left:
        args["on"] = exp.Boolean(this=True)
    else:
        args["kind"] = "CROSS"
    return table._queried(call, exp.Select(expressions=[exp.Star()], joins=[exp.Join(this=function, **args)]))


def _result_names(table: Table, name: str) -> list[str]:
    user = table._env.functions.table(name)
    if user is None or not isinstance(user.result, t.RowType):
        return []
    return [f.name for f in user.result.fields]
