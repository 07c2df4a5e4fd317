"""``Configuration``: keys and values of a program, under Flink's names."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config import texts
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Configuration(Mapping[str, str]):
    """Configuration values by their keys. ``other``: values to begin with."""

    def __init__(self, other: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, str] = texts(other or {})

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """The values of ``map``."""
        return cls(map)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and other._values == self._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __str__(self) -> str:
        return str(self._values)

    __repr__ = __str__

    def set(self, key: str, value: Any) -> Configuration:
        """Set ``key`` to ``value``, which is written as text."""
        self._values.update(texts({key: value}))
        return self

    def set_string(self, key: str, value: str) -> Configuration:
        """Set ``key`` to ``value``."""
        return self.set(key, value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set ``key`` to ``value``."""
        return self.set(key, value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set ``key`` to ``value``."""
        return self.set(key, value)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set ``key`` to ``value``."""
        return self.set(key, float(value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set ``key`` to ``value``, written as hexadecimal digits."""
        return self.set(key, bytes(value).hex())

    def get_string(self, key: str, default_value: str) -> str:
        """The value of ``key``; ``default_value`` if it has none."""
        return self._values.get(key, default_value)

    def get_integer(self, key: str, default_value: int) -> int:
        """The value of ``key`` as a whole number; ``default_value`` if it has none."""
        return self._read(key, default_value, int, "a whole number")

    def get_float(self, key: str, default_value: float) -> float:
        """The value of ``key`` as a number; ``default_value`` if it has none."""
        return self._read(key, default_value, float, "a number")

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The value of ``key`` as a truth value; ``default_value`` if it has none."""
        return self._read(key, default_value, _truth, "true or false")

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The value of ``key`` as bytes; ``default_value`` if it has none."""
        return self._read(key, default_value, bytearray.fromhex, "hexadecimal digits")

    def _read(self, key: str, default: T, convert: Callable[[str], T], expected: str) -> T:
        if key not in self._values:
            return default
        try:
            return convert(self._values[key])
        except ValueError as err:
            where = f"configuration key '{key}'"
            raise SpecError(
                f"the value of '{key}' does not fit", expected=expected, got=self._values[key], where=where
            ) from err

    def key_set(self) -> builtins.set[str]:
        """The keys."""
        return builtins.set(self._values)

    def contains_key(self, key: str) -> bool:
        """Whether ``key`` has a value."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Forget the value of ``key``; whether there was one."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Mapping[str, Any], prefix: str | None = None) -> Configuration:
        """Set all values of ``other``; ``prefix``: text before each of its keys."""
        self._values.update({f"{prefix or ''}{key}": value for key, value in texts(other).items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        """Put all values into ``target_dict``."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Key → value."""
        return dict(self._values)

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """The parts of ``value`` between semicolons, of a list in square brackets between commas, or of the lines of a list of YAML;
        none of None."""
        text = (value or "").strip()
        if text.startswith("- "):
            return [line.strip().removeprefix("- ").strip().strip("'\"") for line in text.splitlines()]
        if text.startswith("[") and text.endswith("]"):
            return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
        return [part.strip() for part in text.split(";") if part.strip()]


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
