"""Sources that are functions of the program: ``add_source(function)`` and ``from_source(function)``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from penstock.api.transformations import Compiler, Transformation, transform
from penstock.api.typeinfo import annotated_type, schema_of
from penstock.columnar.annotations import as_type
from penstock.errors import SpecError
from penstock.jobgraph.specs import FunctionSourceSpec
from penstock.operators.operator_state import part_with_state
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.types.logical import Schema


def function_source(function: Any, name: str, type_info: Any, bounded: bool) -> Transformation:
    """The step of a source.

    Args:
        function: A callable that gives an iterable, or an object with such a method ``run``.
        name: The source's name.
        type_info: Type of a record; None: what the function's annotation says, else pickled values.
        bounded: Whether the function comes to an end.

    Raises:
        SpecError: ``function`` is no such callable, or ``type_info`` is no type.
    """
    call = getattr(function, "run", function)
    if inspect.isgenerator(function) or not callable(call):
        raise SpecError(
            "no source",
            expected="Source.connector(…), a generator function, or a callable that gives an iterable",
            got=repr(function),
            remedy="give the function itself, without calling it; for values that are there, use from_collection",
        )
    if inspect.isasyncgenfunction(call) or inspect.iscoroutinefunction(call):
        raise SpecError(
            "an async function as a source",
            expected="a plain generator function, which may block: it has a thread of its own",
            got="async def",
        )
    if part_with_state(function) is not None:
        raise SpecError(
            "a source with operator state",
            expected="a source function with one argument, its position",
            got=type(function).__name__,
        )
    schema = _schema(function, type_info)
    positions = _takes_position(call)

    def spec(step: Transformation, compiler: Compiler) -> FunctionSourceSpec:
        return FunctionSourceSpec(
            function=compiler.function(function, "source"), bounded=bounded, positions=positions
        )

    return transform(spec, (), schema, name, alone=True, takes_uid=True)


def _schema(function: Any, type_info: Any) -> Schema:
    if type_info is not None:
        found = as_type(type_info)
        if found is None:
            raise SpecError(
                "type_info is no type", expected="Types.…, or a class with fields", got=repr(type_info)
            )
        return schema_of(found)
    return schema_of(annotated_type(function, "flat_map") or t.RawType())


def _takes_position(call: Any) -> bool:
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise SpecError(
            "a source function with several arguments",
            expected="none, or one: the position behind which it begins (None at first)",
            got=", ".join(p.name for p in needed),
        )
    return len(needed) == 1
