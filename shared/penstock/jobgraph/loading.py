"""Names of the form ``module:name``, imported when they are first needed.

By such a name a node or a spec, also of another package, refers to the code that plans, runs or translates
it for Spark. The package itself then imports neither the planner, nor the engine, nor Spark.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from penstock.errors import SpecError


@functools.cache
def loaded(path: str) -> Any:
    """The object that ``module:name`` names. Raises SpecError if the module or the name does not exist."""
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        if err.name is None or not f"{module_name}.".startswith(f"{err.name}."):
            raise
        raise _missing(path, f"no module '{err.name}'") from err
    found = getattr(module, name, None)
    if found is None:
        raise _missing(path, f"'{module_name}' has no '{name}'")
    return found


def _missing(path: str, got: str) -> SpecError:
    return SpecError(
        f"a part of an operator is not there: {path}",
        expected="an importable 'module:name'",
        got=got,
        remedy="install the package that the operator comes from, on every task manager as well",
    )


class LoadedLater:
    """A class as an attribute of another class, imported on first use. Programs name it in annotations only.

    ``path``: ``module:name``.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, instance: object, owner: type) -> Any:
        return loaded(self._path)
