"""User functions as data: by name where they can be imported, else cloudpickle.

Modules that are not installed (the script itself and what lies beside it) are pickled by
value, so that a slot elsewhere needs none of the user's files.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from penstock.errors import FunctionError
from penstock.jobgraph import FunctionArtifact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


def make_artifact(function: Any, what: str) -> FunctionArtifact:
    """The artifact of a function or object. FunctionError when it cannot be pickled."""
    try:
        with _users_modules_by_value():
            return FunctionArtifact(data=cloudpickle.dumps(function))
    except Exception as err:
        raise FunctionError(
            f"{what} cannot be sent to the cluster: {type(err).__name__}: {err}",
            expected="a function whose closure and attributes can be pickled",
            got=repr(function)[:200],
            remedy="open connections, files and locks in open(), not in the constructor",
        ) from err


@contextlib.contextmanager
def _users_modules_by_value() -> Iterator[None]:
    registered: list[ModuleType] = []
    for name, module in list(sys.modules.items()):
        if name == "__main__" or not _is_users(module) or name != getattr(module, "__name__", None):
            continue
        try:
            cloudpickle.register_pickle_by_value(module)
        except ValueError:
            continue  # not importable under its name: pickled by value anyway
        registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(k)).resolve()) for k in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = str(Path(__file__).resolve().parents[1])


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file:
        return False
    path = str(Path(file).resolve())
    return not path.startswith((*_INSTALLED, _OURS))
