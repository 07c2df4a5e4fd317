"""State descriptors: name, type, time to live. Flink's names.

Types are given as ``Types.LONG()`` … (a ``LogicalType``). ``penstock.api`` exports them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self


class UpdateType(enum.Enum):
    """When the clock of a value starts anew."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of state, in processing time.

    A value that was not written for ``ttl_ms`` milliseconds is never returned, and is dropped when it is touched or at
    a snapshot. With ``update_type`` ``ON_READ_AND_WRITE`` reading a value extends its life too. SpecError if ``ttl_ms``
    is not above 0.
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise SpecError("not a time to live", expected="ttl_ms > 0", got=str(self.ttl_ms))


class StateDescriptor:
    """Declares a state of a function.

    ``name`` is unique in the operator; ``type_`` is the type of the value, ``Types.…()``. SpecError without a type.
    """

    kind = ""

    def __init__(self, name: str, type_: t.LogicalType) -> None:
        if not isinstance(type_, t.LOGICAL_TYPES):
            raise SpecError(
                f"state '{name}' has no type",
                expected="a declared type, e.g. Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()",
                got=repr(type_),
            )
        self.name = name
        self.type = type_
        self.ttl: StateTtlConfig | None = None
        #: names that it had before
        self.former_names: tuple[str, ...] = ()
        #: of a row type: field → what it was called before
        self.former_fields: dict[str, str] = {}

    @property
    def state_name(self) -> str:
        """The name in snapshots: ``value/count``."""
        return f"{self.kind}/{self.name}"

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names in snapshots that it is restored from, the present one first."""
        return tuple(f"{self.kind}/{name}" for name in (self.name, *self.former_names))

    def renamed_from(self, *names: str) -> Self:
        """State that a savepoint has under one of ``names`` is this one's."""
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

    def enable_time_to_live(self, config: StateTtlConfig) -> None:
        """Let values expire by ``config``."""
        self.ttl = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class ValueStateDescriptor(StateDescriptor):
    """One value for each key."""

    kind = "value"


class ListStateDescriptor(StateDescriptor):
    """A list for each key; ``type_`` is the type of an element."""

    kind = "list"

    @property
    def stored_type(self) -> t.LogicalType:
        return t.ArrayType(self.type)


class MapStateDescriptor(StateDescriptor):
    """A map for each key.

    ``name`` is unique in the operator; ``key_type`` and ``value_type`` are the types of an entry. SpecError without types.
    """

    kind = "map"

    def __init__(self, name: str, key_type: t.LogicalType, value_type: t.LogicalType) -> None:
        super().__init__(name, value_type)
        if not isinstance(key_type, t.LOGICAL_TYPES):
            raise SpecError(f"map state '{name}' has no key type", expected="e.g. Types.STRING()")
        self.key_type = key_type

    @property
    def stored_type(self) -> t.LogicalType:
        return t.MapType(self.key_type, self.type)


class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, combined from all values added to it.

    ``name`` is unique in the operator; ``reduce(a, b)`` is a function, or an object with a ``reduce`` method; ``type_``
    is the type of a value.
    """

    kind = "reducing"

    def __init__(self, name: str, reduce: Any, type_: t.LogicalType) -> None:
        super().__init__(name, type_)
        self.reduce: Callable[[Any, Any], Any] = getattr(reduce, "reduce", reduce)


class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator for each key.

    ``name`` is unique in the operator; ``aggregate`` is an ``AggregateFunction``; ``type_`` is the accumulator's type.
    """

    kind = "aggregating"

    def __init__(self, name: str, aggregate: Any, type_: t.LogicalType) -> None:
        super().__init__(name, type_)
        self.aggregate = aggregate
