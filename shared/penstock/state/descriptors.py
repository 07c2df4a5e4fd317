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
    """A value not written (or read) for ``ttl_ms`` of processing time is gone: it is never
    returned, and is dropped when it is touched or at a snapshot."""

    ttl_ms: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise SpecError("not a time to live", expected="ttl_ms > 0", got=str(self.ttl_ms))


class StateDescriptor:
    """Base: ``name`` is unique in its operator, ``type`` is the declared value type."""

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
        """State that a savepoint has under one of these names is this one's."""
        self.former_names = names
        return self

    def renamed_fields(self, fields: Mapping[str, str]) -> Self:
        """Of a row type: present name → former name. SpecError for a name that is no field."""
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
        self.ttl = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class ValueStateDescriptor(StateDescriptor):
    kind = "value"


class ListStateDescriptor(StateDescriptor):
    """``type_`` is the element's."""

    kind = "list"

    @property
    def stored_type(self) -> t.LogicalType:
        return t.ArrayType(self.type)


class MapStateDescriptor(StateDescriptor):
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
    """``reduce(a, b)``: a function or an object with a ``reduce`` method."""

    kind = "reducing"

    def __init__(self, name: str, reduce: Any, type_: t.LogicalType) -> None:
        super().__init__(name, type_)
        self.reduce: Callable[[Any, Any], Any] = getattr(reduce, "reduce", reduce)


class AggregatingStateDescriptor(StateDescriptor):
    """``type_`` is the accumulator's; ``aggregate``: an ``AggregateFunction``."""

    kind = "aggregating"

    def __init__(self, name: str, aggregate: Any, type_: t.LogicalType) -> None:
        super().__init__(name, type_)
        self.aggregate = aggregate
