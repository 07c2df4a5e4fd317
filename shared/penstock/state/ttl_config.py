"""``StateTtlConfig``: how long the values of a state live, and its builder under Flink's names."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.errors import SpecError


class UpdateType(enum.Enum):
    """When the clock of a value starts anew."""

    OnCreateAndWrite = "OnCreateAndWrite"
    OnReadAndWrite = "OnReadAndWrite"
    Disabled = "Disabled"


class StateVisibility(enum.Enum):
    """Whether a value that has expired may still be read. It never is here, which both words allow."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(enum.Enum):
    """The clock that values expire by."""

    ProcessingTime = 0


@dataclass(frozen=True, slots=True)
class CleanupStrategies:
    """When values that have expired are dropped: always when they are touched, and at a snapshot.

    Flink's words for more than that are kept so that a program can ask for them again. ``incremental``: how many values
    a step looks at, and whether each record is a step; ``query_time_after_num_entries``: of RocksDB's filter.
    """

    is_cleanup_in_background: bool = True
    full_snapshot: bool = False
    incremental: tuple[int, bool] | None = None
    query_time_after_num_entries: int | None = None

    def in_full_snapshot(self) -> bool:
        """Whether the program asked for it."""
        return self.full_snapshot

    def in_rocksdb_compact_filter(self) -> bool:
        """Whether the program asked for it."""
        return self.query_time_after_num_entries is not None


_AS_IS = CleanupStrategies()
# The names of the class's own body hide these.
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
        """What extends the life of a value."""
        return self.update_type

    def get_state_visibility(self) -> _Visibility:
        """What the program said of values that have expired."""
        return self.state_visibility

    def get_ttl_time_characteristic(self) -> _Clock:
        """The clock: processing time."""
        return _Clock.ProcessingTime

    def get_cleanup_strategies(self) -> _Cleanup:
        """What the program said of when values are dropped."""
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
        """Let ``update_type`` say what extends the life of a value."""
        self._update_type = UpdateType(update_type)
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlBuilder:
        """Let writing extend it."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> StateTtlBuilder:
        """Let reading and writing extend it."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlBuilder:
        """Say whether values that have expired may be read; they never are, which ``state_visibility`` allows."""
        self._visibility = StateVisibility(state_visibility)
        return self

    def return_expired_if_not_cleaned_up(self) -> StateTtlBuilder:
        """``set_state_visibility(ReturnExpiredIfNotCleanedUp)``."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> StateTtlBuilder:
        """``set_state_visibility(NeverReturnExpired)``."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> StateTtlBuilder:
        """Let values expire by ``ttl_time_characteristic``, of which there is one."""
        TtlTimeCharacteristic(ttl_time_characteristic)
        return self

    def use_processing_time(self) -> StateTtlBuilder:
        """Let values expire by the clock, as they do."""
        return self

    def cleanup_full_snapshot(self) -> StateTtlBuilder:
        """Leave values that have expired out of snapshots, as is done anyway."""
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
        """Drop values only when they are touched, and at snapshots, as is done anyway."""
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
