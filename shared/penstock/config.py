"""Configuration: Flink's keys, typed, with defaults, from YAML, environment and ``-D``.

Values are kept as text (what a user wrote); ``ConfigOption.read`` types them and names
the key, the expected form and the value when they do not fit. Durations are written
``200 ms``, ``10 s``, ``3 h`` (a bare number is milliseconds); sizes ``64 mb``. An option says
itself which values make sense and whether it is a job's or the cluster's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from penstock.errors import SpecError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_UNITS_MS = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_UNITS_BYTES = {
    "": 1, "b": 1, "bytes": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2,
    "g": 1024**3, "gb": 1024**3, "t": 1024**4, "tb": 1024**4,
}  # fmt: skip


def _with_unit(text: str, units: Mapping[str, int], what: str) -> int | None:
    found = re.fullmatch(r"\s*(-?)\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if not found or found[3].lower() not in units:
        return None
    value = round(float(found[2]) * units[found[3].lower()])
    if found[1] and value:
        raise SpecError(f"a negative {what}", expected="0 or more", got=repr(text))
    return value


def parse_duration_ms(text: str) -> int:
    """``"10 s"`` → 10000. SpecError when it is no duration."""
    value = _with_unit(str(text), _UNITS_MS, "duration")
    if value is None:
        raise SpecError("not a duration", expected="e.g. '200 ms', '10 s', '3 h'", got=repr(text))
    return value


def parse_bytes(text: str) -> int:
    """``"64 mb"`` → 67108864. SpecError when it is no size."""
    value = _with_unit(str(text), _UNITS_BYTES, "size")
    if value is None:
        raise SpecError("not a size", expected="e.g. '64 mb', '1 gb'", got=repr(text))
    return value


def _parse_bool(text: str) -> bool:
    lowered = str(text).strip().lower()
    if lowered not in ("true", "false"):
        raise SpecError("not a boolean", expected="true or false", got=repr(text))
    return lowered == "true"


def _parse_int(text: str) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise SpecError("not a whole number", expected="e.g. 4", got=repr(text)) from None


def _parse_number(text: str) -> float:
    try:
        number = float(str(text))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SpecError("not a number", expected="e.g. 1.5", got=repr(text))
    return number


#: Of a vertex: key groups are numbered in 15 bits.
MOST_SUBTASKS = 32_768


def _parse_parallelism(text: str) -> int:
    value = _parse_int(text)
    if not 1 <= value <= MOST_SUBTASKS:
        raise SpecError("not a parallelism", expected=f"1 to {MOST_SUBTASKS}", got=str(text))
    return value


def _parse_max_parallelism(text: str) -> int:
    value = _parse_int(text)
    if value != -1 and not 1 <= value <= MOST_SUBTASKS:
        raise SpecError(
            "not a number of key groups", expected=f"1 to {MOST_SUBTASKS}, or -1: chosen", got=str(text)
        )
    return value


#: Spark's driver starts with no less.
_LEAST_SPARK_BYTES = 450 * 1024**2


def _parse_java_memory(text: str) -> str:
    """``2g``, ``1500m``: kept as text, which Java reads itself."""
    found = re.fullmatch(r"(\d+)([kKmMgGtT]?)", str(text))
    if not found:
        raise SpecError("not a size as Java writes it", expected="e.g. 2g, 1500m", got=repr(text))
    if int(found[1]) * _UNITS_BYTES[found[2].lower()] < _LEAST_SPARK_BYTES:
        raise SpecError("too little memory for Spark", expected="450m or more", got=str(text))
    return str(text)


_SPARK_MASTER = re.compile(r"spark://.|k8s://.|yarn$|local(\[(\d+|\*)(, *\d+)?\])?$")


def _parse_spark_master(text: str) -> str:
    if text and _SPARK_MASTER.match(str(text)) is None:
        raise SpecError(
            "not the master of a Spark",
            expected="spark://host:port, k8s://…, yarn or local[n]; a server at sc://… is named by spark.remote",
            got=repr(text),
        )
    return str(text)


def _parse_spark_remote(text: str) -> str:
    if text and not str(text).startswith("sc://"):
        raise SpecError(
            "not the address of a Spark Connect server", expected="sc://host:port", got=repr(text)
        )
    return str(text)


#: Schemes of the object stores that ``penstock.store`` opens.
_STORES = ("file", "memory", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https")


def _parse_folder(text: str) -> str:
    """A folder below the cluster's store, or an object store's URL."""
    scheme, separator, _ = str(text).partition("://")
    if not str(text).strip() or (separator and scheme.lower() not in _STORES):
        raise SpecError(
            "neither a folder nor an object store's URL",
            expected="a folder's name, file:///folder, s3://bucket/prefix, gs://… or az://…",
            got=repr(text),
        )
    return str(text)


def one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in values:
            if str(text).lower() == value.lower():
                return value
        raise SpecError(
            "not one of the known values",
            expected=" | ".join(values),
            got=repr(text),
            remedy=nearest(str(text), values),
        )

    return parse


def _refused(why: str) -> Callable[[str], str]:
    """For a key of Flink's that has no meaning here: said, not ignored."""

    def parse(text: str) -> str:
        raise SpecError(f"this key cannot be set: {why}", got=repr(text), remedy="leave it out")

    return parse


#: Whose an option is. The cluster's are read by its services when they start.
Scope = Literal["job", "cluster"]


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """``least`` and ``most``: bounds of the typed value, both allowed; None = none."""

    key: str
    default: T
    parse: Callable[[str], T]
    doc: str
    scope: Scope = "job"
    least: T | None = None
    most: T | None = None

    def read(self, config: Mapping[str, Any]) -> T:
        """The typed value, or the default. SpecError names the key."""
        if self.key not in config:
            return self.default
        try:
            value = self.parse(config[self.key])
            self._check_bounds(value, config[self.key])
        except SpecError as err:
            err.where = f"configuration key '{self.key}'"
            default = self.shown(self.default)
            err.remedy = err.remedy or f"leave it out{f' for the default, {default}' if default else ''}"
            raise
        return value

    def _check_bounds(self, value: Any, text: Any) -> None:
        low, high = self.least is not None and value < self.least, self.most is not None and value > self.most
        if low or high:
            raise SpecError(
                "too little" if low else "too much",
                expected=self.bounds(),
                got=repr(text),
            )

    def bounds(self) -> str:
        """The allowed values in words; empty = whatever its type allows."""
        if self.least is None:
            return ""
        least = self.shown(self.least)
        return f"{least} or more" if self.most is None else f"{least} to {self.shown(self.most)}"

    def shown(self, value: T) -> str:
        return f"{value} ms" if self.parse is parse_duration_ms else str(value)


@dataclass(frozen=True)
class ConfigFamily:
    """Keys below ``prefix`` are not ours to list: whoever they are handed to knows them."""

    prefix: str
    doc: str
    scope: Scope = "job"


OPTIONS: dict[str, ConfigOption[Any]] = {}
#: An option's own key goes before the family that it is in (``spark.master``).
FAMILIES: list[ConfigFamily] = []


def _family(prefix: str, doc: str, *, scope: Scope = "job") -> str:
    FAMILIES.append(ConfigFamily(prefix, doc, scope))
    return prefix


def _option(
    key: str, default: T, parse: Callable[[str], T], doc: str,
    *, scope: Scope = "job", least: T | None = None, most: T | None = None,
) -> ConfigOption[T]:  # fmt: skip
    option = ConfigOption(key, default, parse, doc, scope, least, most)
    OPTIONS[key] = option
    return option


_str = str
CLUSTER_ID = _option("cluster.id", "penstock", _str, "Prefix of every NATS subject.", scope="cluster")
NATS_URL = _option("nats.url", "nats://127.0.0.1:4222", _str, "NATS servers, comma separated.")
NATS_CONNECT_TIMEOUT_MS = _option(
    "nats.connect.timeout",
    10_000,
    parse_duration_ms,
    "A service that cannot connect so long at start ends.",
    scope="cluster",
    least=1,
)
REDIS_URL = _option(
    "high-availability.redis.url", "redis://127.0.0.1:6379", _str, "Lease store.", scope="cluster"
)
STORAGE_URL = _option(
    "high-availability.storageDir",
    "",
    _str,
    "Object store: file:///…, s3://bucket/prefix, memory:///.",
    scope="cluster",
)
STORAGE_OPTIONS_PREFIX = _family(
    "storage.options.",
    "Of the object store at `high-availability.storageDir`: endpoint, region, keys ([deployment](deployment.md)).",
    scope="cluster",
)
LEASE_TTL_MS = _option(
    "high-availability.lease-duration",
    5_000,
    parse_duration_ms,
    "Expiry of a leader's lease.",
    scope="cluster",
    least=100,
)
REST_ADDRESS = _option(
    "rest.address", "", _str, "The cluster that programs are sent to; empty = one of their own."
)
REST_PORT = _option(
    "rest.port",
    8081,
    _parse_int,
    "Port of the dispatcher's REST API; 0 = any.",
    scope="cluster",
    least=0,
    most=65535,
)
REST_BIND = _option("rest.bind-address", "127.0.0.1", _str, "Address the REST API binds.", scope="cluster")
NUM_SLOTS = _option(
    "taskmanager.numberOfTaskSlots",
    1,
    _parse_int,
    "Slots a task manager offers.",
    scope="cluster",
    least=1,
    most=MOST_SUBTASKS,
)
TM_RESOURCE_ID = _option(
    "taskmanager.resource-id",
    "",
    _str,
    "Name of the task manager, unique in the cluster; empty = chosen.",
    scope="cluster",
)
TM_HOST = _option(
    "taskmanager.host", "127.0.0.1", _str, "Advertised address of the data port.", scope="cluster"
)
TM_BIND = _option("taskmanager.bind-host", "127.0.0.1", _str, "Address the data port binds.", scope="cluster")
TM_DATA_PORT = _option(
    "taskmanager.data.port", 0, _parse_int, "Data port; 0 = any.", scope="cluster", least=0, most=65535
)
TM_TMP_DIR = _option(
    "io.tmp.dirs", "", _str, "Folder for local state and sockets; empty = a temporary one.", scope="cluster"
)
TM_MEMORY = _option(
    "taskmanager.memory.process.size",
    0,
    parse_bytes,
    "Memory of one task manager; 0 = what the machine has.",
    scope="cluster",
)
TM_SLOT_TIMEOUT_MS = _option(
    "taskmanager.slot.timeout",
    10_000,
    parse_duration_ms,
    "An allocated slot that no master takes is free again.",
    scope="cluster",
    least=1,
)
TM_SPARK_CORES = _option(
    "taskmanager.spark.cores",
    0,
    _parse_int,
    "local[n] of a task manager's own Spark; 0 = its slots, at most the cores.",
    scope="cluster",
    least=0,
)
TM_SPARK_MEMORY = _option(
    "taskmanager.spark.memory",
    "2g",
    _parse_java_memory,
    "Java heap of a task manager's own Spark, as Java writes it.",
    scope="cluster",
)
TM_SPARK_IDLE_MS = _option(
    "taskmanager.spark.idle-timeout",
    600_000,
    parse_duration_ms,
    "A task manager's own Spark that no job uses so long is ended; 0 = never.",
    scope="cluster",
)
TM_MASTER_TIMEOUT_MS = _option(
    "taskmanager.master.timeout",
    900_000,
    parse_duration_ms,
    "Slots of a job with no master so long are ended.",
    scope="cluster",
    least=1,
)
HEARTBEAT_INTERVAL_MS = _option(
    "heartbeat.interval", 1_000, parse_duration_ms, "Between heartbeats.", scope="cluster", least=10
)
HEARTBEAT_TIMEOUT_MS = _option(
    "heartbeat.timeout",
    10_000,
    parse_duration_ms,
    "Then a process counts as lost.",
    scope="cluster",
    least=10,
)
PARALLELISM = _option("parallelism.default", 1, _parse_parallelism, "Parallelism of a job.")
MAX_PARALLELISM = _option(
    "pipeline.max-parallelism",
    -1,
    _parse_max_parallelism,
    "Number of key groups; -1 = chosen at first submission.",
)
WATERMARK_INTERVAL_MS = _option(
    "pipeline.auto-watermark-interval", 200, parse_duration_ms, "Between watermarks."
)
RUNTIME_MODE = _option(
    "execution.runtime-mode", "AUTOMATIC", one_of("STREAMING", "BATCH", "AUTOMATIC"), "How a job runs."
)
ENGINE = _option(
    "execution.engine",
    "auto",
    one_of("auto", "streaming", "spark"),
    "Which engine; auto: Spark when all sources are bounded (PENSTOCK_ENGINE in the environment says "
    "otherwise for jobs that name none).",
)
BACKFILL_ENGINE = _option(
    "execution.backfill.engine",
    "auto",
    one_of("auto", "spark", "none"),
    "Who reads the history of a job of history then live; auto: Spark where it is installed and can, else "
    "the streaming engine (none).",
)
BACKFILL_PARALLELISM = _option(
    "execution.backfill.parallelism",
    0,
    _parse_int,
    "Subtasks of a backfill's stages on Spark; 0 = the job's parallelism, at least 2.",
    least=0,
    most=MOST_SUBTASKS,
)
BACKFILL_EMIT = _option(
    "execution.backfill.emit", True, _parse_bool, "Whether a backfill writes the history's rows to the sinks."
)
_family("spark.", "Spark's own settings, for the job's session.")
_family("user.", "Your own.")
SPARK_MASTER = _option(
    "spark.master",
    "",
    _parse_spark_master,
    "A standing Spark: spark://host:port, k8s://…, yarn; local[n] = one for this job, inside its driver process; "
    "empty = the task manager's own.",
)
SPARK_REMOTE = _option(
    "spark.remote",
    "",
    _parse_spark_remote,
    "A standing Spark Connect server: sc://host:port; empty = the task manager's own.",
)
BUFFER_TIMEOUT_MS = _option(
    "execution.buffer-timeout", 5, parse_duration_ms, "Upper bound on how long an output waits; 0 = at once."
)
CHECKPOINT_INTERVAL_MS = _option(
    "execution.checkpointing.interval", 10_000, parse_duration_ms, "Between checkpoints; 0 = none."
)
CHECKPOINT_TIMEOUT_MS = _option(
    "execution.checkpointing.timeout", 600_000, parse_duration_ms, "Then a checkpoint is aborted.", least=10
)
CHECKPOINT_MIN_PAUSE_MS = _option(
    "execution.checkpointing.min-pause", 0, parse_duration_ms, "Between two checkpoints."
)
CHECKPOINT_MODE = _option(
    "execution.checkpointing.mode", "EXACTLY_ONCE", one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"), "Alignment."
)
CHECKPOINT_UNALIGNED = _option(
    "execution.checkpointing.unaligned.enabled",
    False,
    _parse_bool,
    "Barriers may overtake rows, which are then saved in the checkpoint (savepoints stay aligned).",
)
CHECKPOINT_ALIGNED_TIMEOUT_MS = _option(
    "execution.checkpointing.aligned-checkpoint-timeout",
    0,
    parse_duration_ms,
    "So long an unaligned checkpoint tries to be an aligned one.",
)
CHECKPOINT_DIR = _option(
    "execution.checkpointing.dir",
    "",
    _refused("checkpoints lie below high-availability.storageDir, with the decision log that names them"),
    "Not settable: checkpoints lie below `high-availability.storageDir`.",
)
INCREMENTAL = _option(
    "execution.checkpointing.incremental",
    True,
    _parse_bool,
    "A checkpoint writes what changed since the last completed one; savepoints are always whole.",
)
CHECKPOINT_RETAINED = _option(
    "execution.checkpointing.num-retained",
    2,
    _parse_int,
    "Completed checkpoints kept; with one alone nothing is left when its objects are damaged.",
    least=1,
)
CHECKPOINT_MAX_CONCURRENT = _option(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    _parse_int,
    "Checkpoints in flight at once. More than one: not with unaligned ones; a min-pause makes it one.",
    least=1,
)
CHECKPOINT_TOLERABLE_FAILURES = _option(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    _parse_int,
    "In a row, before the job fails.",
    least=0,
)
SAVEPOINT_DIR = _option(
    "execution.checkpointing.savepoint-dir",
    "savepoints",
    _parse_folder,
    "Where savepoints go: a folder below `high-availability.storageDir`, or a URL.",
)
EXTERNALIZED_RETENTION = _option(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    one_of("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "Whether the last checkpoints stay when a job is cancelled or has failed.",
)
STATE_BACKEND = _option(
    "state.backend.type", "hashmap", one_of("hashmap", "leveldb"), "Where keyed state lives."
)
LEVELDB_CACHE_ENTRIES = _option(
    "state.backend.leveldb.cache-entries",
    200_000,
    _parse_int,
    "Live values of keyed state that one operator keeps in memory.",
    least=1,
)
STATE_MEMORY = _option(
    "state.backend.memory.per-slot",
    0,
    parse_bytes,
    "Memory for the state of a slot; above it cold rows of aggregations move to the local disk; 0 = no limit.",
)
LOCAL_RECOVERY = _option(
    "state.backend.local-recovery",
    False,
    _parse_bool,
    "Task managers keep copies of the last snapshots on their disk (io.tmp.dirs) and restore from them.",
)
RECOVERY_PATH = _option(
    "execution.state-recovery.path", "", _str, "A savepoint or checkpoint that a new job starts from."
)
RECOVERY_IGNORE_UNCLAIMED = _option(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    _parse_bool,
    "Drop state of operators that the job does not have any more (else it is refused).",
)
FAILOVER_STRATEGY = _option(
    "jobmanager.execution.failover-strategy",
    "region",
    one_of("region", "full"),
    "What restarts after a failure: what is connected with it, or the whole job.",
)
RESTART_STRATEGY = _option(
    "restart-strategy.type",
    "exponential-delay",
    one_of("none", "fixed-delay", "exponential-delay", "failure-rate"),
    "What happens after a failure.",
)
RESTART_FIXED_ATTEMPTS = _option(
    "restart-strategy.fixed-delay.attempts", 1, _parse_int, "Restarts allowed.", least=0
)
RESTART_FIXED_DELAY_MS = _option(
    "restart-strategy.fixed-delay.delay", 1_000, parse_duration_ms, "Before each."
)
RESTART_EXP_INITIAL_MS = _option(
    "restart-strategy.exponential-delay.initial-backoff", 1_000, parse_duration_ms, "First delay.", least=1
)
RESTART_EXP_MAX_MS = _option(
    "restart-strategy.exponential-delay.max-backoff", 60_000, parse_duration_ms, "Greatest delay.", least=1
)
RESTART_EXP_MULTIPLIER = _option(
    "restart-strategy.exponential-delay.backoff-multiplier", 1.5, _parse_number, "Growth.", least=1.0
)
RESTART_EXP_RESET_MS = _option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    3_600_000,
    parse_duration_ms,
    "Stable for so long: back to the first delay.",
    least=1,
)
RESTART_EXP_ATTEMPTS = _option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    2**31 - 1,
    _parse_int,
    "Restarts allowed before a reset.",
    least=0,
)
RESTART_EXP_JITTER = _option(
    "restart-strategy.exponential-delay.jitter-factor",
    0.1,
    _parse_number,
    "Delays differ by this share, up or down.",
    least=0.0,
    most=1.0,
)
RESTART_RATE_MAX = _option(
    "restart-strategy.failure-rate.max-failures-per-interval", 1, _parse_int, "Failures allowed.", least=1
)
RESTART_RATE_INTERVAL_MS = _option(
    "restart-strategy.failure-rate.failure-rate-interval", 60_000, parse_duration_ms, "In this time.", least=1
)
RESTART_RATE_DELAY_MS = _option(
    "restart-strategy.failure-rate.delay", 1_000, parse_duration_ms, "Before each restart."
)
IDLE_TIMEOUT_MS = _option(
    "table.exec.source.idle-timeout",
    5_000,
    parse_duration_ms,
    "A caught-up split is idle after this; 0 = never.",
)
STATE_TTL_MS = _option(
    "table.exec.state.ttl", 0, parse_duration_ms, "State of unwindowed SQL operators; 0 = kept."
)
SOURCE_PUSH_DOWN = _option(
    "table.optimizer.source.push-down-enabled",
    True,
    _parse_bool,
    "Sources deliver only the columns, fields and rows that the query reads.",
)
LOCAL_TIME_ZONE = _option("table.local-time-zone", "UTC", _str, "Session time zone.")
LATE_TABLE = _option(
    "table.exec.late-data.table", "", _str, "Table that receives rows later than every window of theirs."
)
JOIN_UNBOUNDED_STATE = _option(
    "table.exec.join.unbounded-state",
    "refuse",
    one_of("refuse", "allow"),
    "A join without window, time bound or TTL over unbounded input.",
)
ASYNC_OPERATIONS = _option(
    "table.exec.async-scalar.max-concurrent-operations",
    10,
    _parse_int,
    "Calls of an async Python function that are under way at once, a subtask.",
    least=1,
)
ASYNC_TIMEOUT_MS = _option(
    "table.exec.async-scalar.timeout",
    180_000,
    parse_duration_ms,
    "A call of an async Python function fails after so long.",
    least=1,
)
ON_ERROR = _option(
    "table.exec.on-error",
    "fail",
    one_of("fail", "skip", "dead-letter"),
    "A row whose expression or function fails in a SQL operator.",
)
NETWORK_MEMORY = _option(
    "taskmanager.memory.network.size", 64 * 1024**2, parse_bytes, "Network buffers of a slot.", least=1024**2
)
DML_SYNC = _option(
    "table.dml-sync", False, _parse_bool, "SQL client: await every INSERT, not only bounded ones."
)
EXPLAIN_SPARK = _option(
    "table.explain.spark-plan",
    True,
    _parse_bool,
    "EXPLAIN of a job for Spark shows Spark's own plan too; the first one starts a Java.",
)
PIPELINE_NAME = _option("pipeline.name", "", _str, "Name of the job.")
OBJECT_REUSE_CHAINING = _option("pipeline.operator-chaining.enabled", True, _parse_bool, "Chain operators.")
METRICS_FLINK_NAMES = _option(
    "metrics.flink-names",
    False,
    _parse_bool,
    "`GET /metrics` shows them below `flink_` too, where dashboards and alerts may look.",
    scope="cluster",
)
SLOT_REQUEST_NOTICE_MS = _option(
    "slot.request.notice",
    2_000,
    parse_duration_ms,
    "Then a waiting job says for what it waits.",
    scope="cluster",
)


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Values of YAML, JSON or Python as configuration values."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in config.items()}


def check_keys(config: Mapping[str, Any]) -> None:
    """SpecError for an unknown key of a family we know, or one that is nearly a known key
    (typos), with the nearest name; and for a known key whose value does not fit. Other
    families are somebody else's."""
    families = {k.split(".", 1)[0] for k in (*OPTIONS, *(family.prefix for family in FAMILIES))}
    for key in config:
        known = key in OPTIONS or _family_of(key) is not None
        if not known and (key.split(".", 1)[0] in families or _nearly_known(key)):
            raise SpecError(
                f"unknown configuration key '{key}'",
                expected="a key of docs/configuration.md (your own: 'user.…')",
                got=repr(key),
                remedy=nearest(key, OPTIONS),
            )
        if key in OPTIONS:
            OPTIONS[key].read(config)


def check_job(config: Mapping[str, Any]) -> None:
    """``check_keys``, and SpecError for what a job cannot decide or what contradicts itself."""
    check_keys(config)
    for key in config:
        if is_cluster_option(key):
            raise SpecError(
                f"'{key}' is the cluster's, a job cannot set it",
                expected="options of jobs (docs/configuration.md says whose an option is)",
                # What is not ours to list may be a secret.
                got=f"{key} = {config[key]}" if key in OPTIONS else key,
                where=f"configuration key '{key}'",
                remedy="give it to the services: in their configuration file, or penstock up -D key=value",
            )
    _check_backoff(config)


def check_cluster(config: Mapping[str, Any]) -> None:
    """``check_keys`` of a service's configuration, which jobs inherit from, and SpecError for
    what contradicts itself."""
    check_keys(config)
    _check_order(config, HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS)
    _check_backoff(config)


def _check_backoff(config: Mapping[str, Any]) -> None:
    # What one of them leaves out may come from elsewhere: a job inherits from its cluster.
    if RESTART_EXP_INITIAL_MS.key in config and RESTART_EXP_MAX_MS.key in config:
        _check_order(config, RESTART_EXP_INITIAL_MS, RESTART_EXP_MAX_MS)


def _check_order(config: Mapping[str, Any], lower: ConfigOption[int], upper: ConfigOption[int]) -> None:
    low, high = lower.read(config), upper.read(config)
    if low > high:
        raise SpecError(
            f"'{lower.key}' is above '{upper.key}'",
            expected=f"at most {upper.shown(high)}",
            got=lower.shown(low),
            where=f"configuration key '{lower.key}'",
            remedy=f"lower it, or raise '{upper.key}'",
        )


def is_cluster_option(key: str) -> bool:
    of = OPTIONS.get(key) or _family_of(key)
    return of is not None and of.scope == "cluster"


def _family_of(key: str) -> ConfigFamily | None:
    return next((family for family in FAMILIES if key.startswith(family.prefix)), None)


def _nearly_known(key: str) -> bool:
    import difflib

    return bool(difflib.get_close_matches(key.lower(), [k.lower() for k in OPTIONS], n=1, cutoff=0.85))


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


def markdown() -> str:
    """``docs/configuration.md``: every key, its default and meaning."""
    lines = [
        "# Configuration",
        "",
        "Made by `python -m penstock.config > docs/configuration.md`; a test holds it to the code.",
        "",
        "Keys are Flink's where Flink has one. A service reads them from the YAML file given with",
        "`--config` (or named by `PENSTOCK_CONF`) and from `-D key=value`; a job from its spec's `config`,",
        "from `SET 'key' = 'value'` in SQL, and from the CLI's `-D`. Durations: `200 ms`, `10 s`, `3 h`",
        "(a bare number is milliseconds). Sizes: `64 mb`. Keys below `user.` are your own.",
        "",
        "Options of the cluster are read by its services when they start; a job that sets one is refused.",
        "",
        "| key | default | allowed | of | meaning |",
        "|---|---|---|---|---|",
    ]
    rows = {f"{family.prefix}…": f" |  | {family.scope} | {family.doc}" for family in FAMILIES}
    for option in OPTIONS.values():
        shown = f"`{option.shown(option.default)}`" if option.default != "" else ""
        rows[option.key] = f"{shown} | {option.bounds()} | {option.scope} | {option.doc}"
    lines += [f"| `{key}` | {row} |" for key, row in sorted(rows.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
