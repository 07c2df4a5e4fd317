"""User functions as data: by name if a slot can import them, otherwise as cloudpickle.

Modules that are not installed (the script itself and the modules beside it) are pickled by value, so that
a slot on another machine needs none of the user's files. Shipped folders and zips are on ``sys.path`` of
every slot, so their modules are referred to by name. A copy by value as well would make two classes of one
name, and instances of one would not be instances of the other.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from penstock.errors import FunctionError
from penstock.installed import is_installed
from penstock.jobgraph import CLASSES, FunctionArtifact, module_aliases
from penstock.types import pickling, user_classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import ModuleType

    from penstock.types.pickling import ClassName


def make_artifact(function: Any, what: str) -> FunctionArtifact:
    """The artifact of a function or object. ``what`` names it in errors. Raises FunctionError if it cannot be
    pickled."""
    try:
        data, found = _by_value(function)
    except Exception as err:
        raise FunctionError(
            f"{what} cannot be sent to the cluster: {type(err).__name__}: {err}",
            expected="a function whose closure and attributes can be pickled",
            got=repr(function)[:200],
            remedy="open connections, files and locks in open(), not in the constructor",
        ) from err
    return FunctionArtifact(data=data, classes=pickling.names_of(found))


def classes_in(values: Any) -> tuple[ClassName, ...]:
    """(module, qualified name) of the program's own classes that occur in ``values``. Raises FunctionError if
    the values cannot be pickled."""
    try:
        return pickling.names_of(_by_value(values)[1])
    except Exception as err:
        raise FunctionError(
            f"a record cannot be sent to the cluster: {type(err).__name__}: {err}",
            expected="records that can be pickled",
            got=repr(values)[:200],
            remedy="leave connections, files, locks and generators out of records",
        ) from err


def with_classes(
    functions: Mapping[str, FunctionArtifact], more: Iterable[ClassName] = ()
) -> dict[str, FunctionArtifact]:
    """``functions`` with further entries: ``CLASSES``, the definitions of all classes that the entries and
    ``more`` name, and those that provide the modules that the program has under other names.

    Without such classes and modules the table is returned as it is. Raises FunctionError if a class cannot be
    pickled.
    """
    functions = {**functions, **module_aliases.entries()}
    names = dict.fromkeys([*(name for a in functions.values() for name in a.classes), *more])
    found = {name: cls for name in names if (cls := pickling.classes.find(name)) is not None}
    if not found:
        return functions
    while True:
        artifact = make_artifact(found, "a class of the program")
        # Classes that only these classes refer to: their bases, and classes that their methods use.
        further = {n: pickling.classes.find(n) for n in artifact.classes if n not in found}
        if not further:
            return {**functions, CLASSES: artifact}
        found |= {name: cls for name, cls in further.items() if cls is not None}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Records the classes that are pickled by value."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self.found: dict[type, None] = {}

    def reducer_override(self, obj: Any) -> Any:
        out = super().reducer_override(obj)
        # ``isinstance(obj, type)`` would also be true of ``list[int]``. A reduction of two parts is that of a
        # class of Python itself, such as ``type(None)``, which is pickled by name.
        if not issubclass(type(obj), type) or out is NotImplemented or len(out) == 2:
            return out
        self.found[obj] = None
        return user_classes.reduced(obj) or out


def _by_value(value: Any) -> tuple[bytes, tuple[type, ...]]:
    """(pickled value, the program's own classes in it)."""
    out = io.BytesIO()
    pickler = _Pickler(out)
    with _users_modules_by_value():
        pickler.dump(value)
    return out.getvalue(), tuple(pickler.found)


@contextlib.contextmanager
def _users_modules_by_value() -> Iterator[None]:
    registered: list[ModuleType] = []
    for name, module in sys.modules.copy().items():  # a copy is one step, also where another thread imports
        if name == "__main__" or not _is_users(module) or name != getattr(module, "__name__", None):
            continue
        try:
            cloudpickle.register_pickle_by_value(module)
        except ValueError:
            continue  # it cannot be imported by its name, so cloudpickle pickles it by value anyway
        registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and not _is_shipped(str(file)) and not is_installed(str(file))


#: Folders and zips that every slot has on its ``sys.path``.
_shipped: list[Path] = []


def ship(path: str) -> None:
    """Marks a folder or zip as shipped: slots import its modules from the same path."""
    _shipped.extend(dict.fromkeys([Path(path).absolute(), Path(path).resolve()]))


def shipped_entry(file_path: str) -> str:
    """Ships ``file_path`` and returns the entry of ``sys.path`` for it: a folder or zip itself, a module's folder."""
    entry = str(Path(file_path).absolute().parent) if file_path.endswith(".py") else file_path
    ship(entry)
    return entry


@contextlib.contextmanager
def shipping(paths: Iterable[str]) -> Iterator[None]:
    """Ships all of ``paths`` for the duration of a ``with`` block."""
    before = list(_shipped)
    for path in paths:
        ship(path)
    try:
        yield
    finally:
        _shipped[:] = before


def _is_shipped(file: str) -> bool:
    if not _shipped:
        return False
    path = Path(file).absolute()
    return any(path.is_relative_to(folder) for folder in _shipped)
