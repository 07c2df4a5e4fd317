"""User functions known to a session: what SQL may call and what the job ships."""

from __future__ import annotations

import importlib
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import SqlError, nearest
from penstock.jobgraph.graph import FunctionArtifact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.types.logical import LogicalType, RowType

FunctionKind = Literal["scalar", "table", "aggregate"]


@dataclass(frozen=True, slots=True)
class UserFunction:
    """``arguments``: declared types, or None = whatever is given. ``result``: the value's
    type; for a table function a ROW of its columns."""

    name: str
    kind: FunctionKind
    result: LogicalType | RowType
    artifact: FunctionArtifact
    arguments: tuple[LogicalType, ...] | None = None
    per: Literal["record", "batch"] = "record"


class UserFunctions:
    """Functions by name, case-insensitively as in Flink."""

    def __init__(self) -> None:
        self._by_name: dict[str, UserFunction] = {}

    def add(self, function: UserFunction) -> None:
        self._by_name[function.name.lower()] = function

    def remove(self, name: str) -> bool:
        return self._by_name.pop(name.lower(), None) is not None

    def names(self) -> list[str]:
        return sorted(f.name for f in self._by_name.values())

    def scalar(self, name: str) -> UserFunction | None:
        return self._of_kind(name, "scalar")

    def table(self, name: str) -> UserFunction | None:
        return self._of_kind(name, "table")

    def aggregate(self, name: str) -> UserFunction | None:
        return self._of_kind(name, "aggregate")

    def has(self, name: str) -> bool:
        return name.lower() in self._by_name

    def artifacts(self, names: Sequence[str]) -> dict[str, FunctionArtifact]:
        return {f.name: f.artifact for f in self._by_name.values() if f.name in names}

    def _of_kind(self, name: str, kind: FunctionKind) -> UserFunction | None:
        found = self._by_name.get(name.lower())
        return found if found is not None and found.kind == kind else None


def load_function(name: str, target: str, *, where: str) -> UserFunction:
    """``module.attribute`` → a function declared with Penstock's decorators, which give it
    ``penstock_function`` = {kind, arguments, result, per}."""
    module_name, _, attribute = target.rpartition(".")
    if not module_name:
        raise SqlError(
            "a Python function is named 'module.function'",
            got=repr(target),
            expected="a dotted name",
            where=where,
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as err:
        raise SqlError(
            f"module '{module_name}' cannot be imported: {err}",
            expected="an importable module",
            got=repr(target),
            where=where,
            remedy="give the file with -py, or put its folder on PYTHONPATH",
        ) from None
    if not hasattr(module, attribute):
        raise SqlError(
            f"module '{module_name}' has no '{attribute}'",
            got=repr(target),
            where=where,
            remedy=nearest(attribute, dir(module)),
        )
    value: Any = getattr(module, attribute)
    declared = getattr(value, "penstock_function", None)
    if declared is None:
        raise SqlError(
            f"'{target}' does not say what it takes and gives",
            expected="a function decorated with @udf, @udtf or @udaf (result_type=…)",
            got=type(value).__name__,
            where=where,
        )
    return UserFunction(
        name=name,
        kind=declared.get("kind", "scalar"),
        result=declared["result"],
        artifact=FunctionArtifact(module=module_name, qualname=attribute),
        arguments=tuple(declared["arguments"]) if declared.get("arguments") is not None else None,
        per=declared.get("per", "record"),
    )


def register_module(functions: UserFunctions, path: Path) -> list[str]:
    """Add every decorated function of a module file, under its own name; which. Its folder
    goes to the front of ``sys.path``. SqlError when it cannot be imported or has none."""
    folder, module_name = str(path.absolute().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not path.exists():
        raise SqlError("the module is not there", expected="a Python file", where=str(path))
    try:
        module = importlib.import_module(module_name)
    except Exception as err:
        raise SqlError(
            f"the module cannot be imported: {type(err).__name__}: {err}",
            where=str(path),
            user_traceback=traceback.format_exc(),
        ) from err
    names = [name for name, value in vars(module).items() if hasattr(value, "penstock_function")]
    if not names:
        raise SqlError(
            "the module declares no function",
            expected="functions decorated with @udf, @udtf or @udaf",
            where=str(path),
        )
    for name in names:
        functions.add(load_function(name, f"{module_name}.{name}", where=str(path)))
    return names
