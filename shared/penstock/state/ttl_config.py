"""``StateTtlConfig``: how long the values of a state live, and its builder under Flink's names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.errors import SpecError


class UpdateType(enum.Enum):
    """Which accesses extend the life of a value."""

    OnCreateAndWrite = "OnCreateAndWrite"
    OnReadAndWrite = "OnReadAndWrite"
    Disabled = "Disabled"


class StateVisibility(enum.Enum):
    """Whether an expired value may still be read. Penstock never returns one, which both settings allow."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(enum.Enum):
    """The clock by which values expire."""

    ProcessingTime = 0


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """When expired values are dropped: always when they are accessed, and at a snapshot.

    Flink's further settings are kept so that a program can read them again. ``incremental``: how many
    values a step examines, and whether each record is a step; ``query_time_after_num_entries``: that of
    RocksDB's filter.
    """

    is_cleanup_in_background: bool = True
    full_snapshot: bool = False
    incremental: tuple[int, bool] | None = None
    query_time_after_num_entries: int | None = None

    def in_full_snapshot(self) -> bool:
        """Whether the program requested it."""
        return self.full_snapshot

    def in_rocksdb_compact_filter(self) -> bool:
        """Whether the program requested it."""
        return self.query_time_after_num_entries is not None


_AS_IS = CleanupStrategies()
# Other names for the classes above, because attributes of StateTtlConfig have the same names.
_Update: TypeAlias = UpdateType
_Visibility: TypeAlias = StateVisibility
_Cleanup: TypeAlias = CleanupStrategies
_Clock: TypeAlias = TtlTimeCharacteristic


def _ttl_ms(ttl: Any) -> int:
    if isinstance(ttl, int) and not isinstance(ttl, bool):
        return ttl
    to_ms = getattr(ttl, "to_milliseconds", None)
    if to_ms is None:
        raise SpecError("not a time to live", expected="Time.seconds(5), or milliseconds", got=repr(ttl))
    return int(to_ms())


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of state, in processing time.

    A value that was not written for ``ttl_ms`` milliseconds is never returned, and is dropped when it is touched or at
    a snapshot. With ``update_type`` ``OnReadAndWrite`` reading a value extends its life too. SpecError if ``ttl_ms``
    is not above 0. ``state_visibility`` and ``cleanup_strategies`` are what the program said; ``Builder`` is the class
    that ``new_builder`` makes one of.
    """

    ttl_ms: int
    update_type: _Update = _Update.OnCreateAndWrite
    state_visibility: _Visibility = _Visibility.NeverReturnExpired
    cleanup_strategies: _Cleanup = _AS_IS

    UpdateType = _Update
    StateVisibility = _Visibility
    TtlTimeCharacteristic = _Clock
    CleanupStrategies = _Cleanup
    Builder: ClassVar[type[StateTtlBuilder]]

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise SpecError("not a time to live", expected="ttl_ms > 0", got=str(self.ttl_ms))

    @staticmethod
    def new_builder(ttl: Any) -> StateTtlBuilder:
        """A builder that begins with ``ttl``: a ``Time``, or whole milliseconds."""
        return StateTtlBuilder(ttl)

    def get_ttl(self) -> int:
        """The time to live, ms."""
        return self.ttl_ms

    def get_update_type(self) -> _Update:
        """Which accesses extend the life of a value."""
        return self.update_type

    def get_state_visibility(self) -> _Visibility:
        """The program's setting about expired values."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> _Clock:
        """The clock: processing time."""
        return _Clock.ProcessingTime

    def get_cleanup_strategies(self) -> _Cleanup:
        """The program's settings about when values are dropped."""
        return self.cleanup_strategies

    def is_enabled(self) -> bool:
        """Whether values expire at all."""
        return self.update_type is not _Update.Disabled


class StateTtlBuilder:
    """Collects the settings of a ``StateTtlConfig``. Made by ``StateTtlConfig.new_builder(ttl)``."""

    def __init__(self, ttl: Any) -> None:
        self._ttl_ms = _ttl_ms(ttl)
        self._update_type = UpdateType.OnCreateAndWrite
        self._visibility = StateVisibility.NeverReturnExpired
        self._background = True
        self._full_snapshot = False
        self._incremental: tuple[int, bool] | None = None
        self._entries: int | None = None

    def set_update_type(self, update_type: UpdateType) -> StateTtlBuilder:
        """Sets by ``update_type`` which accesses extend the life of a value."""
        self._update_type = UpdateType(update_type)
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlBuilder:
        """Writing extends the life of a value."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> StateTtlBuilder:
        """Reading and writing extend the life of a value."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlBuilder:
        """Sets whether expired values may be read. Penstock never returns one, which every
        ``state_visibility`` allows."""
        self._visibility = StateVisibility(state_visibility)
        return self

    def return_expired_if_not_cleaned_up(self) -> StateTtlBuilder:
        """``set_state_visibility(ReturnExpiredIfNotCleanedUp)``."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> StateTtlBuilder:
        """``set_state_visibility(NeverReturnExpired)``."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> StateTtlBuilder:
        """Sets the clock by which values expire; there is only one ``ttl_time_characteristic``."""
        TtlTimeCharacteristic(ttl_time_characteristic)
        return self

    def use_processing_time(self) -> StateTtlBuilder:
        """Values expire by processing time, which is always so."""
        return self

    def cleanup_full_snapshot(self) -> StateTtlBuilder:
        """Expired values are left out of snapshots, which is always so."""
        self._full_snapshot = True
        return self

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool = False
    ) -> StateTtlBuilder:
        """Flink's incremental clean-up. Values are dropped when they are touched and at snapshots, so the numbers
        change nothing.

        Args:
            cleanup_size: How many values a step looks at.
            run_cleanup_for_every_record: Whether each record is a step.
        """
        self._incremental = (cleanup_size, run_cleanup_for_every_record)
        return self

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Any = None
    ) -> StateTtlBuilder:
        """Flink's clean-up in RocksDB, which is not there: the numbers change nothing.

        Args:
            query_time_after_num_entries: How many entries share one look at the clock.
            periodic_compaction_time: How often old files are rewritten.
        """
        self._entries = query_time_after_num_entries
        return self

    def disable_cleanup_in_background(self) -> StateTtlBuilder:
        """Values are dropped only when they are accessed, and at snapshots, which is always so."""
        self._background = False
        return self

    def set_ttl(self, ttl: Any) -> StateTtlBuilder:
        """Another time to live: a ``Time``, or whole milliseconds."""
        self._ttl_ms = _ttl_ms(ttl)
        return self

    def build(self) -> StateTtlConfig:
        """The configuration.

        Raises:
            SpecError: The time to live is not above 0.
        """
        cleanup = CleanupStrategies(self._background, self._full_snapshot, self._incremental, self._entries)
        return StateTtlConfig(self._ttl_ms, self._update_type, self._visibility, cleanup)


StateTtlConfig.Builder = StateTtlBuilder
