"""Options of the cluster. Its services read them when they start; a job that sets one is refused."""

from __future__ import annotations

from penstock.config.option import define, define_family
from penstock.config.values import (
    MOST_SUBTASKS,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
    parse_java_memory,
    parse_number,
)

CLUSTER_ID = define(
    "cluster.id",
    "penstock",
    str,
    "Prefix of every NATS subject; separates clusters on one server.",
    scope="cluster",
)
NATS_CONNECT_TIMEOUT_MS = define(
    "nats.connect.timeout",
    10_000,
    parse_duration_ms,
    "A service ends when it cannot connect for this time at its start.",
    scope="cluster",
    least=1,
)
REDIS_URL = define(
    "high-availability.redis.url",
    "redis://127.0.0.1:6379",
    str,
    "Redis or Valkey that holds the leases.",
    scope="cluster",
)
STORAGE_URL = define(
    "high-availability.storageDir",
    "",
    str,
    "Object store of the cluster: file:///…, s3://bucket/prefix, memory:///.",
    scope="cluster",
)
STORAGE_OPTIONS_PREFIX = define_family(
    "storage.options.",
    "Options of the object store at `high-availability.storageDir`: endpoint, region, keys ([deployment](deployment.md)).",
    scope="cluster",
)
LEASE_TTL_MS = define(
    "high-availability.lease-duration",
    5_000,
    parse_duration_ms,
    "Time after which a leader's lease expires unless it is renewed.",
    scope="cluster",
    least=100,
)
SECRETS_FOLDER = define(
    "secrets.folder",
    "",
    str,
    "Folder with a file for each secret, as Kubernetes and Docker mount them ([secrets](secrets.md)).",
    scope="cluster",
)
SECRETS_FILE = define(
    "secrets.file",
    "",
    str,
    "YAML or JSON file of secrets, `NAME: value` ([secrets](secrets.md)).",
    scope="cluster",
)
SECRETS_PREFIX = define(
    "secrets.environment-prefix",
    "PENSTOCK_SECRET_",
    str,
    "Secret `NAME` is the environment variable of this prefix and the name, with `_` for `.` and `-`.",
    scope="cluster",
)
REST_PORT = define(
    "rest.port",
    8081,
    parse_int,
    "Port of the dispatcher's REST API. 0: any free one.",
    scope="cluster",
    least=0,
    most=65535,
)
REST_BIND = define(
    "rest.bind-address", "127.0.0.1", str, "Address that the REST API listens on.", scope="cluster"
)
GATEWAY_PORT = define(
    "sql-gateway.endpoint.rest.port",
    8083,
    parse_int,
    "Port of the SQL gateway. 0: any free one.",
    scope="cluster",
    least=0,
    most=65535,
)
GATEWAY_BIND = define(
    "sql-gateway.endpoint.rest.bind-address",
    "127.0.0.1",
    str,
    "Address that the SQL gateway listens on.",
    scope="cluster",
)
GATEWAY_ADDRESS = define(
    "sql-gateway.address",
    "",
    str,
    "Address of the SQL gateway to which the dispatcher relays the dashboard's statements (`/sql`). Empty: the one of this machine at "
    "`sql-gateway.endpoint.rest.port`; with authentication, none.",
    scope="cluster",
)
GATEWAY_IDLE_MS = define(
    "sql-gateway.session.idle-timeout",
    600_000,
    parse_duration_ms,
    "A session of the SQL gateway is closed, with its queries, when its client is silent for so long. 0: never.",
    scope="cluster",
    least=0,
)
GATEWAY_CHECK_MS = define(
    "sql-gateway.session.check-interval",
    60_000,
    parse_duration_ms,
    "How often the SQL gateway looks for sessions that are idle.",
    scope="cluster",
    least=100,
)
GATEWAY_SESSIONS = define(
    "sql-gateway.session.max-num",
    10_000,
    parse_int,
    "Sessions that may be open in the SQL gateway at once.",
    scope="cluster",
    least=1,
)
GATEWAY_THREADS = define(
    "sql-gateway.worker.threads.max",
    500,
    parse_int,
    "Statements that may run in the SQL gateway at once, each in a thread; a query runs until its rows are read.",
    scope="cluster",
    least=1,
)
HISTORY_PORT = define(
    "historyserver.web.port",
    8082,
    parse_int,
    "Port of the history server. 0: any free one.",
    scope="cluster",
    least=0,
    most=65535,
)
HISTORY_BIND = define(
    "historyserver.web.address",
    "127.0.0.1",
    str,
    "Address that the history server listens on.",
    scope="cluster",
)
HISTORY_ARCHIVE = define(
    "historyserver.archive.fs.dir",
    "",
    str,
    "URL of the object store whose ended jobs the history server shows (that of `high-availability.storageDir`).",
    scope="cluster",
)
NUM_SLOTS = define(
    "taskmanager.numberOfTaskSlots",
    1,
    parse_int,
    "Slots that a task manager offers.",
    scope="cluster",
    least=1,
    most=MOST_SUBTASKS,
)
TM_RESOURCE_ID = define(
    "taskmanager.resource-id",
    "",
    str,
    "Name of the task manager, unique in the cluster. Empty: chosen.",
    scope="cluster",
)
TM_HOST = define(
    "taskmanager.host",
    "127.0.0.1",
    str,
    "Address of the data port as others reach it; `auto`: that of the interface towards NATS.",
    scope="cluster",
)
TM_BIND = define(
    "taskmanager.bind-host", "127.0.0.1", str, "Address that the data port listens on.", scope="cluster"
)
TM_DATA_PORT = define(
    "taskmanager.data.port", 0, parse_int, "Data port. 0: any free one.", scope="cluster", least=0, most=65535
)
TM_TMP_DIR = define(
    "io.tmp.dirs", "", str, "Folder for local state and sockets. Empty: a temporary one.", scope="cluster"
)
TM_SLOT_TIMEOUT_MS = define(
    "taskmanager.slot.timeout",
    10_000,
    parse_duration_ms,
    "An allocated slot that no job master takes is free again after this time.",
    scope="cluster",
    least=1,
)
TM_OUTPUT_SIZE = define(
    "taskmanager.slot.output.max-size",
    16 * 1024**2,
    parse_bytes,
    "Size at which a file of a slot's output is followed by the next.",
    scope="cluster",
    least=4096,
)
TM_OUTPUT_FILES = define(
    "taskmanager.slot.output.max-files",
    4,
    parse_int,
    "Files of a slot's output that are kept; older ones are deleted.",
    scope="cluster",
    least=1,
)
TM_SPARK_CORES = define(
    "taskmanager.spark.cores",
    0,
    parse_int,
    "Cores of a task manager's own Spark. 0: as many as its slots, at most the cores of the machine.",
    scope="cluster",
    least=0,
)
TM_SPARK_MEMORY = define(
    "taskmanager.spark.memory",
    "2g",
    parse_java_memory,
    "Java heap of a task manager's own Spark, in Java's notation.",
    scope="cluster",
)
TM_SPARK_IDLE_MS = define(
    "taskmanager.spark.idle-timeout",
    600_000,
    parse_duration_ms,
    "A task manager's own Spark ends when no job used it for this time. 0: never.",
    scope="cluster",
)
TM_MASTER_TIMEOUT_MS = define(
    "taskmanager.master.timeout",
    900_000,
    parse_duration_ms,
    "The slots of a job end when they have heard of no job master for this time.",
    scope="cluster",
    least=1,
)
HEARTBEAT_INTERVAL_MS = define(
    "heartbeat.interval",
    1_000,
    parse_duration_ms,
    "Time between two heartbeats of a process.",
    scope="cluster",
    least=10,
)
HEARTBEAT_TIMEOUT_MS = define(
    "heartbeat.timeout",
    10_000,
    parse_duration_ms,
    "A process that sent no heartbeat for this time counts as lost.",
    scope="cluster",
    least=10,
)
METRICS_FLINK_NAMES = define(
    "metrics.flink-names",
    False,
    parse_bool,
    "`GET /metrics` shows every metric under Flink's name (`flink_…`) too.",
    scope="cluster",
)
RESOURCE_PROVIDER = define(
    "resourcemanager.provider",
    "",
    str,
    "The provider that starts and stops task managers as jobs need slots: `process` (on the resource manager's machine), or one of an "
    "installed package ([resource provider](extending/resource-provider.md)). Empty: none, task managers are started by hand.",
    scope="cluster",
)
RESOURCE_PROVIDER_PREFIX = define_family(
    "resourcemanager.provider.",
    "Options of the provider: `resourcemanager.provider.process.dir` is the folder for `process`.",
    scope="cluster",
)
TASKMANAGER_TIMEOUT_MS = define(
    "resourcemanager.taskmanager-timeout",
    30_000,
    parse_duration_ms,
    "A provider's task manager without work for this time is released.",
    scope="cluster",
)
TASKMANAGER_REGISTRATION_TIMEOUT_MS = define(
    "resourcemanager.taskmanager-registration.timeout",
    300_000,
    parse_duration_ms,
    "A provider's task manager that has not registered by then is given up, and another one is started.",
    scope="cluster",
    least=1,
)
START_WORKER_MAX_FAILURE_RATE = define(
    "resourcemanager.start-worker.max-failure-rate",
    10.0,
    parse_number,
    "When more task managers a minute end or do not register, further ones are started only after the interval below.",
    scope="cluster",
    least=0.0,
)
START_WORKER_RETRY_MS = define(
    "resourcemanager.start-worker.retry-interval",
    3_000,
    parse_duration_ms,
    "From a failure of the provider, or too many failed task managers, to the next attempt.",
    scope="cluster",
    least=1,
)
MIN_SLOTS = define(
    "slotmanager.number-of-slots.min",
    0,
    parse_int,
    "Slots that a provider keeps running without jobs.",
    scope="cluster",
    least=0,
)
MAX_SLOTS = define(
    "slotmanager.number-of-slots.max",
    2**31 - 1,
    parse_int,
    "The most slots of the cluster up to which a provider starts task managers.",
    scope="cluster",
    least=1,
)
REDUNDANT_TASKMANAGERS = define(
    "slotmanager.redundant-taskmanager-num",
    0,
    parse_int,
    "Task managers that a provider keeps free, so that jobs recover from the loss of one without waiting for a start.",
    scope="cluster",
    least=0,
)
SLOT_REQUEST_NOTICE_MS = define(
    "slot.request.notice",
    2_000,
    parse_duration_ms,
    "A job that waits longer than this for slots shows what it waits for.",
    scope="cluster",
)

TRACE_REPORTERS = define(
    "traces.reporters",
    "",
    str,
    "`otel`: spans of submissions, starts, checkpoints and recoveries go to a collector of OpenTelemetry ([traces](operations.md#traces)). "
    "Needs the extra `otel`.",
    scope="cluster",
)
TRACE_ENDPOINT = define(
    "traces.reporter.otel.exporter.endpoint",
    "http://localhost:4318/v1/traces",
    str,
    "URL to which spans are sent by OTLP over HTTP.",
    scope="cluster",
)
TRACE_SERVICE_NAME = define(
    "traces.reporter.otel.service.name",
    "penstock",
    str,
    "Beginning of the `service.name` of spans; `-dispatcher`, `-jobmanager` follow.",
    scope="cluster",
)
