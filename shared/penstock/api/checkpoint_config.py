"""``CheckpointConfig``: how checkpoints are taken, as settings of an environment under Flink's names."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from penstock.config import (
    CHECKPOINT_ALIGNED_TIMEOUT_MS,
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_MAX_CONCURRENT,
    CHECKPOINT_MIN_PAUSE_MS,
    CHECKPOINT_MODE,
    CHECKPOINT_TIMEOUT_MS,
    CHECKPOINT_TOLERABLE_FAILURES,
    CHECKPOINT_UNALIGNED,
    EXTERNALIZED_RETENTION,
)
from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from penstock.api.settings import Settings


class CheckpointingMode(enum.Enum):
    """How often a record counts after a restart: exactly once, or at least once."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(enum.Enum):
    """What becomes of a job's checkpoints when it is cancelled."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointConfig:
    """How checkpoints are taken. Made by ``StreamExecutionEnvironment.get_checkpoint_config``; ``env``: its settings.

    Each method sets, or reads, one key of the environment's configuration.
    """

    def __init__(self, env: Settings) -> None:
        self._env = env

    def _set(self, key: str, value: Any) -> CheckpointConfig:
        self._env.set(key, value)
        return self

    def is_checkpointing_enabled(self) -> bool:
        """Whether checkpoints are taken."""
        return self.get_checkpoint_interval() > 0

    def get_checkpoint_interval(self) -> int:
        """Time between two checkpoints, ms; -1 for none."""
        found = CHECKPOINT_INTERVAL_MS.read(self._env.configuration)
        return found or -1

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Take a checkpoint every ``checkpoint_interval`` ms."""
        return self._set(CHECKPOINT_INTERVAL_MS.key, checkpoint_interval)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """How often a record counts after a restart."""
        return CheckpointingMode[str(CHECKPOINT_MODE.read(self._env.configuration))]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Let a record count after a restart as ``checkpointing_mode`` says."""
        return self._set(CHECKPOINT_MODE.key, getattr(checkpointing_mode, "name", checkpointing_mode))

    def get_checkpoint_timeout(self) -> int:
        """After this many ms a checkpoint is given up."""
        return CHECKPOINT_TIMEOUT_MS.read(self._env.configuration)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Give a checkpoint up after ``checkpoint_timeout`` ms."""
        return self._set(CHECKPOINT_TIMEOUT_MS.key, checkpoint_timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        """Time from the end of a checkpoint to the next one, at least; ms."""
        return CHECKPOINT_MIN_PAUSE_MS.read(self._env.configuration)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Begin a checkpoint at least ``min_pause_between_checkpoints`` ms after the end of the one before."""
        return self._set(CHECKPOINT_MIN_PAUSE_MS.key, min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """How many checkpoints are taken at a time."""
        return CHECKPOINT_MAX_CONCURRENT.read(self._env.configuration)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Take at most ``max_concurrent_checkpoints`` at a time."""
        return self._set(CHECKPOINT_MAX_CONCURRENT.key, max_concurrent_checkpoints)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many checkpoints in a row may fail before the job does."""
        return CHECKPOINT_TOLERABLE_FAILURES.read(self._env.configuration)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Let the job fail when more than ``tolerable_checkpoint_failure_number`` checkpoints in a row have failed."""
        return self._set(CHECKPOINT_TOLERABLE_FAILURES.key, tolerable_checkpoint_failure_number)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether one failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Let one failed checkpoint fail the job if ``fail_on_checkpointing_errors`` is true, else none."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether a retention of externalized checkpoints is set, other than
        ``NO_EXTERNALIZED_CHECKPOINTS``."""
        retention = self.get_externalized_checkpoint_retention()
        return retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of the checkpoints when the job is cancelled."""
        found = str(EXTERNALIZED_RETENTION.read(self._env.configuration))
        return ExternalizedCheckpointRetention[found.upper().replace("-", "_")]

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Let ``retention_mode`` say what becomes of the checkpoints when the job is cancelled."""
        return self._set(EXTERNALIZED_RETENTION.key, getattr(retention_mode, "name", retention_mode))

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers overtake records when channels are full."""
        return bool(CHECKPOINT_UNALIGNED.read(self._env.configuration))

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records when channels are full; not if ``enabled`` is False."""
        return self._set(CHECKPOINT_UNALIGNED.key, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers never overtake records."""
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Any:
        """How long a barrier waits before it overtakes records: a ``Duration``."""
        from penstock.api.common import Duration

        return Duration.of_millis(CHECKPOINT_ALIGNED_TIMEOUT_MS.read(self._env.configuration))

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Any) -> CheckpointConfig:
        """Let a barrier wait for ``alignment_timeout`` (a ``Duration`` or ms) before it overtakes records."""
        from penstock.api.common import duration_us

        timeout_ms = duration_us(alignment_timeout, "alignment_timeout") // 1_000
        return self._set(CHECKPOINT_ALIGNED_TIMEOUT_MS.key, timeout_ms)

    get_alignment_timeout = get_aligned_checkpoint_timeout
    set_alignment_timeout = set_aligned_checkpoint_timeout

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Flink's switch for jobs with iterations, which Penstock has not.

        Raises:
            UnsupportedError: ``force_unaligned_checkpoints`` is True.
        """
        if force_unaligned_checkpoints:
            raise UnsupportedError(
                "set_force_unaligned_checkpoints",
                expected="enable_unaligned_checkpoints()",
                remedy="leave it out: a job here has no iterations, for which it is",
            )
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """False."""
        return False
