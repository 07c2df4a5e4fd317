"""Options of jobs, except those of checkpoints and state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.option import define, define_family
from penstock.config.values import (
    MOST_SUBTASKS,
    one_of,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
    parse_max_parallelism,
    parse_number,
    parse_parallelism,
    parse_spark_master,
    parse_spark_remote,
    parse_time_zone,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NATS_URL = define("nats.url", "nats://127.0.0.1:4222", str, "NATS servers, separated by commas.")
REST_ADDRESS = define(
    "rest.address",
    "",
    str,
    "Cluster that programs are submitted to. Empty: an embedded cluster for the program.",
)
PARALLELISM = define("parallelism.default", 1, parse_parallelism, "Parallelism of a job.")
MAX_PARALLELISM = define(
    "pipeline.max-parallelism",
    -1,
    parse_max_parallelism,
    "Number of key groups. -1: chosen when the job is first submitted.",
)
WATERMARK_INTERVAL_MS = define(
    "pipeline.auto-watermark-interval", 200, parse_duration_ms, "Time between two watermarks of a source."
)
RUNTIME_MODE = define(
    "execution.runtime-mode",
    "AUTOMATIC",
    one_of("STREAMING", "BATCH", "AUTOMATIC"),
    "`AUTOMATIC` is `BATCH` when all sources are bounded. `BATCH`: a result row comes once, at the end of the input "
    "if a later row could take it back, so that a table of inserts alone takes an outer join, too.",
)
ENGINE = define(
    "execution.engine",
    "auto",
    one_of("auto", "streaming", "spark"),
    "Engine of the job. `auto`: Spark when all sources are bounded and the job is no small query, else streaming. "
    "`PENSTOCK_ENGINE` in the environment is the default for jobs that name none.",
)
SMALL_INPUT = define(
    "execution.engine.auto.small-input",
    16 * 1024 * 1024,
    parse_bytes,
    "Where the engine is `auto`: a query whose rows somebody waits for (SELECT, `collect`) runs on the streaming "
    "engine if the files and tables that it reads have this many bytes at most, because it answers before Spark has "
    "started. Jobs that write tables, and inputs of unknown size, are not meant. `0`: never.",
)
BACKFILL_ENGINE = define(
    "execution.backfill.engine",
    "auto",
    one_of("auto", "spark", "none"),
    "Engine that reads the history of a `hybrid` table. `auto`: Spark where it is installed and "
    "can, else `none`, the streaming engine.",
)
BACKFILL_PARALLELISM = define(
    "execution.backfill.parallelism",
    0,
    parse_int,
    "Subtasks of a backfill's stages on Spark. 0: the job's parallelism, at least 2.",
    least=0,
    most=MOST_SUBTASKS,
)
BACKFILL_EMIT = define(
    "execution.backfill.emit", True, parse_bool, "Whether a backfill writes the history's rows to the sinks."
)
define_family("spark.", "Spark's own settings, for the job's session.")
define_family("user.", "Keys of your own programs; Penstock does not read them.")
SPARK_MASTER = define(
    "spark.master",
    "",
    parse_spark_master,
    "A standing Spark: spark://host:port, k8s://…, yarn. local[n]: one inside the driver process of "
    "this job. Empty: the task manager's own.",
)
SPARK_REMOTE = define(
    "spark.remote",
    "",
    parse_spark_remote,
    "A standing Spark Connect server: sc://host:port. Empty: the task manager's own.",
)
BUFFER_TIMEOUT_MS = define(
    "execution.buffer-timeout",
    5,
    parse_duration_ms,
    "Longest time that an output gathers rows. 0: every output is sent at once.",
)
ATTACHED = define(
    "execution.attached", False, parse_bool, "Whether a client waits for the job.", scope="one job"
)
SHUTDOWN_ON_ATTACHED_EXIT = define(
    "execution.shutdown-on-attached-exit",
    False,
    parse_bool,
    "Cancel the job when the client that waits for it (`execution.attached`) sends no heartbeats "
    "any more. `penstock sql` and `penstock run` set it for a SELECT.",
    scope="one job",
)
CLIENT_HEARTBEAT_INTERVAL_MS = define(
    "client.heartbeat.interval",
    30_000,
    parse_duration_ms,
    "Time between two heartbeats of a waiting client.",
    least=1,
)
CLIENT_HEARTBEAT_TIMEOUT_MS = define(
    "client.heartbeat.timeout",
    180_000,
    parse_duration_ms,
    "A client that sent no heartbeat for this time counts as gone.",
    least=1,
)
FAILOVER_STRATEGY = define(
    "jobmanager.execution.failover-strategy",
    "region",
    one_of("region", "full"),
    "What restarts after a failure: the region (everything that edges connect with it), or the whole job.",
)
RESTART_STRATEGY = define(
    "restart-strategy.type",
    "exponential-delay",
    one_of("none", "fixed-delay", "exponential-delay", "failure-rate"),
    "How a job restarts after a failure ([operations](operations.md#restarts)).",
)
RESTART_FIXED_ATTEMPTS = define(
    "restart-strategy.fixed-delay.attempts", 1, parse_int, "Restarts that are allowed.", least=0
)
RESTART_FIXED_DELAY_MS = define(
    "restart-strategy.fixed-delay.delay", 1_000, parse_duration_ms, "Delay before each restart."
)
RESTART_EXP_INITIAL_MS = define(
    "restart-strategy.exponential-delay.initial-backoff",
    1_000,
    parse_duration_ms,
    "Delay before the first restart.",
    least=1,
)
RESTART_EXP_MAX_MS = define(
    "restart-strategy.exponential-delay.max-backoff", 60_000, parse_duration_ms, "Longest delay.", least=1
)
RESTART_EXP_MULTIPLIER = define(
    "restart-strategy.exponential-delay.backoff-multiplier",
    1.5,
    parse_number,
    "Factor from one delay to the next.",
    least=1.0,
)
RESTART_EXP_RESET_MS = define(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    3_600_000,
    parse_duration_ms,
    "After running for this time without a failure a job starts again with the first delay.",
    least=1,
)
RESTART_EXP_ATTEMPTS = define(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    2**31 - 1,
    parse_int,
    "Restarts that are allowed before the delay is reset.",
    least=0,
)
RESTART_EXP_JITTER = define(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    parse_number,
    "Each delay is longer or shorter by up to this share, by chance.",
    least=0.0,
    most=1.0,
)
RESTART_RATE_MAX = define(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    parse_int,
    "Failures that are allowed in that time.",
    least=1,
)
RESTART_RATE_INTERVAL_MS = define(
    "restart-strategy.failure-rate.failure-rate-interval",
    60_000,
    parse_duration_ms,
    "Time in which failures are counted.",
    least=1,
)
RESTART_RATE_DELAY_MS = define(
    "restart-strategy.failure-rate.delay", 1_000, parse_duration_ms, "Delay before each restart."
)
IDLE_TIMEOUT_MS = define(
    "table.exec.source.idle-timeout",
    5_000,
    parse_duration_ms,
    "A split without rows is idle after this time, once it is caught up. 0: never. If this is set, other inputs "
    "of a join or union go on without a source all of whose splits are idle; by default they wait for it.",
)
STATE_TTL_MS = define(
    "table.exec.state.ttl",
    0,
    parse_duration_ms,
    "Time to live of the state of SQL operators without a window. 0: kept for ever.",
)
SOURCE_PUSH_DOWN = define(
    "table.optimizer.source.push-down-enabled",
    True,
    parse_bool,
    "Sources deliver only the columns, fields and rows that the query reads.",
)
REUSE_SOURCE = define(
    "table.optimizer.reuse-source-enabled",
    True,
    parse_bool,
    "All readers of a table in a job share one source, with the filters that all of them have. "
    "Streaming engine only.",
)
PYTHON_REQUIREMENTS = define(
    "python.requirements",
    "",
    str,
    "Packages of the job's functions: a requirements file, and behind `#` a folder with their wheels, as PyFlink writes it. "
    "Each task manager installs them once. Streaming engine only.",
)
PYTHON_ARCHIVES = define(
    "python.archives",
    "",
    str,
    "Archives that slots unpack into their working folder: paths with commas between, each with `#` and a folder's name. "
    "Streaming engine only.",
)
CATALOG_STORE_KIND = define(
    "table.catalog-store.kind",
    "generic_in_memory",
    one_of("generic_in_memory", "file"),
    "Where CREATE CATALOG is kept: with the session, or in files that later sessions read ([catalogs](catalogs.md)).",
)
CATALOG_STORE_FOLDER = define(
    "table.catalog-store.file.path",
    "",
    str,
    "Folder of the catalog store `file`.",
)
LOCAL_TIME_ZONE = define(
    "table.local-time-zone",
    "UTC",
    parse_time_zone,
    "Time zone of the session: a region such as `Europe/Berlin`, or an offset such as `GMT+08:00`.",
)
for _key, _default, _parse in (
    ("enabled", False, parse_bool),
    ("allow-latency", 0, parse_duration_ms),
    ("size", -1, parse_int),
):
    define(
        f"table.exec.mini-batch.{_key}",
        _default,
        _parse,
        "Taken from programs of Flink, without effect: operators work on batches of rows always.",
    )
MAX_COLUMN_WIDTH = define(
    "sql-client.display.max-column-width",
    30,
    parse_int,
    "Characters of a value that a terminal shows in a column of variable length; longer values end with '…'.",
    least=1,
)
LATE_TABLE = define(
    "table.exec.late-data.table", "", str, "Table that receives rows that come later than all their windows."
)
DEAD_LETTER_TABLE = define(
    "table.exec.dead-letter.table",
    "",
    str,
    "Table that receives, beside the object store, the records that on-error = dead-letter sets aside. Its columns: those "
    "of a letter that are wanted.",
)
DEAD_LETTER_REPLAY_MS = define(
    "table.exec.dead-letter.replay-interval",
    5_000,
    parse_duration_ms,
    "How often a source with on-error = dead-letter looks for dead letters that were asked to be replayed.",
    least=1,
)
JOIN_UNBOUNDED_STATE = define(
    "table.exec.join.unbounded-state",
    "refuse",
    one_of("refuse", "allow"),
    "Whether a join over unbounded input without window, time bound or time to live is refused.",
)
ASYNC_OPERATIONS = define(
    "table.exec.async-scalar.max-concurrent-operations",
    10,
    parse_int,
    "Calls of an async Python function that one subtask has under way at once.",
    least=1,
)
ASYNC_TIMEOUT_MS = define(
    "table.exec.async-scalar.timeout",
    180_000,
    parse_duration_ms,
    "A call of an async Python function fails after this time.",
    least=1,
)
NOT_NULL_ENFORCER = define(
    "table.exec.sink.not-null-enforcer",
    "ERROR",
    one_of("ERROR", "DROP"),
    "What happens to a NULL for a NOT NULL column of a table: the job fails, or the row is dropped silently.",
)
TYPE_LENGTH_ENFORCER = define(
    "table.exec.sink.type-length-enforcer",
    "IGNORE",
    one_of("IGNORE", "TRIM_PAD", "ERROR"),
    "What happens to a value that is longer (CHAR and BINARY: or shorter) than its column: it is "
    "written as it is, fitted, or an error.",
)
ON_ERROR = define(
    "table.exec.on-error",
    "fail",
    one_of("fail", "skip", "dead-letter"),
    "What happens to a row whose expression or function fails in a SQL operator.",
)
NETWORK_MEMORY = define(
    "taskmanager.memory.network.size", 64 * 1024**2, parse_bytes, "Network buffers of a slot.", least=1024**2
)
DML_SYNC = define(
    "table.dml-sync", False, parse_bool, "The SQL client waits for every INSERT, not only for bounded ones."
)
PLAN_FORCE_RECOMPILE = define(
    "table.plan.force-recompile",
    False,
    parse_bool,
    "COMPILE PLAN replaces an existing file; without it that is an error.",
)
EXPLAIN_SPARK = define(
    "table.explain.spark-plan",
    True,
    parse_bool,
    "EXPLAIN of a job for Spark shows Spark's own plan too; the first one starts a Java.",
)
PIPELINE_NAME = define("pipeline.name", "", str, "Name of the job.", scope="one job")
OBJECT_REUSE_CHAINING = define(
    "pipeline.operator-chaining.enabled",
    True,
    parse_bool,
    "Operators of equal parallelism are chained into one vertex.",
)


def is_batch(config: Mapping[str, str]) -> bool:
    """Whether ``config`` sets the mode BATCH. False for AUTOMATIC, where the sources of the plan decide."""
    return RUNTIME_MODE.read(config) == "BATCH"
