"""Options of jobs, but those of checkpoints and state."""

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
)

if TYPE_CHECKING:
    from collections.abc import Mapping

NATS_URL = define("nats.url", "nats://127.0.0.1:4222", str, "NATS servers, comma separated.")
REST_ADDRESS = define(
    "rest.address", "", str, "The cluster that programs are sent to; empty = one of their own."
)
PARALLELISM = define("parallelism.default", 1, parse_parallelism, "Parallelism of a job.")
MAX_PARALLELISM = define(
    "pipeline.max-parallelism",
    -1,
    parse_max_parallelism,
    "Number of key groups; -1 = chosen at first submission.",
)
WATERMARK_INTERVAL_MS = define(
    "pipeline.auto-watermark-interval", 200, parse_duration_ms, "Between watermarks."
)
RUNTIME_MODE = define(
    "execution.runtime-mode", "AUTOMATIC", one_of("STREAMING", "BATCH", "AUTOMATIC"), "How a job runs."
)
ENGINE = define(
    "execution.engine",
    "auto",
    one_of("auto", "streaming", "spark"),
    "Which engine; auto: Spark when all sources are bounded (PENSTOCK_ENGINE in the environment says "
    "otherwise for jobs that name none).",
)
BACKFILL_ENGINE = define(
    "execution.backfill.engine",
    "auto",
    one_of("auto", "spark", "none"),
    "Who reads the history of a job of history then live; auto: Spark where it is installed and can, else "
    "the streaming engine (none).",
)
BACKFILL_PARALLELISM = define(
    "execution.backfill.parallelism",
    0,
    parse_int,
    "Subtasks of a backfill's stages on Spark; 0 = the job's parallelism, at least 2.",
    least=0,
    most=MOST_SUBTASKS,
)
BACKFILL_EMIT = define(
    "execution.backfill.emit", True, parse_bool, "Whether a backfill writes the history's rows to the sinks."
)
define_family("spark.", "Spark's own settings, for the job's session.")
define_family("user.", "Your own.")
SPARK_MASTER = define(
    "spark.master",
    "",
    parse_spark_master,
    "A standing Spark: spark://host:port, k8s://…, yarn; local[n] = one for this job, inside its driver process; "
    "empty = the task manager's own.",
)
SPARK_REMOTE = define(
    "spark.remote",
    "",
    parse_spark_remote,
    "A standing Spark Connect server: sc://host:port; empty = the task manager's own.",
)
BUFFER_TIMEOUT_MS = define(
    "execution.buffer-timeout", 5, parse_duration_ms, "Upper bound on how long an output waits; 0 = at once."
)
ATTACHED = define("execution.attached", False, parse_bool, "Whether a client waits for the job.")
SHUTDOWN_ON_ATTACHED_EXIT = define(
    "execution.shutdown-on-attached-exit",
    False,
    parse_bool,
    "Cancel a job whose client waits for it (execution.attached) when the client is gone: it sends heartbeats. "
    "`penstock sql` and `penstock run` say so for a SELECT.",
)
CLIENT_HEARTBEAT_INTERVAL_MS = define(
    "client.heartbeat.interval", 30_000, parse_duration_ms, "Between two heartbeats of a client.", least=1
)
CLIENT_HEARTBEAT_TIMEOUT_MS = define(
    "client.heartbeat.timeout",
    180_000,
    parse_duration_ms,
    "A client that is silent for so long is gone.",
    least=1,
)
FAILOVER_STRATEGY = define(
    "jobmanager.execution.failover-strategy",
    "region",
    one_of("region", "full"),
    "What restarts after a failure: what is connected with it, or the whole job.",
)
RESTART_STRATEGY = define(
    "restart-strategy.type",
    "exponential-delay",
    one_of("none", "fixed-delay", "exponential-delay", "failure-rate"),
    "What happens after a failure.",
)
RESTART_FIXED_ATTEMPTS = define(
    "restart-strategy.fixed-delay.attempts", 1, parse_int, "Restarts allowed.", least=0
)
RESTART_FIXED_DELAY_MS = define(
    "restart-strategy.fixed-delay.delay", 1_000, parse_duration_ms, "Before each."
)
RESTART_EXP_INITIAL_MS = define(
    "restart-strategy.exponential-delay.initial-backoff", 1_000, parse_duration_ms, "First delay.", least=1
)
RESTART_EXP_MAX_MS = define(
    "restart-strategy.exponential-delay.max-backoff", 60_000, parse_duration_ms, "Greatest delay.", least=1
)
RESTART_EXP_MULTIPLIER = define(
    "restart-strategy.exponential-delay.backoff-multiplier", 1.5, parse_number, "Growth.", least=1.0
)
RESTART_EXP_RESET_MS = define(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    3_600_000,
    parse_duration_ms,
    "Stable for so long: back to the first delay.",
    least=1,
)
RESTART_EXP_ATTEMPTS = define(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    2**31 - 1,
    parse_int,
    "Restarts allowed before a reset.",
    least=0,
)
RESTART_EXP_JITTER = define(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    parse_number,
    "Delays differ by this share, up or down.",
    least=0.0,
    most=1.0,
)
RESTART_RATE_MAX = define(
    "restart-strategy.failure-rate.max-failures-per-interval", 1, parse_int, "Failures allowed.", least=1
)
RESTART_RATE_INTERVAL_MS = define(
    "restart-strategy.failure-rate.failure-rate-interval", 60_000, parse_duration_ms, "In this time.", least=1
)
RESTART_RATE_DELAY_MS = define(
    "restart-strategy.failure-rate.delay", 1_000, parse_duration_ms, "Before each restart."
)
IDLE_TIMEOUT_MS = define(
    "table.exec.source.idle-timeout",
    5_000,
    parse_duration_ms,
    "A caught-up split is idle after this; 0 = never.",
)
STATE_TTL_MS = define(
    "table.exec.state.ttl", 0, parse_duration_ms, "State of unwindowed SQL operators; 0 = kept."
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
    "All that reads a table reads it through one source, with the filters that all have; streaming engine.",
)
LOCAL_TIME_ZONE = define("table.local-time-zone", "UTC", str, "Session time zone.")
MAX_COLUMN_WIDTH = define(
    "sql-client.display.max-column-width",
    30,
    parse_int,
    "Characters of a value that a terminal shows in a column of variable length; the rest is cut, with '…'.",
    least=1,
)
LATE_TABLE = define(
    "table.exec.late-data.table", "", str, "Table that receives rows later than every window of theirs."
)
JOIN_UNBOUNDED_STATE = define(
    "table.exec.join.unbounded-state",
    "refuse",
    one_of("refuse", "allow"),
    "A join without window, time bound or TTL over unbounded input.",
)
ASYNC_OPERATIONS = define(
    "table.exec.async-scalar.max-concurrent-operations",
    10,
    parse_int,
    "Calls of an async Python function that are under way at once, a subtask.",
    least=1,
)
ASYNC_TIMEOUT_MS = define(
    "table.exec.async-scalar.timeout",
    180_000,
    parse_duration_ms,
    "A call of an async Python function fails after so long.",
    least=1,
)
NOT_NULL_ENFORCER = define(
    "table.exec.sink.not-null-enforcer",
    "ERROR",
    one_of("ERROR", "DROP"),
    "A NULL for a NOT NULL column of a table: the job fails, or the row is dropped silently.",
)
TYPE_LENGTH_ENFORCER = define(
    "table.exec.sink.type-length-enforcer",
    "IGNORE",
    one_of("IGNORE", "TRIM_PAD", "ERROR"),
    "A value longer, or for CHAR and BINARY shorter, than its column of a table: written as it is, fitted, or an error.",
)
ON_ERROR = define(
    "table.exec.on-error",
    "fail",
    one_of("fail", "skip", "dead-letter"),
    "A row whose expression or function fails in a SQL operator.",
)
NETWORK_MEMORY = define(
    "taskmanager.memory.network.size", 64 * 1024**2, parse_bytes, "Network buffers of a slot.", least=1024**2
)
DML_SYNC = define(
    "table.dml-sync", False, parse_bool, "SQL client: await every INSERT, not only bounded ones."
)
PLAN_FORCE_RECOMPILE = define(
    "table.plan.force-recompile",
    False,
    parse_bool,
    "COMPILE PLAN replaces a file that is there (else that is an error).",
)
EXPLAIN_SPARK = define(
    "table.explain.spark-plan",
    True,
    parse_bool,
    "EXPLAIN of a job for Spark shows Spark's own plan too; the first one starts a Java.",
)
PIPELINE_NAME = define("pipeline.name", "", str, "Name of the job.")
OBJECT_REUSE_CHAINING = define("pipeline.operator-chaining.enabled", True, parse_bool, "Chain operators.")


def is_batch(config: Mapping[str, str]) -> bool:
    """Whether a planned job runs in mode BATCH; of one in AUTOMATIC the plan says which it is."""
    return RUNTIME_MODE.read(config) == "BATCH"
