"""Declares functions of a program for queries: ``udf``, ``udtf`` and ``udaf``, with PyFlink's arguments.

A program calls a declared function with expressions, in ``select`` and the like, or registers it for SQL.
"""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any

from penstock.api import user_functions as api
from penstock.api.user_functions import AggregateFunction, ScalarFunction, TableFunction
from penstock.errors import SpecError, SpecValueError
from penstock.sql.functions import MARK
from penstock.table.expression import Expression
from penstock.table.expression_base import node_of
from penstock.table.functions_over import AsyncOverRows, OverRows, PandasAggregate, PandasScalar
from penstock.table.syntax import call
from penstock.table.table_aggregates import RowsOfGroup, TableAggregateFunction, check_emits, rows_type
from penstock.table.types import logical_type
from penstock.types import logical as t

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "ScalarFunction",
    "TableAggregateFunction",
    "TableFunction",
    "UserDefinedFunction",
    "udaf",
    "udf",
    "udtaf",
    "udtf",
]

#: The key in a call node's meta that holds the function object, until the table's environment names the
#: function.
MARKED = "function"


class AsyncScalarFunction(ScalarFunction):
    """The base of an asynchronous scalar function. A subclass defines ``async def eval(*args)``."""

    async def eval(self, *args: Any) -> Any:
        """The value for one row. Many rows are awaited at a time. ``args``: the arguments, None for NULL."""
        raise NotImplementedError


class UserDefinedFunction:
    """A function of a program as queries call it.

    Programs get it from ``udf``, ``udtf`` or ``udaf``. ``target`` is the object that these have marked.
    """

    def __init__(self, target: Any, kind: str, name: str | None) -> None:
        self.target = target
        self.kind = kind
        self.penstock_function = getattr(target, MARK)
        self.name = self._name = name or str(getattr(target, "__name__", type(target).__name__))
        self._deterministic = bool(self.penstock_function.get("deterministic", True))
        self._over_rows: UserDefinedFunction | None = None
        functools.update_wrapper(self, target, updated=())

    def __call__(self, *args: Any) -> Expression:
        """The call with these arguments, as an expression: columns, other expressions or Python values."""
        node = call(self.name, [node_of(arg) for arg in args])
        node.meta[MARKED] = self
        return Expression(node)

    def alias(self, *alias_names: str) -> Expression:
        """The call of the function with whole rows, and names for its columns:
        ``table.map(f.alias('a', 'b'))``."""
        made = self()
        made._node.meta["rows"] = True
        return made.alias(*alias_names)

    def over_rows(self) -> UserDefinedFunction:
        """The function that takes one argument: a row with the names of its columns."""
        if self.penstock_function["per"] == "batch":
            return self  # gets the rows of a batch as one array of structs, or as a DataFrame
        if self._over_rows is None:
            wrapped = OverRows(self.target)
            target = AsyncOverRows(self.target) if self.penstock_function["asynchronous"] else wrapped
            setattr(target, MARK, self.penstock_function)
            self._over_rows = UserDefinedFunction(target, self.kind, self.name)
        return self._over_rows

    def __deepcopy__(self, memo: dict[int, Any]) -> UserDefinedFunction:
        return self

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self.target,),)  # a slot needs the function alone


def declared_function(function: Any) -> Any:
    """The object that ``udf``, ``udtf`` or ``udaf`` has marked; an aggregate function that says its types is marked here."""
    if isinstance(function, UserDefinedFunction):
        return function.target
    bare = not hasattr(function, MARK)
    if bare and hasattr(function, "emit_value"):
        return udtaf(function).target
    return udaf(function).target if bare and hasattr(function, "get_result_type") else function


def _deterministic(function: Any, declared: bool | None) -> bool:
    """Whether ``function`` is deterministic: what is declared, else what its ``is_deterministic()`` says, else True."""
    own = getattr(function, "is_deterministic", None)
    says = True if own is None else bool(own())
    if declared is not None and own is not None and declared != says:
        raise SpecValueError(
            f"Inconsistent deterministic: {declared} and {says}",
            expected="deterministic=… and is_deterministic() that agree",
            got=type(function).__name__,
        )
    return says if declared is None else declared


def _types(declared: Any) -> Any:
    if declared is None:
        return None
    if isinstance(declared, (list, tuple)):
        return [logical_type(x) for x in declared]
    return logical_type(declared)


def _inputs(declared: Any) -> Any:
    types = _types(declared)
    return types if types is None or isinstance(types, list) else [types]


def _marked(target: Any) -> Any:
    """``target``, or a function that calls it, because a decorator cannot
    mark a bound method or a built-in."""
    if hasattr(target, "eval") or hasattr(target, "accumulate") or inspect.isfunction(target):
        return target
    if not callable(target):
        return target
    if inspect.iscoroutinefunction(target):

        async def awaited(*args: Any) -> Any:
            return await target(*args)

        return functools.update_wrapper(awaited, target) if hasattr(target, "__name__") else awaited

    def called(*args: Any) -> Any:
        return target(*args)

    return functools.update_wrapper(called, target) if hasattr(target, "__name__") else called


def _per(func_type: str | None, per: str) -> tuple[str, bool]:
    if func_type not in (None, "general", "pandas"):
        raise SpecValueError(
            "The func_type must be one of 'general, pandas'",
            expected="'general' or 'pandas'",
            got=repr(func_type),
        )
    return ("batch", True) if func_type == "pandas" else (per, False)


def udf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
    udf_type: str | None = None,
    *,
    per: str = "record",
) -> Any:
    """Declare a scalar function.

    Args:
        f: A callable, or a ``ScalarFunction`` class or object. None: ``udf`` is used as a decorator with arguments.
        input_types: Types of the arguments. None: the function takes arguments of any types.
        result_type: Type of the value. None: that of the annotation.
        deterministic: False: it may give another value for the same arguments, so that each place where it stands calls
            it anew. None: True.
        name: The function's name in plans. None: that of ``f``.
        func_type: ``general``, or ``pandas``: ``f`` takes and gives Series of a batch.
        udf_type: The old name of ``func_type``.
        per: ``record``, or ``batch``: ``f`` takes and gives Arrow arrays.

    Raises:
        SpecError: The result's type is not declared, or ``f`` is not a function.
    """
    if f is None:
        return functools.partial(
            udf, input_types=input_types, result_type=result_type, deterministic=deterministic, name=name,
            func_type=func_type, udf_type=udf_type, per=per,
        )  # fmt: skip
    if isinstance(f, UserDefinedFunction):
        return f
    per, pandas = _per(udf_type or func_type, per)
    readable = name or getattr(f, "__name__", type(f).__name__)
    target = _marked(f() if inspect.isclass(f) else f)
    if pandas:
        if inspect.iscoroutinefunction(getattr(target, "eval", target)):
            raise SpecValueError(
                "Async scalar functions do not support pandas func_type",
                expected="func_type='general', or a function without async",
                got=readable,
            )
        target = PandasScalar(target)
    options: Any = {
        "per": per,
        "deterministic": _deterministic(target, deterministic),
        "input_types": _inputs(input_types),
    }
    made = api.udf(target, result_type=_types(result_type), **options)
    return UserDefinedFunction(made, "scalar", readable)


def udtf(
    f: Any = None,
    input_types: Any = None,
    result_types: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    *,
    per: str = "record",
) -> Any:
    """Declare a table function, which gives any number of rows for each row.

    Args:
        f: A callable, or a ``TableFunction`` class or object. None: ``udtf`` is used as a decorator with arguments.
        input_types: As in ``udf``.
        result_types: Types of the columns: a list, one type, or a ROW whose fields name the columns.
        deterministic: As in ``udf``.
        name: As in ``udf``.
        per: As in ``penstock.api.udtf``.

    Raises:
        SpecError: As in ``udf``.
        UnsupportedError: As in ``udf``.
    """
    if f is None:
        return functools.partial(
            udtf, input_types=input_types, result_types=result_types, deterministic=deterministic, name=name, per=per
        )  # fmt: skip
    if isinstance(f, UserDefinedFunction):
        return f
    readable = name or getattr(f, "__name__", type(f).__name__)
    target = _marked(f() if inspect.isclass(f) else f)
    options: Any = {
        "per": per,
        "deterministic": _deterministic(target, deterministic),
        "input_types": _inputs(input_types),
    }
    made = api.udtf(target, result_types=_types(result_types), **options)
    return UserDefinedFunction(made, "table", readable)


def udaf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
    udf_type: str | None = None,
    *,
    per: str = "record",
) -> Any:
    """Declare an aggregate function.

    Args:
        f: An ``AggregateFunction`` class or object; with ``func_type='pandas'`` a function of Series. None: ``udaf``
            is used as a decorator with arguments.
        input_types: As in ``udf``.
        result_type: As in ``udf``. None: that of ``get_result_type()``.
        accumulator_type: Not used: an accumulator is any object that pickles.
        deterministic: As in ``udf``.
        name: As in ``udf``.
        func_type: ``general``, or ``pandas``: ``f`` takes the Series of a whole group and gives one value.
        udf_type: The old name of ``func_type``.
        per: ``record``, or ``batch``: ``accumulate`` gets Arrow arrays.

    Raises:
        SpecError: As in ``udf``.
        UnsupportedError: As in ``udf``, and for an async function.
    """
    if f is None:
        return functools.partial(
            udaf, input_types=input_types, result_type=result_type, accumulator_type=accumulator_type,
            deterministic=deterministic, name=name, func_type=func_type, udf_type=udf_type, per=per,
        )  # fmt: skip
    if isinstance(f, UserDefinedFunction):
        return f
    if isinstance(f, TableAggregateFunction):
        return udtaf(f)
    per, pandas = _per(udf_type or func_type, per)
    readable = name or getattr(f, "__name__", type(f).__name__)
    target = f() if inspect.isclass(f) else f
    if pandas:
        target = PandasAggregate(getattr(target, "eval", target))
    if result_type is None and hasattr(target, "get_result_type"):
        result_type = target.get_result_type()
    options: Any = {
        "per": per,
        "deterministic": _deterministic(target, deterministic),
        "input_types": _inputs(input_types),
    }
    made = api.udaf(target, result_type=_types(result_type), **options)
    return UserDefinedFunction(made, "aggregate", readable)


def udtaf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Any:
    """Declare a table aggregate function, which gives any number of rows for a group.

    Args:
        f: A ``TableAggregateFunction`` class or object. None: ``udtaf`` is used as a decorator with arguments.
        input_types: As in ``udf``.
        result_type: Type of the rows: a ROW, whose fields name the columns, or the type of the only column. None:
            that of ``get_result_type()``.
        accumulator_type: Not used: an accumulator is any object that pickles.
        deterministic: As in ``udf``.
        name: As in ``udf``.

    Raises:
        SpecError: The type is not declared, or ``f`` has no ``emit_value``.
        UnsupportedError: As in ``udf``.
    """
    if f is None:
        return functools.partial(
            udtaf, input_types=input_types, result_type=result_type, accumulator_type=accumulator_type,
            deterministic=deterministic, name=name,
        )  # fmt: skip
    if isinstance(f, UserDefinedFunction):
        return f
    readable = name or getattr(f, "__name__", type(f).__name__)
    function = f() if inspect.isclass(f) else f
    check_emits(function)
    if result_type is None and hasattr(function, "get_result_type"):
        result_type = function.get_result_type()
    if result_type is None:
        raise SpecError(
            f"udtaf: the rows of '{readable}' are not declared",
            expected="result_type=…, or get_result_type()",
        )
    declared = rows_type(_types(result_type))
    target = RowsOfGroup(function, one=not isinstance(declared.element, t.RowType))
    options: Any = {
        "deterministic": _deterministic(target, deterministic),
        "input_types": _inputs(input_types),
    }
    made = api.udaf(target, result_type=declared, **options)
    return UserDefinedFunction(made, "table_aggregate", readable)
