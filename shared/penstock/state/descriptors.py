"""State descriptors: name, type, time to live. Flink's names.

Types are given as ``Types.LONG()`` … (a ``LogicalType``). ``penstock.api`` exports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.annotations import as_type
from penstock.errors import SpecError
from penstock.state.ttl_config import StateTtlConfig, UpdateType
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = [
    "AggregatingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateTtlConfig",
    "UpdateType",
    "ValueStateDescriptor",
]


class StateDescriptor:
    """Declares a state of a function.

    ``name`` is unique in the operator; ``type_`` is the type of the value, ``Types.…()``. SpecError without a type.
    """

    kind = ""

    def __init__(self, name: str, type_: t.LogicalType) -> None:
        found = as_type(type_)
        if found is None:
            raise SpecError(
                f"state '{name}' has no type",
                expected="a declared type, e.g. Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()",
                got=repr(type_),
            )
        self.name = name
        self.type = found
        self.ttl: StateTtlConfig | None = None
        #: Former names of the state.
        self.former_names: tuple[str, ...] = ()
        #: Field of a row type → its former name.
        self.former_fields: dict[str, str] = {}

    @property
    def state_name(self) -> str:
        """The name in snapshots: ``value/count``."""
        return f"{self.kind}/{self.name}"

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names in snapshots from which the state is restored, the present one first."""
        return tuple(f"{self.kind}/{name}" for name in (self.name, *self.former_names))

    def renamed_from(self, *names: str) -> Self:
        """The state has one of ``names`` in older savepoints."""
        self.former_names = names
        return self

    def renamed_fields(self, fields: Mapping[str, str]) -> Self:
        """Fields of a row type that had other names in a savepoint. ``fields``: present name → former name.

        Raises:
            SpecError: A present name is no field.
        """
        rows = self.type.element if isinstance(self.type, t.ArrayType) else self.type
        known = {f.name for f in rows.fields} if isinstance(rows, t.RowType) else set()
        for name in fields:
            if name not in known:
                raise SpecError(
                    f"state '{self.name}' has no field '{name}' that could be a renamed one",
                    expected=", ".join(sorted(known)) or "a row type",
                    got=str(self.type),
                    remedy="renamed_fields({present name: former name})",
                )
        self.former_fields = dict(fields)
        return self

    @property
    def stored_type(self) -> t.LogicalType:
        """Type of the one live value of a key."""
        return self.type

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire by ``ttl_config``."""
        self.ttl = ttl_config if ttl_config.is_enabled() else None

    def get_name(self) -> str:
        """The state's name."""
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class ValueStateDescriptor(StateDescriptor):
    """One value for each key; ``value_type_info`` is its type."""

    kind = "value"

    def __init__(self, name: str, value_type_info: t.LogicalType) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """A list for each key; ``elem_type_info`` is the type of an element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: t.LogicalType) -> None:
        super().__init__(name, elem_type_info)

    @property
    def stored_type(self) -> t.LogicalType:
        return t.ArrayType(self.type)


class MapStateDescriptor(StateDescriptor):
    """A map for each key.

    ``name`` is unique in the operator; ``key_type_info`` and ``value_type_info`` are the types of an entry. SpecError
    without types.
    """

    kind = "map"

    def __init__(self, name: str, key_type_info: t.LogicalType, value_type_info: t.LogicalType) -> None:
        super().__init__(name, value_type_info)
        key_type = as_type(key_type_info)
        if key_type is None:
            raise SpecError(f"map state '{name}' has no key type", expected="e.g. Types.STRING()")
        self.key_type = key_type

    @property
    def stored_type(self) -> t.LogicalType:
        return t.MapType(self.key_type, self.type)


class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, combined from all values added to it.

    ``name`` is unique in the operator; ``reduce_function(a, b)`` is a function, or an object with a ``reduce`` method;
    ``type_info`` is the type of a value.
    """

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: t.LogicalType) -> None:
        super().__init__(name, type_info)
        self.reduce: Callable[[Any, Any], Any] = getattr(reduce_function, "reduce", reduce_function)

    def get_reduce_function(self) -> Any:
        """The function that combines two values."""
        return self.reduce


class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator for each key.

    ``name`` is unique in the operator; ``agg_function`` is an ``AggregateFunction``; ``state_type_info`` is the
    accumulator's type.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: t.LogicalType) -> None:
        super().__init__(name, state_type_info)
        self.aggregate = agg_function

    def get_agg_function(self) -> Any:
        """The ``AggregateFunction``."""
        return self.aggregate
