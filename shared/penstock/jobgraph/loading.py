"""Parts that are named as ``module:name`` and imported when they are first needed.

A node, a spec or a package of somebody else's says so which code plans it, runs it or translates it for
Spark, without importing the planner, the engine or Spark.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from penstock.errors import SpecError


@functools.cache
def loaded(path: str) -> Any:
    """What ``module:name`` names. SpecError when there is no such module or name."""
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
