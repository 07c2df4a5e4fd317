"""Provides Penstock's modules under the names of another package, within one program.

A program that was written for another package (``from pyflink.common import Types``) runs unchanged: a
finder in front of ``sys.meta_path`` makes the modules of that package from Penstock's. Nothing is written
to disk, and no other process is affected. The function table of a job records that its program used such
modules, so that the slots and Spark's Python processes install them before they load a function of the
job.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from penstock.jobgraph.graph import FunctionArtifact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

#: The prefix of entries in the function table that are called before any function is loaded.
BEFORE = "before/"


class AliasedModules(MetaPathFinder, Loader):
    """The modules of one package.

    Args:
        root: The package's name.
        modules: Full name of each of its modules → Penstock's module with the names.
        installer: ``(module, function)`` that a slot calls to install the same modules.
    """

    def __init__(self, root: str, modules: Mapping[str, str], installer: tuple[str, str]) -> None:
        self.root = root
        self.modules = modules
        self.installer = installer

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``MetaPathFinder``. Raises ModuleNotFoundError for a module of the package that Penstock does
        not provide."""
        if fullname != self.root and not fullname.startswith(f"{self.root}."):
            return None
        if fullname not in self.modules:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: Penstock provides the package '{self.root}' in this program, "
                "and has no such module (docs/pyflink.md has the list)",
                name=fullname,
            )
        is_package = any(name.startswith(f"{fullname}.") for name in self.modules)
        return ModuleSpec(fullname, self, origin=self.modules[fullname], is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Lets ``module`` look its names up in Penstock's module when they are used."""
        ours = importlib.import_module(self.modules[module.__name__])
        module.__doc__ = ours.__doc__
        if hasattr(ours, "__all__"):
            module.__dict__["__all__"] = list(ours.__all__)

        def find(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            try:
                return getattr(ours, name)
            except AttributeError:
                raise AttributeError(
                    f"module '{module.__name__}' of Penstock has no attribute '{name}'"
                ) from None

        module.__dict__["__getattr__"] = find
        module.__dict__["__dir__"] = lambda: dir(ours)


def install(aliases: AliasedModules) -> None:
    """Makes the program's imports of the package find Penstock's modules, whatever is installed. A second
    call changes nothing."""
    if aliases not in sys.meta_path and _installed(aliases.root) is None:
        for name in [n for n in sys.modules if n == aliases.root or n.startswith(f"{aliases.root}.")]:
            del sys.modules[name]  # modules of an installed package with that name
        sys.meta_path.insert(0, aliases)


def uninstall(root: str) -> None:
    """Makes the package's own modules available again, if there are any."""
    found = _installed(root)
    if found is not None:
        sys.meta_path.remove(found)
        for name in [n for n in sys.modules if n == root or n.startswith(f"{root}.")]:
            del sys.modules[name]


def _installed(root: str) -> AliasedModules | None:
    return next((f for f in sys.meta_path if isinstance(f, AliasedModules) and f.root == root), None)


def entries() -> dict[str, FunctionArtifact]:
    """The entries for the function table of this program's jobs, by which a slot installs the modules that
    the program has imported."""
    used = [f for f in sys.meta_path if isinstance(f, AliasedModules) and f.root in sys.modules]
    return {
        f"{BEFORE}{f.root}": FunctionArtifact(module=f.installer[0], qualname=f.installer[1]) for f in used
    }
