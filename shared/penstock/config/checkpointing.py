"""Options of a job's checkpoints, state and recovery, and values that depend on several of them."""

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
    parse_provided,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_INTERVAL_MS = define(
    "execution.checkpointing.interval",
    10_000,
    parse_duration_ms,
    "Time between the starts of two checkpoints. 0: no periodic checkpoints.",
)
CHECKPOINT_TIMEOUT_MS = define(
    "execution.checkpointing.timeout",
    600_000,
    parse_duration_ms,
    "A checkpoint that is not complete after this time is aborted.",
    least=10,
)
CHECKPOINT_MIN_PAUSE_MS = define(
    "execution.checkpointing.min-pause",
    0,
    parse_duration_ms,
    "Shortest time between the end of a checkpoint and the start of the next.",
)
CHECKPOINT_MODE = define(
    "execution.checkpointing.mode",
    "EXACTLY_ONCE",
    one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "Whether barriers are aligned (EXACTLY_ONCE) or not.",
)
CHECKPOINT_UNALIGNED = define(
    "execution.checkpointing.unaligned.enabled",
    False,
    parse_bool,
    "Barriers may overtake rows, which are then saved in the checkpoint. Savepoints stay aligned.",
)
CHECKPOINT_ALIGNED_TIMEOUT_MS = define(
    "execution.checkpointing.aligned-checkpoint-timeout",
    0,
    parse_duration_ms,
    "How long an unaligned checkpoint waits for alignment before its barriers overtake.",
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
    "Checkpoints write what changed since the last completed one. Savepoints are always whole.",
)
CHECKPOINT_RETAINED = define(
    "execution.checkpointing.num-retained",
    2,
    parse_int,
    "Completed checkpoints that are kept. From 2 on, one that shares no object with them is kept "
    "too, for the case that objects are damaged.",
    least=1,
)
CHECKPOINT_MAX_CONCURRENT = define(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    parse_int,
    "Checkpoints in flight at once. More than one is refused with unaligned checkpoints; a "
    "min-pause limits it to one.",
    least=1,
)
CHECKPOINT_TOLERABLE_FAILURES = define(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    parse_int,
    "Consecutive failed checkpoints before the job fails.",
    least=0,
)
SAVEPOINT_DIR = define(
    "execution.checkpointing.savepoint-dir",
    "savepoints",
    parse_folder,
    "Where savepoints are written: a folder below `high-availability.storageDir`, or a URL.",
)
EXTERNALIZED_RETENTION = define(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    one_of("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "Whether the last checkpoints stay when a job is cancelled or fails.",
)
STATE_BACKEND = define(
    "state.backend.type",
    "hashmap",
    parse_provided,
    "Where keyed state of functions lives: `hashmap` (memory), `leveldb` (local disk), the backend of an installed package, or "
    "`package.module:factory`.",
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
    "Memory for the state of a slot, by which its process may grow; above it, state that was not used lately moves to the "
    "local disk. 0: no limit.",
)
LOCAL_RECOVERY = define(
    "state.backend.local-recovery",
    False,
    parse_bool,
    "Task managers keep copies of the last snapshots on their disk (`io.tmp.dirs`) and restore from them.",
)
RECOVERY_PATH = define(
    "execution.state-recovery.path",
    "",
    str,
    "Savepoint or checkpoint that a new job starts from.",
    scope="one job",
)
RECOVERY_IGNORE_UNCLAIMED = define(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    parse_bool,
    "Drop the state of operators that the job does not have; without it such a savepoint is refused.",
)
RECOVERY_KEEP_STATE = define(
    "execution.state-recovery.keep-state",
    "",
    str,
    "Uids, separated by `;`, of operators whose state is restored although their meaning has changed.",
    scope="one job",
)


def unaligned_patience_ms(config: Mapping[str, str]) -> int | None:
    """How many milliseconds after the trigger the barriers of a plain checkpoint may overtake rows. None:
    never."""
    if not CHECKPOINT_UNALIGNED.read(config) or CHECKPOINT_MODE.read(config) != "EXACTLY_ONCE":
        return None
    return CHECKPOINT_ALIGNED_TIMEOUT_MS.read(config)


def max_concurrent_checkpoints(config: Mapping[str, str]) -> int:
    """How many checkpoints may be in flight: one if they are unaligned or have a min-pause."""
    if unaligned_patience_ms(config) is not None or CHECKPOINT_MIN_PAUSE_MS.read(config) > 0:
        return 1
    return CHECKPOINT_MAX_CONCURRENT.read(config)
