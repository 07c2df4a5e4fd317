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

#: Units that take longest, the longest first (of a run of all tests with --junitxml). Those that start a Spark and those
#: that wait for a cluster alternate, so that a worker computes while another waits.
LONGEST = (
    "spark",
    "tests/e2e/test_spark.py",
    "tests/e2e/test_failures.py",
    "tests/e2e/test_spark_libraries.py",
    "tests/e2e/test_backfill.py",
    "kafka",
    "tests/extending/test_extending.py",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/test_kafka.py",
    "tests/connectors/postgres/test_postgres_cdc.py",
    "tests/connectors/postgres/test_jdbc_servers.py",
    "tests/e2e/test_python_steps.py",
    "tests/e2e/test_lakehouse.py",
    "tests/cli/test_commands.py",
    "tests/state/test_resident_memory.py",
    "tests/sql/test_nexmark.py",
    "tests/e2e/test_savepoints.py",
    "tests/connectors/web/test_search.py",
    "tests/e2e/test_search.py",
    "tests/e2e/test_postgres_cdc.py",
    "tests/state/test_eviction.py",
    "golden-two",
    "tests/e2e/test_redis.py",
    "tests/state/test_waiting_memory.py",
    "tests/api/test_shipped_code.py",
    "tests/connectors/test_iceberg.py",
    "tests/chaos/test_smoke.py",
    "tests/services/jobmanager/test_cluster.py",
    "tests/e2e/test_spark_bad_input.py",
    "tests/cli/test_watched_select.py",
    "golden-batch",
    "tests/simulation/test_runs.py",
    "tests/connectors/test_delta.py",
    "tests/sql/test_long_queries.py",
    "tests/e2e/test_restart_strategies.py",
    "tests/state/test_eviction_windows.py",
    "tests/e2e/test_main_job.py",
    "tests/e2e/test_resource_provider.py",
    "tests/e2e/test_dashboard.py",
    "tests/runtime/test_unaligned.py",
    "tests/embedded/test_cluster.py",
    "tests/api/test_own_classes.py",
    "tests/state/test_waiting_rows.py",
    "tests/services/jobmanager/test_master_failures.py",
    "tests/connectors/test_conformance.py",
    "tests/state/test_eviction_by_window.py",
    "tests/connectors/helper/test_helper.py",
    "tests/e2e/test_wheel.py",
    "tests/e2e/test_sql_gateway.py",
    "tests/sql/test_random_queries.py",
    "tests/services/common/test_processes.py",
)  # fmt: skip

_GOLDEN = "tests/golden/test_golden.py"
#: Tests outside tests/spark that open the session of the process: how they end, and where they lie.
_ON_SPARK = ("::test_a_job_on_spark", "::test_rows_that_do_not_meet_on_spark_are_found", "[spark]")
_ON_SPARK_BESIDE = ("tests/plan/outside/", "tests/testing/test_operator_kit.py", "tests/table/test_rows.py")


def unit_of(nodeid: str) -> str:
    """Tests of one unit run in one worker. All that share the Spark session of the process are one unit: it takes
    seconds to start and minutes to warm up; likewise those that share a Kafka broker and its schema registry.
    The golden cases are one unit an engine; else a file is one."""
    file = nodeid.partition("::")[0]
    if nodeid.endswith(_ON_SPARK) and file.startswith(_ON_SPARK_BESIDE):
        return "spark"
    if file.startswith("tests/connectors/kafka/") or file == "tests/compat/test_kafka_examples.py":
        return "kafka"
    if file == _GOLDEN and nodeid.endswith("]"):
        engine = nodeid[:-1].rpartition("-")[2]
        return "spark" if engine == "spark" else f"golden-{engine}"
    return "spark" if file.startswith("tests/spark/") or file == "tests/golden/test_recorded.py" else file


def rank(nodeid: str) -> tuple[int, int]:
    """Tests of a smaller one run earlier."""
    unit = unit_of(nodeid)
    if unit in LONGEST:
        return 1, LONGEST.index(unit)
    return (0, 0) if unit.startswith(tuple(f"tests/{name}/" for name in PURE)) else (2, 0)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """pytest-xdist's ``--dist loadfile`` with these units in the place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def in_order(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))
