"""The rows of DESCRIBE FUNCTION."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SqlError, nearest
from penstock.functions.aggregates import is_aggregate, is_window_function, known_aggregates
from penstock.functions.registry import known_functions, lookup

if TYPE_CHECKING:
    from penstock.sql.functions import UserFunction, UserFunctions
    from penstock.sql.statements import Describe


def described_function(functions: UserFunctions, statement: Describe) -> tuple[tuple[str, str], ...]:
    """(info name, info value) of a function of the user or of Penstock, with Flink's names.

    Raises:
        SqlError: There is no such function.
    """
    name = statement.name
    own = functions.scalar(name) or functions.table(name) or functions.aggregate(name)
    if own is not None:
        rows = [("is system function", "false"), ("is temporary", "true"), ("function language", "PYTHON")]
        return tuple(rows + (_declared(own) if statement.extended else []))
    upper = name.upper()
    aggregate = is_aggregate(upper) or is_window_function(upper)
    if not aggregate and upper not in known_functions():
        known = {*functions.names(), *(f for f in known_functions() if f[0].isalpha()), *known_aggregates()}
        raise SqlError(
            f"unknown function '{name}'",
            expected="one that SHOW FUNCTIONS lists",
            got=repr(name),
            where=str(statement.position),
            remedy=nearest(upper, known) or "CREATE FUNCTION … LANGUAGE PYTHON declares one",
        )
    rows = [("is system function", "true"), ("is temporary", "false")]
    if statement.extended:
        steady = aggregate or lookup(upper).deterministic
        rows += [("kind", "AGGREGATE" if aggregate else "SCALAR"), ("is deterministic", str(steady).lower())]
    return tuple(rows)


def _declared(function: UserFunction) -> list[tuple[str, str]]:
    kind = ("ASYNC_" if function.asynchronous else "") + function.kind.upper()
    types = "*" if function.arguments is None else ", ".join(type_.sql() for type_ in function.arguments)
    return [
        ("kind", kind),
        ("signature", f"{function.name}({types}) => {function.result.sql()}"),
        ("per", function.per),
    ]
