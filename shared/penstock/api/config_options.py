"""``ConfigOptions``: names of options with the types and defaults of their values, under Flink's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import SpecError


@dataclass(frozen=True)
class ConfigOption:
    """The option ``key``. ``default``: its value where none is set; None: none. As text it is its key."""

    key: str
    default: Any = None

    def __str__(self) -> str:
        return self.key


class ConfigOptions:
    """``ConfigOptions.key("sink.parallelism").int_type().no_default_value()`` makes a ``ConfigOption``."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """A builder of the option ``key``."""
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Chooses the type of the option ``key``."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """True or False."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """A whole number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """A whole number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """A number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """A number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder:
            """A text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, str)

    class TypedConfigOptionBuilder:
        """Says whether the option ``key``, whose values are of ``kind``, has a default."""

        def __init__(self, key: str, kind: type) -> None:
            self._key, self._kind = key, kind

        def default_value(self, value: Any) -> ConfigOption:
            """The option, with the default ``value``.

            Raises:
                SpecError: It is of another type.
            """
            fits = isinstance(value, (int, float) if self._kind is float else self._kind)
            if not fits or (isinstance(value, bool) and self._kind is not bool):
                raise SpecError(
                    f"the default of '{self._key}' does not fit",
                    expected=self._kind.__name__,
                    got=repr(value),
                )
            return ConfigOption(self._key, value)

        def no_default_value(self) -> ConfigOption:
            """The option, without a default."""
            return ConfigOption(self._key)
