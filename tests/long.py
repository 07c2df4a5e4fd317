"""Which tests `make test` leaves to `make test-long`, and which test of `make test` proves the same more cheaply.

A test is long when it takes a good part of a minute, and a cheaper one runs the same code: one more kill where one is
survived already, one more engine's start for a message that a test without a cluster reads, one more case of a matrix
that the code does not tell apart. Each connector with its real server, each operator's kit, each engine, kill and
restore, and the main job keep a test in `make test`.

Matrices that leave cases out by a rule of their own (`tests/golden`) mark them where they stand.
"""

from __future__ import annotations

_STATE = "tests/state"
_KIT = "test_two_crashes_keep_the_guarantee", "test_a_crash_behind_each_step_keeps_the_guarantee"


def _crashes(*kits: str) -> dict[str, str]:
    """A second crash while the first is mended; one crash at each step stays."""
    return {f"{kit}::{_KIT[0]}": f"{kit}::{_KIT[1]}" for kit in kits}


def _cases(test: str, left: tuple[str, ...], proof: str) -> dict[str, str]:
    """Some cases of a test; ``proof``: the case that stays."""
    return {f"{test}[{case}]": f"{test}[{proof}]" for case in left}


#: A test, or a case of one → what proves the same in `make test`.
PROVED: dict[str, str] = {
    # Spark of a cluster: one restart, one traceback, one cancel stay; examples run whole.
    "tests/e2e/test_spark.py::test_a_dead_spark_restarts_the_job":
        "tests/e2e/test_spark.py::test_a_stream_on_spark_goes_on_where_it_stood",
    "tests/e2e/test_spark.py::test_a_standing_cluster_loses_a_worker":
        "tests/e2e/test_spark.py::test_history_on_a_standing_cluster",
    "tests/e2e/test_spark_bad_input.py::test_functions_that_fail_on_the_executors":
        "tests/spark/test_user_functions.py::test_a_package_that_executors_lack",
    "tests/e2e/test_spark_libraries.py::test_a_model_trained_on_spark_scores_the_stream":
        "tests/spark/test_model.py::test_scores_are_those_of_spark",
    "tests/e2e/test_spark_libraries.py::test_connected_components_are_those_of_union_find":
        "tests/spark/test_components.py::test_components",
    "tests/e2e/test_backfill.py::test_an_aggregation_goes_on_from_the_history":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_backfill.py::test_the_users_traceback_comes_first":
        "tests/e2e/test_spark.py::test_the_users_traceback_comes_first",
    "tests/e2e/test_backfill.py::test_the_example":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_kafka.py::test_spark_reads_and_writes_bounded_topics":
        "tests/spark/test_connectors.py::test_redis_is_written_and_its_streams_are_read",
    "tests/spark/test_streaming.py::test_supported[first_row_of_a_window]":
        "tests/spark/test_streaming.py::test_a_process_function_with_timers",
    **_cases("tests/spark/test_streaming.py::test_supported", ("stateless",), "tumble"),
    **_cases("tests/spark/test_semantics.py::test_the_rows_are_flinks", ("BATCH",), "None"),
    **_cases("tests/spark/test_connectors.py::test_lakehouse_tables_are_written_and_read", ("iceberg",), "delta"),
    # Masters and task managers under the main job that smaller jobs show too.
    "tests/e2e/test_failures.py::test_a_stopped_job_manager_is_refused_when_it_wakes":
        "tests/services/jobmanager/test_cluster.py::test_a_stopped_leader_is_replaced_and_decides_nothing_when_it_wakes",
    "tests/e2e/test_failures.py::test_a_third_job_waits_until_a_task_manager_comes":
        "tests/e2e/test_resource_provider.py::test_workers_come_for_a_job_and_go_when_it_has_ended",
    # Killed servers, once more with another connector: its own tests crash the sink and kill the server.
    "tests/e2e/test_search.py::test_a_killed_slot_and_a_killed_server_leave_every_document_right":
        "tests/e2e/test_redis.py::test_killed_slots_and_a_killed_server_leave_every_sum_right",
    "tests/e2e/test_mysql_cdc.py::test_killed_slots_and_a_killed_server_lose_and_double_no_change":
        "tests/connectors/mysql/test_mysql_cdc.py::test_the_rows_and_all_changes_come_exactly_once_over_restores",
    "tests/e2e/test_kafka.py::test_sums_are_kept_by_key_by_two_statements_into_one_topic":
        "tests/connectors/kafka/test_kafka_upsert.py::test_a_killed_job_keeps_exact_rows",
    "tests/e2e/test_kafka.py::test_a_savepoint_goes_on_at_another_parallelism":
        "tests/e2e/test_postgres_cdc.py::test_a_savepoint_goes_on_at_another_parallelism_and_shows_no_password",
    "tests/e2e/test_lakehouse.py::test_killed_slots_lose_and_double_nothing[Iceberg]":
        "tests/e2e/test_lakehouse.py::test_killed_slots_lose_and_double_nothing[Delta]",
    **_cases(
        "tests/e2e/test_connected_examples.py::test_the_flights_from_kafka_go_where_one_word_says", ("Topic", "Lake"), "Database"
    ),
    "tests/extending/test_extending.py::test_state_in_the_packages_backend_outlives_a_killed_task_manager":
        "tests/extending/test_extending.py::test_a_real_cluster_keeps_state_in_the_packages_backend",
    "tests/connectors/postgres/test_jdbc_servers.py::TestLookupByTwo::test_it_runs_as_it_declares":
        "tests/connectors/postgres/test_jdbc_servers.py::TestLookup::test_it_runs_as_it_declares",
    **_crashes(
        "tests/connectors/kafka/test_kafka_conformance.py::TestKafkaSinkAtLeastOnce",
        "tests/connectors/kafka/test_kafka_conformance.py::TestKafkaSinkExactlyOnce",
        "tests/connectors/postgres/test_jdbc_servers.py::TestSink",
        "tests/connectors/postgres/test_jdbc_servers.py::TestExactlyOnceSink",
        "tests/connectors/test_conformance.py::TestToNatsAtLeastOnce",
        "tests/connectors/test_iceberg.py::TestIcebergSink",
    ),
    # Memory as it is measured: the same rows from disk are proved at a tiny limit (tests/state/test_eviction*.py).
    **_cases(f"{_STATE}/test_resident_memory.py::test_ten_times_the_limit", ("aggregate", "windows"), "join"),
    **_cases(
        f"{_STATE}/test_waiting_memory.py::test_ten_times_the_limit", ("temporal-join", "interval-join"), "window-join"
    ),
    # Long programs: each form once.
    **_cases("tests/sql/test_long_queries.py::test_chains_of_operators", ("joined",), "wrapping"),
    **_cases("tests/sql/test_long_queries.py::test_conditions", ("or",), "and"),
    **_cases("tests/sql/test_long_queries.py::test_many_choices", ("not in",), "in"),
    **_cases("tests/sql/test_long_queries.py::test_many_choices", ("case of a value",), "searched case"),
    # The other colours of the same pages.
    "tests/e2e/test_dashboard.py::test_every_page_is_without_errors_and_accessible[dark]":
        "tests/e2e/test_dashboard.py::test_every_page_is_without_errors_and_accessible[light]",
    # The other signal of two that one handler takes.
    "tests/embedded/test_cluster.py::test_a_stopped_command_leaves_nothing_behind[15]":
        "tests/embedded/test_cluster.py::test_a_stopped_command_leaves_nothing_behind[2]",
    # The other way to prove a service's identity to NATS; tests/bus/test_credentials.py connects by it, too.
    "tests/security/test_locked_cluster.py::test_a_job_runs_and_nobody_exceeds_his_permissions[operator]":
        "tests/security/test_locked_cluster.py::test_a_job_runs_and_nobody_exceeds_his_permissions[users]",
    # The same sandbox, entered by the same code, around a Spark.
    "tests/security/test_sandbox.py::test_spark_runs_confined":
        "tests/security/test_sandbox.py::test_a_job_runs_confined_and_is_restored",
}  # fmt: skip


def is_long(nodeid: str) -> bool:
    return nodeid in PROVED or nodeid.partition("[")[0] in PROVED
