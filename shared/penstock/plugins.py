"""Names that packages provide: one door for what Penstock brings and for what others bring.

A register knows the names of one kind of thing (connectors, formats, …). A name comes from

- Penstock itself, which declares ``name → module:attribute`` as a package's entry point does,
- the entry points of an installed package (group ``penstock.connectors`` and so on),
- ``register`` in this process, or
- an import path, ``python:package.module:attribute``.

Nothing is imported before its name is used, so a package that fails at import fails only the jobs that
name it. A name that two packages provide is refused when it is used, and the error names both.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

#: How an import path begins where a name is expected.
IMPORT_PATH = "python:"
#: What the declarations of Penstock itself name as their package.
OWN_PACKAGE = "penstock"


@dataclass(frozen=True, slots=True)
class Provided:
    """One declaration. ``target``: ``module:attribute``; ``package``: name and version."""

    name: str
    target: str
    package: str

    def __str__(self) -> str:
        return f"{self.package} ({self.target})"


class Register(Generic[T]):
    """The names of one kind of thing.

    ``what``: the noun of error messages. ``group``: the entry point group. ``builtin``: Penstock's own
    declarations, name → ``module:attribute``. ``make``: the thing out of what the target names; raises
    ``TypeError``, with what was expected, when it is something else. ``error``: the class of errors.
    """

    def __init__(
        self,
        what: str,
        group: str,
        *,
        builtin: Mapping[str, str],
        make: Callable[[Any], T],
        expected: str,
        error: type[UserError],
    ) -> None:
        self.what = what
        self.group = group
        self._builtin = [Provided(name, target, OWN_PACKAGE) for name, target in builtin.items()]
        self._make = make
        self._expected = expected
        self._error = error
        #: Things that were made, by name or import path; those of ``register`` among them.
        self._made: dict[str, T] = {}
        self._registered: dict[str, Provided] = {}
        self._searched: tuple[str, ...] | None = None
        self._provided: dict[str, list[Provided]] = {}

    def names(self) -> list[str]:
        """All names, sorted; nothing is imported for it."""
        return sorted({*self._declarations(), *self._registered})

    def in_this_process(self) -> frozenset[str]:
        """The names that ``register`` added: other processes do not know them."""
        return frozenset(self._registered)

    def providers(self, name: str) -> list[Provided]:
        """Who declares the name: one, unless it is unknown (none) or taken twice."""
        found = list(self._declarations().get(name, ()))
        registered = self._registered.get(name)
        return found if registered is None else [*found, registered]

    def register(self, name: str, value: T) -> None:
        """Add a thing of this process under ``name``; another one of the same class takes its place."""
        kind = type(value)
        module, attribute = kind.__module__, kind.__qualname__
        target = f"{module}:{attribute}"
        for other in self.providers(name):
            if other.target != target:
                raise self._taken_twice(name, [other, Provided(name, target, _package_of(module))])
        self._registered[name] = Provided(name, target, _package_of(module))
        self._made[name] = value

    def find(self, name: str, *, where: str | None = None) -> T:
        """The thing of that name or import path; made once. Raises the register's error when the name
        is unknown or taken twice, or its package cannot be imported."""
        if name.startswith(IMPORT_PATH):
            if name not in self._made:
                self._made[name] = self._load(Provided(name, name.removeprefix(IMPORT_PATH), ""), where)
            return self._made[name]
        providers = self.providers(name)
        if not providers:
            known = self.names()
            raise self._error(
                f"unknown {self.what} '{name}'",
                expected="one of " + ", ".join(known),
                got=repr(name),
                where=where,
                remedy=nearest(name, known)
                or f"use one of the known ones, or install the package that provides it (entry point "
                f"'{self.group}') wherever jobs are planned and run",
            )
        if len(providers) > 1:
            raise self._taken_twice(name, providers, where)
        if name not in self._made:
            self._made[name] = self._load(providers[0], where)
        return self._made[name]

    # -- declarations -----------------------------------------------------------------------

    def _declarations(self) -> dict[str, list[Provided]]:
        """Name → who provides it; looked up anew when the import path has changed."""
        searched = tuple(sys.path)
        if searched != self._searched:
            found: dict[str, list[Provided]] = {}
            for item in (*self._builtin, *map(_provided, entry_points(group=self.group))):
                others = found.setdefault(item.name, [])
                if item not in others:
                    others.append(item)
            self._provided, self._searched = found, searched
        return self._provided

    def _load(self, provided: Provided, where: str | None) -> T:
        module, colon, attribute = provided.target.partition(":")
        subject = f"{self.what} '{provided.name}'"
        if provided.package:
            subject += f" of package {provided.package}"
        try:
            if not colon or not module or not attribute:
                raise ValueError(f"'{provided.target}' is not written module:attribute")
            value: Any = importlib.import_module(module)
            for part in attribute.split("."):
                value = getattr(value, part)
        except Exception as err:  # whatever a foreign module raises when it is imported
            raise self._error(
                f"{subject} cannot be imported",
                expected=self._expected,
                got=f"{type(err).__name__}: {err}",
                where=where,
                remedy="check the name, and that its module is installed or shipped with the job",
            ) from err
        try:
            return self._make(value)
        except TypeError as err:
            raise self._error(
                f"'{provided.name}' is no {self.what}",
                expected=self._expected,
                got=f"{provided.target}: {err}",
                where=where,
            ) from err

    def _taken_twice(self, name: str, providers: list[Provided], where: str | None = None) -> UserError:
        return self._error(
            f"the {self.what} '{name}' is provided twice",
            expected="one package that provides the name",
            got=" and ".join(map(str, providers)),
            where=where,
            remedy=f"uninstall one of the packages, or name the one you mean by its import path: "
            f"'{IMPORT_PATH}{providers[-1].target}'",
        )


def instance_of(port: type[Any]) -> Callable[[Any], Any]:
    """``Register.make`` for things of one class: the target is the class, or an instance of it."""

    def make(value: Any) -> Any:
        made = value() if isinstance(value, type) else value
        if not isinstance(made, port):
            raise TypeError(f"an object of type {type(made).__name__}")
        return made

    return make


def function(value: Any) -> Callable[..., Any]:
    """``Register.make`` for functions that open something."""
    if not callable(value):
        raise TypeError(f"an object of type {type(value).__name__}, which cannot be called")
    made: Callable[..., Any] = value
    return made


def _provided(point: EntryPoint) -> Provided:
    package = "an unnamed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    return Provided(point.name, point.value.replace(" ", ""), package)


def _package_of(module: str) -> str:
    return module.partition(".")[0]
