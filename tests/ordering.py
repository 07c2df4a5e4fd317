"""In which order the tests run, and which of them stay together in one worker.

What needs no server runs first, so that most mistakes show at once; then the units that take longest, so that
at the end no worker waits for another that has just begun one of them; then the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest

#: Packages of pure cores; the Makefile's ``quick`` runs them alone.
PURE = (
    "columnar",
    "formats",
    "functions",
    "jobgraph",
    "messages",
    "operators",
    "plan",
    "snapshots",
    "store",
    "types",
)

#: Files whose jobs run on the Spark of one task manager, ``spark_cluster`` of tests/e2e/conftest.py, in this order: the
#: last kills its Spark, its job manager and its task manager.
ON_SPARK_CLUSTER = (
    "tests/e2e/test_python_steps.py",
    "tests/e2e/test_spark_libraries.py",
    "tests/e2e/test_main_job.py",
    "tests/e2e/test_spark.py",
    "tests/e2e/test_backfill.py",
)
#: Units that take longest in make test, the longest first (of a run with --junitxml): at the end no worker waits for another
#: that has just begun one of them.
LONGEST = (
    "spark",
    "spark-cluster",
    "databases",
    "kafka",
    "tests/e2e/test_failures.py",
    "tests/e2e/test_bad_input.py",
    "tests/state/test_eviction_windows.py",
    "tests/cli/test_commands.py",
    "tests/sql/test_long_queries.py",
    "tests/e2e/test_dashboard.py",
    "tests/state/test_resident_memory.py",
    "tests/e2e/test_restart_strategies.py",
    "tests/extending/test_extending.py",
    "tests/e2e/test_postgres_cdc.py",
    "tests/e2e/test_servers_away.py",
    "tests/sql/test_python_functions.py",
    "tests/chaos/test_smoke.py",
    "golden-two",
    "tests/connectors/test_iceberg.py",
    "tests/connectors/test_conformance.py",
    "tests/e2e/test_savepoints.py",
    "tests/state/test_waiting_rows.py",
    "tests/state/test_eviction.py",
    "tests/connectors/helper/test_helper.py",
    "tests/services/jobmanager/test_cluster.py",
    "tests/state/test_eviction_by_window.py",
    "tests/simulation/test_runs.py",
    "tests/state/test_waiting_memory.py",
    "tests/state/test_keyed_state.py",
    "tests/state/test_eviction_over.py",
    "tests/api/test_semantics.py",
    "tests/api/test_cluster.py",
    "tests/cli/test_watched_select.py",
    "tests/e2e/test_wheel.py",
    "tests/runtime/test_unaligned.py",
    "golden-batch",
    "tests/runtime/test_checkpoints.py",
    "golden-duckdb",
    "tests/e2e/test_lakehouse.py",
    "tests/services/taskmanager/test_service.py",
    "tests/services/common/test_processes.py",
    "tests/fuzz/test_queries.py",
    "tests/connectors/web/test_nats_core.py",
    "tests/e2e/test_resource_provider.py",
    "tests/sql/test_random_queries.py",
    "tests/sql/test_nexmark.py",
    "tests/connectors/web/test_redis.py",
    "tests/cli/test_init.py",
    "tests/state/test_cold_tier.py",
    "tests/connectors/web/test_search.py",
    "tests/connectors/nats/test_nats_exactly_once.py",
    "tests/test_log_events.py",
    "tests/e2e/test_sql_gateway.py",
    "tests/api/test_own_classes.py",
    "tests/extending/test_connector_kits_find.py",
    "tests/security/test_locked_cluster.py",
    "tests/connectors/test_delta.py",
    "tests/api/test_shipped_code.py",
    "tests/table/test_plans.py",
    "tests/runtime/test_slot.py",
    "tests/e2e/test_slot_output.py",
)  # fmt: skip

_GOLDEN = "tests/golden/test_golden.py"
#: Tests outside tests/spark that open the session of the process: how they end, and where they lie.
_ON_SPARK = (
    "::test_a_job_on_spark",
    "::test_rows_that_do_not_meet_on_spark_are_found",
    "::test_what_a_page_shows_passes_its_kit[debounce]",
    "[spark]",
)
_ON_SPARK_BESIDE = (
    "tests/plan/outside/",
    "tests/extending/test_extending.py",
    "tests/testing/test_operator_kit.py",
    "tests/table/test_rows.py",
)
#: Files that use the shared Kafka broker. A broker that only waits takes 3 % of a core.
_ON_KAFKA = ("tests/connectors/kafka/", "tests/compat/test_kafka_examples.py", "tests/e2e/test_kafka.py")
#: Files that use the shared PostgreSQL and MariaDB.
_ON_DATABASES = (
    "tests/connectors/postgres/test_",
    "tests/connectors/mysql/test_mysql_cdc.py",
    "tests/sql/test_jdbc_catalog.py",
)


def unit_of(nodeid: str) -> str:
    """Tests of one unit run in one worker. Those that share the Spark session of the process are one, which comes first: it
    takes seconds to start and minutes to warm up, half a minute of CPU time; likewise those that share a Kafka broker
    and its schema registry, or a PostgreSQL and a MariaDB. The golden cases are one unit an engine; else a file is one."""
    file = nodeid.partition("::")[0]
    if nodeid.endswith(_ON_SPARK) and file.startswith(_ON_SPARK_BESIDE):
        return "spark"
    if file in ON_SPARK_CLUSTER:
        return "spark-cluster"
    if file.startswith(_ON_KAFKA):
        return "kafka"
    if file == _GOLDEN and nodeid.endswith("]"):
        engine = nodeid[:-1].rpartition("-")[2]
        return "spark" if engine == "spark" else f"golden-{engine}"
    if file == "tests/golden/test_recorded.py":
        return "spark"
    if file.startswith(_ON_DATABASES):
        return "databases"
    return "spark" if file.startswith("tests/spark/") else file


def rank(nodeid: str) -> tuple[int, int, int]:
    """Tests of a smaller one run earlier."""
    unit, file = unit_of(nodeid), nodeid.partition("::")[0]
    place = ON_SPARK_CLUSTER.index(file) if file in ON_SPARK_CLUSTER else 0
    if unit in LONGEST:
        return 1, LONGEST.index(unit), place
    return (0, 0, 0) if unit.startswith(tuple(f"tests/{name}/" for name in PURE)) else (2, 0, 0)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """pytest-xdist's ``--dist loadfile`` with these units in the place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def in_order(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))
