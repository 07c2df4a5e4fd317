"""Module attributes that are imported on first use, and names that Penstock does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.jobgraph.loading import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


class Absent:
    """A name of PyFlink that Penstock does not have. A program may import it; using it fails.

    ``name``: the name in PyFlink.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> UnsupportedError:
        return UnsupportedError(
            f"PyFlink's {self._name} is not there",
            expected="the names that docs/pyflink.md lists",
            got=self._name,
            remedy="docs/pyflink-names.md says why, and what to use instead",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refuse()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise self._refuse()

    def __getitem__(self, item: Any) -> Absent:
        return self  # an annotation: Name[T]

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise self._refuse()


def finder(
    module: str, where: Mapping[str, tuple[str, ...]], absent: Collection[str]
) -> tuple[Callable[[str], Any], list[str]]:
    """Make a module's ``__getattr__`` and the list of its names.

    Args:
        module: The module's name.
        where: Module → names that it has; ``"name=other"``: the module has ``name`` as ``other``.
        absent: Names that are refused when they are used.
    """
    places = {}
    for place, names in where.items():
        for name in names:
            alias, _, ours = name.partition("=")
            places[alias] = f"{place}:{ours or alias}"

    def find(name: str) -> Any:
        if name in places:
            return loaded(places[name])
        if name in absent:
            return Absent(name)
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return find, sorted({*places, *absent})
