"""Options of the cluster: its services read them when they start, a job that sets one is refused."""

from __future__ import annotations

from penstock.config.option import define, define_family
from penstock.config.values import (
    MOST_SUBTASKS,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
    parse_java_memory,
)

CLUSTER_ID = define("cluster.id", "penstock", str, "Prefix of every NATS subject.", scope="cluster")
NATS_CONNECT_TIMEOUT_MS = define(
    "nats.connect.timeout",
    10_000,
    parse_duration_ms,
    "A service that cannot connect so long at start ends.",
    scope="cluster",
    least=1,
)
REDIS_URL = define(
    "high-availability.redis.url", "redis://127.0.0.1:6379", str, "Lease store.", scope="cluster"
)
STORAGE_URL = define(
    "high-availability.storageDir",
    "",
    str,
    "Object store: file:///…, s3://bucket/prefix, memory:///.",
    scope="cluster",
)
STORAGE_OPTIONS_PREFIX = define_family(
    "storage.options.",
    "Of the object store at `high-availability.storageDir`: endpoint, region, keys ([deployment](deployment.md)).",
    scope="cluster",
)
LEASE_TTL_MS = define(
    "high-availability.lease-duration",
    5_000,
    parse_duration_ms,
    "Expiry of a leader's lease.",
    scope="cluster",
    least=100,
)
REST_PORT = define(
    "rest.port",
    8081,
    parse_int,
    "Port of the dispatcher's REST API; 0 = any.",
    scope="cluster",
    least=0,
    most=65535,
)
REST_BIND = define("rest.bind-address", "127.0.0.1", str, "Address the REST API binds.", scope="cluster")
NUM_SLOTS = define(
    "taskmanager.numberOfTaskSlots",
    1,
    parse_int,
    "Slots a task manager offers.",
    scope="cluster",
    least=1,
    most=MOST_SUBTASKS,
)
TM_RESOURCE_ID = define(
    "taskmanager.resource-id",
    "",
    str,
    "Name of the task manager, unique in the cluster; empty = chosen.",
    scope="cluster",
)
TM_HOST = define(
    "taskmanager.host", "127.0.0.1", str, "Advertised address of the data port.", scope="cluster"
)
TM_BIND = define("taskmanager.bind-host", "127.0.0.1", str, "Address the data port binds.", scope="cluster")
TM_DATA_PORT = define(
    "taskmanager.data.port", 0, parse_int, "Data port; 0 = any.", scope="cluster", least=0, most=65535
)
TM_TMP_DIR = define(
    "io.tmp.dirs", "", str, "Folder for local state and sockets; empty = a temporary one.", scope="cluster"
)
TM_SLOT_TIMEOUT_MS = define(
    "taskmanager.slot.timeout",
    10_000,
    parse_duration_ms,
    "An allocated slot that no master takes is free again.",
    scope="cluster",
    least=1,
)
TM_OUTPUT_SIZE = define(
    "taskmanager.slot.output.max-size",
    16 * 1024**2,
    parse_bytes,
    "Of one file with what a slot prints; a full one is followed by the next.",
    scope="cluster",
    least=4096,
)
TM_OUTPUT_FILES = define(
    "taskmanager.slot.output.max-files",
    4,
    parse_int,
    "Files of a slot's output that are kept, the newest ones.",
    scope="cluster",
    least=1,
)
TM_SPARK_CORES = define(
    "taskmanager.spark.cores",
    0,
    parse_int,
    "local[n] of a task manager's own Spark; 0 = its slots, at most the cores.",
    scope="cluster",
    least=0,
)
TM_SPARK_MEMORY = define(
    "taskmanager.spark.memory",
    "2g",
    parse_java_memory,
    "Java heap of a task manager's own Spark, as Java writes it.",
    scope="cluster",
)
TM_SPARK_IDLE_MS = define(
    "taskmanager.spark.idle-timeout",
    600_000,
    parse_duration_ms,
    "A task manager's own Spark that no job uses so long is ended; 0 = never.",
    scope="cluster",
)
TM_MASTER_TIMEOUT_MS = define(
    "taskmanager.master.timeout",
    900_000,
    parse_duration_ms,
    "Slots of a job with no master so long are ended.",
    scope="cluster",
    least=1,
)
HEARTBEAT_INTERVAL_MS = define(
    "heartbeat.interval", 1_000, parse_duration_ms, "Between heartbeats.", scope="cluster", least=10
)
HEARTBEAT_TIMEOUT_MS = define(
    "heartbeat.timeout",
    10_000,
    parse_duration_ms,
    "Then a process counts as lost.",
    scope="cluster",
    least=10,
)
METRICS_FLINK_NAMES = define(
    "metrics.flink-names",
    False,
    parse_bool,
    "`GET /metrics` shows them below `flink_` too, where dashboards and alerts may look.",
    scope="cluster",
)
SLOT_REQUEST_NOTICE_MS = define(
    "slot.request.notice",
    2_000,
    parse_duration_ms,
    "Then a waiting job says for what it waits.",
    scope="cluster",
)
