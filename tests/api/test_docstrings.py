"""Every public name says what it takes and what it raises.

A public name is one that a package exports for users and for authors of plug-ins. Its docstring names each of
several parameters, or each of several fields, and each of our errors that the body itself raises. A method of a
port may point to the port instead (``See X``).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import msgspec
import pytest

from penstock import errors

#: Their ``__all__`` is public.
EXPORTING = (
    "penstock.api",
    "penstock.testing",
    "penstock.plan.api",
    "penstock.operators.api",
    "penstock.connectors.api",
    "penstock.formats.api",
    "penstock.providers",
    "penstock.spark",
    "penstock.types",
)
#: All of their own classes and functions are public.
WHOLE = ("penstock.errors", "penstock.sql.session", "penstock.state.descriptors", "penstock.api.aggregates")

OURS = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, errors.PenstockError)
}


def public() -> dict[str, Any]:
    """Classes and functions by the name under which users find them."""
    found: dict[str, Any] = {}
    for module in map(importlib.import_module, EXPORTING):
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    for module in map(importlib.import_module, WHOLE):
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        found |= {
            f"{module.__name__}.{name}": value
            for name, value in own.items()
            if getattr(value, "__module__", "") == module.__name__
        }
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("penstock.")
    }


def own_function(member: Any) -> Callable[..., Any] | None:
    """The function behind a method, a class method, a static method or a property."""
    if isinstance(member, property):
        member = member.fget
    member = getattr(member, "__func__", member)
    return inspect.unwrap(member) if inspect.isfunction(member) else None


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public methods that our classes define, not tests of a kit, with the constructor."""
    for base in cls.__mro__:
        for name, member in vars(base).items():
            function = own_function(member)
            if function is None or not base.__module__.startswith("penstock."):
                continue
            written = function.__qualname__.startswith(base.__qualname__ + ".") and name not in made(base)
            if written and (name == "__init__" or not name.startswith(("_", "test_"))):
                yield name, function


def made(cls: type) -> set[str]:
    """Methods that a decorator or a base class writes."""
    return {"__init__"} if is_dataclass(cls) or issubclass(cls, msgspec.Struct) else set()


def told(cls: type, name: str) -> str:
    """The docstrings of a method in a class and its bases; the constructor's is its class's."""
    if name == "__init__":
        return " ".join(base.__doc__ or "" for base in cls.__mro__ if base.__module__.startswith("penstock."))
    members = [own_function(vars(base)[name]) for base in cls.__mro__ if name in vars(base)]
    return " ".join(member.__doc__ or "" for member in members if member is not None)


def raised(function: Callable[..., Any]) -> set[str]:
    """Our errors that the body raises by name."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:  # written by a decorator
        return set()
    nodes = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    classes = [node.func if isinstance(node, ast.Call) else node for node in nodes]
    # ``raise SqlError(…)`` or ``raise errors.SqlError(…)``.
    return {getattr(node, "id", getattr(node, "attr", "")) for node in classes} & OURS.keys()


def lacking(function: Callable[..., Any], text: str) -> list[str]:
    """What the docstring does not say."""
    if not text.strip():
        return ["has no docstring"]
    if text.startswith("See ``"):
        return []
    words = set(re.findall(r"\w+", text))
    takes = [p for p in inspect.signature(function).parameters if p not in ("self", "cls") and p[0] != "_"]
    out = [f"does not name '{p}'" for p in takes if len(takes) > 1 and p not in words]
    for name in sorted(raised(function)):
        if not any(base.__name__ in words for base in OURS[name].__mro__):
            out.append(f"does not say that it raises {name}")
    return out


def fields_lacking(cls: type) -> list[str]:
    """Fields of a dataclass or struct that neither its docstring nor a comment ``#:`` names."""
    names = [name for name in vars(cls).get("__annotations__", {}) if not name.startswith("_")]
    if not made(cls) or len(names) < 2:
        return []
    source, words = inspect.getsource(cls), set(re.findall(r"\w+", cls.__doc__ or ""))
    commented = {name for name in names if re.search(rf"#:[^\n]*\n\s+{name}:", source)}
    return [f"does not name the field '{name}'" for name in names if name not in words | commented]


@pytest.mark.parametrize(("name", "value"), list(public().items()))
def test_its_docstring_says_what_it_takes_and_raises(name: str, value: Any) -> None:
    found: list[str] = []
    if inspect.isfunction(value):
        found = [f"{name} {what}" for what in lacking(value, value.__doc__ or "")]
    else:
        own = inspect.cleandoc(value.__doc__ or "")
        # A dataclass without a docstring gets its signature as one.
        if not own or own.startswith(f"{value.__name__}("):
            found.append(f"{name} has no docstring")
        found += [f"{name} {what}" for what in fields_lacking(value)]
        for method, function in methods(value):
            found += [f"{name}.{method} {what}" for what in lacking(function, told(value, method))]
    assert found == []


def test_the_check_sees_what_is_missing() -> None:
    def vague(first: int, second: int) -> int:
        """``first``."""
        raise errors.SpecError("no")

    assert lacking(vague, vague.__doc__ or "") == [
        "does not name 'second'",
        "does not say that it raises SpecError",
    ]
    assert lacking(vague, "") == ["has no docstring"]
