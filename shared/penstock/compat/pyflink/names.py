"""Names of a module that are imported when they are asked for, and those that Penstock has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock.jobgraph.loading import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Absent:
    """A name of PyFlink that Penstock has not. A program may import it; using it fails.

    Args:
        name: The name, as PyFlink has it.
        reason: Why it is not there, as a sentence without its full stop.
        remedy: What to do instead.
    """

    def __init__(self, name: str, reason: str, remedy: str) -> None:
        self._error = (name, reason, remedy)

    def _refuse(self) -> UnsupportedError:
        name, reason, remedy = self._error
        return UnsupportedError(
            f"PyFlink's {name}: {reason}", expected="what docs/pyflink.md lists", remedy=remedy
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._refuse()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise self._refuse()


def finder(
    module: str, where: Mapping[str, tuple[str, ...]], absent: Mapping[str, tuple[str, str]]
) -> tuple[Callable[[str], Any], list[str]]:
    """A module's ``__getattr__`` and its names.

    Args:
        module: The module's name.
        where: Module → names that it has; ``"name=other"``: it has ``name`` under the name ``other``.
        absent: Name → (reason, remedy).
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
            return Absent(name, *absent[name])
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return find, sorted({*places, *absent})
