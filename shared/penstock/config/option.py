"""One configuration option: its key, type, default and bounds, and whether it is a job's or the cluster's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from penstock.config.values import OneOf, parse_bool, parse_duration_ms
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


#: Whose option it is. Services read the cluster's options when they start. A job's option in a cluster's configuration
#: is the default of its jobs; an option of one job can be no default.
Scope = Literal["job", "one job", "cluster"]


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """One option. ``parse`` converts its text; ``doc`` is its text in docs/configuration.md. ``least`` and
    ``most``: the bounds of the converted value, inclusive; None: no bound."""

    key: str
    default: T
    parse: Callable[[str], T]
    doc: str
    scope: Scope = "job"
    least: T | None = None
    most: T | None = None

    def read(self, config: Mapping[str, Any]) -> T:
        """The converted value of the option, or its default. Raises SpecError, which names the key, if the
        text does not fit."""
        if self.key not in config:
            return self.default
        try:
            value = self.parse(config[self.key])
            self._check_bounds(value, config[self.key])
        except SpecError as err:
            err.where = f"configuration key '{self.key}'"
            default = self.shown(self.default)
            err.remedy = err.remedy or f"leave it out{f' for the default, {default}' if default else ''}"
            raise
        return value

    def _check_bounds(self, value: Any, text: Any) -> None:
        low, high = self.least is not None and value < self.least, self.most is not None and value > self.most
        if low or high:
            raise SpecError(
                "the value is too small" if low else "the value is too large",
                expected=self.bounds(),
                got=repr(text),
            )

    def bounds(self) -> str:
        """The allowed values as text; empty if the type alone decides."""
        if isinstance(self.parse, OneOf):
            return ", ".join(value for value in self.parse.values if value)
        if self.parse is parse_bool:
            return "true, false"
        if self.least is None:
            return ""
        least = self.shown(self.least)
        return f"{least} or more" if self.most is None else f"{least} to {self.shown(self.most)}"

    def shown(self, value: T) -> str:
        """The value as a user would write it."""
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value} ms" if self.parse is parse_duration_ms else str(value)


@dataclass(frozen=True)
class ConfigFamily:
    """All keys with ``prefix``. Penstock does not list them; the system that receives them knows them."""

    prefix: str
    doc: str
    scope: Scope = "job"


#: Key → option, for all options.
OPTIONS: dict[str, ConfigOption[Any]] = {}
#: All families. An option takes precedence over the family to which its key would belong (``spark.master``).
FAMILIES: list[ConfigFamily] = []


def define_family(prefix: str, doc: str, *, scope: Scope = "job") -> str:
    """Adds a family to ``FAMILIES``, and returns its prefix."""
    FAMILIES.append(ConfigFamily(prefix, doc, scope))
    return prefix


def define(
    key: str, default: T, parse: Callable[[str], T], doc: str,
    *, scope: Scope = "job", least: T | None = None, most: T | None = None,
) -> ConfigOption[T]:  # fmt: skip
    """Adds an option to ``OPTIONS``, and returns it. See ``ConfigOption`` for the arguments."""
    made = ConfigOption(key, default, parse, doc, scope, least, most)
    OPTIONS[key] = made
    return made
