"""Options of a job's checkpoints, state and recovery, and what follows from them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.option import define
from penstock.config.values import (
    one_of,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_folder,
    parse_int,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_INTERVAL_MS = define(
    "execution.checkpointing.interval", 10_000, parse_duration_ms, "Between checkpoints; 0 = none."
)
CHECKPOINT_TIMEOUT_MS = define(
    "execution.checkpointing.timeout", 600_000, parse_duration_ms, "Then a checkpoint is aborted.", least=10
)
CHECKPOINT_MIN_PAUSE_MS = define(
    "execution.checkpointing.min-pause", 0, parse_duration_ms, "Between two checkpoints."
)
CHECKPOINT_MODE = define(
    "execution.checkpointing.mode", "EXACTLY_ONCE", one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"), "Alignment."
)
CHECKPOINT_UNALIGNED = define(
    "execution.checkpointing.unaligned.enabled",
    False,
    parse_bool,
    "Barriers may overtake rows, which are then saved in the checkpoint (savepoints stay aligned).",
)
CHECKPOINT_ALIGNED_TIMEOUT_MS = define(
    "execution.checkpointing.aligned-checkpoint-timeout",
    0,
    parse_duration_ms,
    "So long an unaligned checkpoint tries to be an aligned one.",
)
CHECKPOINT_DIR = define(
    "execution.checkpointing.dir",
    "",
    refused("checkpoints lie below high-availability.storageDir, with the decision log that names them"),
    "Not settable: checkpoints lie below `high-availability.storageDir`.",
)
INCREMENTAL = define(
    "execution.checkpointing.incremental",
    True,
    parse_bool,
    "A checkpoint writes what changed since the last completed one; savepoints are always whole.",
)
CHECKPOINT_RETAINED = define(
    "execution.checkpointing.num-retained",
    2,
    parse_int,
    "Completed checkpoints kept, and from 2 on one that shares no object with them; with one alone nothing is left "
    "when its objects are damaged.",
    least=1,
)
CHECKPOINT_MAX_CONCURRENT = define(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    parse_int,
    "Checkpoints in flight at once. More than one: not with unaligned ones; a min-pause makes it one.",
    least=1,
)
CHECKPOINT_TOLERABLE_FAILURES = define(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    parse_int,
    "In a row, before the job fails.",
    least=0,
)
SAVEPOINT_DIR = define(
    "execution.checkpointing.savepoint-dir",
    "savepoints",
    parse_folder,
    "Where savepoints go: a folder below `high-availability.storageDir`, or a URL.",
)
EXTERNALIZED_RETENTION = define(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    one_of("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "Whether the last checkpoints stay when a job is cancelled or has failed.",
)
STATE_BACKEND = define(
    "state.backend.type", "hashmap", one_of("hashmap", "leveldb"), "Where keyed state lives."
)
LEVELDB_CACHE_ENTRIES = define(
    "state.backend.leveldb.cache-entries",
    200_000,
    parse_int,
    "Live values of keyed state that one operator keeps in memory.",
    least=1,
)
STATE_MEMORY = define(
    "state.backend.memory.per-slot",
    0,
    parse_bytes,
    "Memory for the state of a slot; above it cold rows of aggregations move to the local disk; 0 = no limit.",
)
LOCAL_RECOVERY = define(
    "state.backend.local-recovery",
    False,
    parse_bool,
    "Task managers keep copies of the last snapshots on their disk (io.tmp.dirs) and restore from them.",
)
RECOVERY_PATH = define(
    "execution.state-recovery.path", "", str, "A savepoint or checkpoint that a new job starts from."
)
RECOVERY_IGNORE_UNCLAIMED = define(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    parse_bool,
    "Drop state of operators that the job does not have any more (else it is refused).",
)
RECOVERY_KEEP_STATE = define(
    "execution.state-recovery.keep-state",
    "",
    str,
    "Uids (';' between) of operators whose state is restored although the job means something else by it.",
)


def unaligned_patience_ms(config: Mapping[str, str]) -> int | None:
    """How long a plain checkpoint's barrier keeps its place; None: always."""
    if not CHECKPOINT_UNALIGNED.read(config) or CHECKPOINT_MODE.read(config) != "EXACTLY_ONCE":
        return None
    return CHECKPOINT_ALIGNED_TIMEOUT_MS.read(config)


def max_concurrent_checkpoints(config: Mapping[str, str]) -> int:
    """How many may be in flight: of those that overtake, or keep a pause, one."""
    if unaligned_patience_ms(config) is not None or CHECKPOINT_MIN_PAUSE_MS.read(config) > 0:
        return 1
    return CHECKPOINT_MAX_CONCURRENT.read(config)
