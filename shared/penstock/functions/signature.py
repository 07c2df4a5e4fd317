"""Definitions of functions in the registry, and how a module of functions declares one.

``resolve`` runs while planning: argument expressions → types to cast them to, and the result type. ``bind``
runs once when an expression is compiled: ``Call`` → kernel. ``form`` replaces ``bind`` for functions that
evaluate an argument on some rows only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import SqlError
from penstock.functions.expr import Literal
from penstock.functions.vector import Scalar, column_from_storage, is_null, merge_valid, storage_values
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call, Expr
    from penstock.functions.vector import Vector

FUNCTIONS: dict[str, FunctionDef] = {}
STRING = t.VarCharType()


@dataclass(frozen=True, slots=True)
class FunctionDef:
    """A function of the registry.

    ``fails``: it may raise for some values, so it runs only on the rows that need it. ``costly``: running it on
    fewer rows saves time. A function that is not ``deterministic`` is neither folded to a constant nor shared.
    """

    name: str
    resolve: Callable[[Resolution], tuple[Sequence[t.LogicalType], t.LogicalType]]
    bind: Callable[[Call], Any] | None = None
    form: Callable[..., Any] | None = None
    fails: bool | Callable[[Call], bool] = False
    costly: bool = False
    deterministic: bool = True
    #: (name, arguments) → the comparisons that the call means, by connective; None if it stays as it is.
    apart: Callable[[str, Sequence[Expr]], list[tuple[str, list[tuple[str, Expr, Expr]]]] | None] | None = (
        None
    )


@dataclass(slots=True)
class Resolution:
    """A call whose types are being resolved."""

    name: str
    args: Sequence[Expr]
    type: t.LogicalType | None = None
    zone: str = "UTC"
    line: int = 0
    column: int = 0
    within: str = ""
    #: Literals to append to the arguments (the session time zone).
    extra: list[Expr] = field(default_factory=list)

    @property
    def types(self) -> list[t.LogicalType]:
        """The types of the arguments."""
        return [a.type for a in self.args]

    @property
    def any_nullable(self) -> bool:
        """Whether any argument is nullable."""
        return any(a.type.nullable for a in self.args)

    @property
    def where(self) -> str | None:
        """The position of the call in the SQL text; None if unknown."""
        return f"line {self.line}, column {self.column}" if self.line else None

    def fail(self, expected: str, message: str | None = None) -> NoReturn:
        """Raise SqlError: the call does not have the ``expected`` form."""
        got = f"{self.name}({', '.join(str(x) for x in self.types)})"
        raise SqlError(
            message or f"cannot apply {self.name} to these arguments",
            expected=expected,
            got=got,
            where=self.where,
        )

    def constant(self, index: int, what: str) -> Any:
        """The value of argument ``index``. Raises SqlError if it is no literal; ``what`` is its meaning."""
        arg = self.args[index]
        if not isinstance(arg, Literal):
            self.fail(f"argument {index + 1} ({what}) to be a literal")
        return arg.value

    def count(self, low: int, high: int | None = None) -> None:
        """Raise SqlError unless the number of arguments is ``low``, or from ``low`` to ``high``."""
        n, high = len(self.args), low if high is None else high
        if not low <= n <= high:
            wanted = str(low) if low == high else f"{low} to {high}"
            noun = "argument" if wanted == "1" else "arguments"
            self.fail(f"{wanted} {noun}", f"wrong number of arguments to {self.name}: {n}")


# -- parameters: what is accepted, and what it is cast to --------------------------


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter. ``accept(type)`` gives the type to which an argument is cast; None if it does not fit."""

    label: str
    accept: Callable[[t.LogicalType], t.LogicalType | None]


def _kinds(label: str, kinds: tuple[type, ...], null: t.LogicalType) -> Param:
    def accept(type_: t.LogicalType) -> t.LogicalType | None:
        if isinstance(type_, t.NullType):
            return null
        return type_ if isinstance(type_, kinds) else None

    return Param(label, accept)


def _to(label: str, kinds: tuple[type, ...], target: t.LogicalType) -> Param:
    def accept(type_: t.LogicalType) -> t.LogicalType | None:
        return target if isinstance(type_, (*kinds, t.NullType)) else None

    return Param(label, accept)


NUMERICS = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
STR = _kinds("a string", t.STRINGS, STRING)
BIN = _kinds("a binary string", t.BINARIES, t.VarBinaryType())
BOOL = _kinds("a boolean", (t.BooleanType,), t.BooleanType())
NUM = _kinds("a number", NUMERICS, t.IntType())
INTEGER = _kinds("an integer", t.INTEGERS, t.IntType())
ARRAY = _kinds("an array", (t.ArrayType,), t.ArrayType(t.NullType()))
MAP = _kinds("a map", (t.MapType,), t.MapType(t.NullType(), t.NullType()))
STR_OR_BIN = _kinds("a string or binary string", (*t.STRINGS, *t.BINARIES), STRING)
AS_INT = _to("an integer", t.INTEGERS, t.IntType())
AS_BIGINT = _to("an integer", t.INTEGERS, t.BigIntType())
AS_DOUBLE = _to("a number", NUMERICS, t.DoubleType())
ANY = Param("any value", lambda type_: type_)


def resolver(
    params: Sequence[Param],
    result: t.LogicalType | Callable[[list[t.LogicalType]], t.LogicalType],
    *,
    optional: int = 0,
    variadic: Param | None = None,
    nullable: bool | None = None,
) -> Callable[[Resolution], tuple[list[t.LogicalType], t.LogicalType]]:
    """The usual resolution: each argument must fit its parameter.

    The result is nullable if an argument is (``nullable`` None), always (True) or never (False).
    """

    def resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        n = len(call.args)
        if n < len(params) - optional or (variadic is None and n > len(params)):
            call.count(len(params) - optional, len(params) if variadic is None else 255)
        targets = []
        for i, type_ in enumerate(call.types):
            param = params[i] if i < len(params) else variadic
            target = param.accept(type_)  # type: ignore[union-attr]
            if target is None:
                labels = [p.label for p in params] + ([f"{variadic.label} …"] if variadic else [])
                call.fail(f"{call.name}({', '.join(labels)})")
            targets.append(target.with_nullable(type_.nullable))
        out = result(targets) if callable(result) else result
        return targets, out.with_nullable(call.any_nullable if nullable is None else nullable)

    return resolve


# -- kernels -----------------------------------------------------------------------


def strict(call: Call, kernel: Callable[..., Any]) -> Any:
    """A kernel with NULL in, NULL out: ``kernel(*values)`` receives arrays or scalars and returns an array."""
    type_ = call.type
    fixed = numpy_dtype(type_) is not None

    def run(args: Sequence[Vector], n: int) -> Vector:
        for arg in args:
            if is_null(arg):
                return Scalar(type_, None)
        out = kernel(*[a.values for a in args])
        if not fixed or not hasattr(out, "dtype"):
            return Column.from_arrow(type_, out)
        return Column(type_, out, merge_valid(args))

    return run


def strict_first(call: Call, kernel: Callable[[Any], Any]) -> Any:
    """``strict`` for the first argument only; the kernel has the others as constants."""
    inner = strict(call, kernel)
    return lambda args, n: inner(args[:1], n)


def rowwise(call: Call, function: Callable[..., Any], *, nulls: bool = False) -> Any:
    """A kernel that calls ``function(*values)`` per row on storage values; None = NULL.

    Rows with a NULL argument give NULL without a call, unless ``nulls``.
    """
    type_ = call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        columns = [storage_values(a, n) for a in args]
        if nulls:
            out = [function(*row) for row in zip(*columns, strict=True)] if args else [function()] * n
        else:
            out = [None if None in row else function(*row) for row in _rows(columns, n)]
        return column_from_storage(type_, out)

    return run


def _rows(columns: list[Any], n: int) -> Any:
    # ``None in row`` compares with ``==``; storage values never raise on that.
    return zip(*columns, strict=False) if columns else [()] * n


def define(
    name: str,
    params: Sequence[Param],
    result: t.LogicalType | Callable[[list[t.LogicalType]], t.LogicalType],
    bind: Callable[[Call], Any],
    *,
    optional: int = 0,
    variadic: Param | None = None,
    nullable: bool | None = None,
    fails: bool | Callable[[Call], bool] = False,
    costly: bool = False,
    deterministic: bool = True,
) -> None:
    """Register a function of the usual kind."""
    resolve = resolver(params, result, optional=optional, variadic=variadic, nullable=nullable)
    register(FunctionDef(name, resolve, bind, fails=fails, costly=costly, deterministic=deterministic))


def define_values(name: str, params: Sequence[Param], result: Any, kernel: Any, **options: Any) -> None:
    """Register a strict vectorised function: ``kernel(*values) -> array``."""
    define(name, params, result, lambda call: strict(call, kernel), **options)


def define_rows(name: str, params: Sequence[Param], result: Any, function: Any, **options: Any) -> None:
    """Register a strict function of Python storage values, called row by row."""
    options.setdefault("costly", True)
    define(name, params, result, lambda call: rowwise(call, function), **options)


def register(definition: FunctionDef) -> None:
    """Add a function to the registry."""
    FUNCTIONS[definition.name] = definition


def alias(name: str, of: str) -> None:
    """Give the function ``of`` another name; calls have the canonical name."""
    FUNCTIONS[name] = FUNCTIONS[of]


def literal_value(call: Call, index: int) -> Any:
    """The value of a literal argument; None if it is no literal, or absent."""
    if index < len(call.args):
        arg = call.args[index]
        if isinstance(arg, Literal):
            return arg.value
    return None
