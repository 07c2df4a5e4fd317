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


def _weaker(kit: str) -> dict[str, str]:
    """The crashes of a sink that writes at least once."""
    return {f"{kit}AtLeastOnce::{crash}": f"{kit}ExactlyOnce::{_KIT[1]}" for crash in _KIT}


def _cases(test: str, left: tuple[str, ...], proof: str) -> dict[str, str]:
    """Some cases of a test; ``proof``: the case that stays."""
    return {f"{test}[{case}]": f"{test}[{proof}]" for case in left}


#: A test, or a case of one → what proves the same in `make test`.
PROVED: dict[str, str] = {
    # Spark of a cluster: one test with its restarts, one traceback, one cancel stay; examples run whole.
    "tests/e2e/test_spark.py::test_a_dead_spark_restarts_the_job":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_spark.py::test_a_standing_cluster_loses_a_worker":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_spark.py::test_history_on_a_standing_cluster":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_spark.py::test_a_users_jar_goes_with_the_session":
        "tests/spark/test_jdbc.py::test_what_was_written_is_read",
    "tests/e2e/test_spark.py::test_what_a_killed_driver_leaves_on_spark_is_swept":
        "tests/e2e/test_backfill.py::test_killed_in_the_middle_of_each_half",
    "tests/e2e/test_spark.py::test_a_stream_on_spark_goes_on_where_it_stood":
        "tests/spark/test_streaming.py::test_supported[tumble]",
    "tests/e2e/test_python_steps.py::test_cancel_interrupts_the_function":
        "tests/e2e/test_spark.py::test_cancel_ends_the_query",
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
    "tests/e2e/test_spark.py::test_python_processes_end_with_their_job": "tests/e2e/test_spark.py::test_cancel_ends_the_query",
    "tests/e2e/test_backfill.py::test_cancel_ends_the_backfill": "tests/e2e/test_spark.py::test_cancel_ends_the_query",
    "tests/e2e/test_kafka.py::test_spark_reads_and_writes_bounded_topics":
        "tests/spark/test_connectors.py::test_redis_is_written_and_its_streams_are_read",
    "tests/spark/test_streaming.py::test_a_process_function_with_timers":
        "tests/spark/test_streaming.py::test_supported[tumble]",
    **_cases("tests/spark/test_streaming.py::test_supported", ("stateless", "interval_join", "first_row_of_a_window"), "tumble"),
    # Spark in the tests' own process: another session or process of the same kind starts for the others.
    "tests/spark/test_explain.py::test_explain_and_the_api_show_it": "tests/spark/test_explain.py::test_both_of_sparks_plans",
    **_cases("tests/spark/test_backfill.py::test_history_on_spark_and_the_stream_behind_it", ("unions", "ranks"), "updating"),
    "tests/spark/test_connectors.py::test_documents_are_written":
        "tests/spark/test_connectors.py::test_redis_is_written_and_its_streams_are_read",
    "tests/spark/test_connectors.py::test_rows_are_updated_and_deleted":
        "tests/connectors/postgres/test_jdbc_servers.py::test_rows_of_a_server_are_updated_and_deleted[postgresql]",
    "tests/spark/test_connectors.py::test_the_snapshot_of_postgres_is_read":
        "tests/spark/test_connectors.py::test_redis_is_written_and_its_streams_are_read",
    **_cases("tests/spark/test_components.py::test_components", ("a long path and a short one",), "both ways and a loop"),
    **_cases("tests/spark/test_files.py::test_partitions", ("orc", "json"), "parquet"),
    **_cases("tests/spark/test_semantics.py::test_the_rows_are_flinks", ("BATCH",), "None"),
    "tests/spark/test_backfill.py::test_the_streams_parallelism_is_its_own":
        "tests/spark/test_backfill.py::test_history_on_spark_and_the_stream_behind_it[windows]",
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
    # Servers that are killed under a cluster, once more with another connector: its own file kills the server or its writer,
    # and Kafka, Redis and Delta show a cluster's kills.
    "tests/e2e/test_rabbitmq.py::test_killed_slots_and_a_killed_broker_leave_each_message_once":
        "tests/connectors/web/test_rabbitmq.py::test_a_server_that_is_killed_is_waited_for_and_each_message_is_read_once",
    "tests/e2e/test_mqtt.py::test_killed_slots_and_a_restarted_broker_leave_each_message_once":
        "tests/connectors/web/test_mqtt.py::test_a_broker_that_restarts_is_waited_for_and_one_that_forgot_the_session_is_an_error",
    "tests/e2e/test_jdbc.py::test_killed_processes_and_a_killed_server_leave_every_row_right":
        "tests/e2e/test_connected_examples.py::test_the_flights_from_kafka_go_where_one_word_says[Database]",
    "tests/e2e/test_connected_examples.py::test_orders_of_a_database_and_scans_of_kafka_are_documents_by_order":
        "tests/e2e/test_postgres_cdc.py::test_a_savepoint_goes_on_at_another_parallelism_and_shows_no_password",
    "tests/e2e/test_postgres_cdc.py::test_killed_slots_and_a_killed_database_lose_and_double_no_change":
        "tests/connectors/postgres/test_postgres_cdc.py::test_the_rows_and_all_changes_come_exactly_once_over_restores",
    "tests/e2e/test_kafka_dead_letters.py::test_letters_are_sent_again_with_key_headers_and_offset_once":
        "tests/e2e/test_dead_letters.py::test_letters_reach_their_table_and_are_sent_again_once",
    "tests/e2e/test_filesystem.py::test_killed_slots_lose_no_row_and_commit_no_partition_too_early":
        "tests/e2e/test_failures.py::test_a_killed_slot_process",
    "tests/e2e/test_object_store.py::test_tables_and_checkpoints_in_a_store":
        "tests/connectors/test_object_stores.py::test_a_store_of_checkpoints",
    "tests/e2e/test_servers_away.py::test_a_job_waits_for_servers_that_are_stopped_and_says_so":
        "tests/e2e/test_kafka.py::test_killed_slots_and_a_killed_broker_lose_and_double_nothing",
    "tests/e2e/test_failures.py::test_a_wiped_lease_store_loses_nothing":
        "tests/e2e/test_failures.py::test_a_killed_server_stops_no_job[valkey-0]",
    **_cases("tests/runtime/test_unaligned.py::test_killed_again_and_again", ("1", "2"), "0"),
    # Faults by the dozen: each kind once is in tests/e2e/test_failures.py.
    "tests/chaos/test_smoke.py::test_a_few_faults_change_no_record":
        "tests/e2e/test_failures.py::test_a_killed_task_manager",
    "tests/extending/test_extending.py::test_state_in_the_packages_backend_outlives_a_killed_task_manager":
        "tests/extending/test_extending.py::test_a_real_cluster_keeps_state_in_the_packages_backend",
    "tests/connectors/postgres/test_jdbc_servers.py::TestLookupByTwo::test_it_runs_as_it_declares":
        "tests/connectors/postgres/test_jdbc_servers.py::TestLookup::test_it_runs_as_it_declares",
    # The kit of the same sink with the weaker guarantee: the stronger one runs the same writer, and commits besides.
    **_weaker("tests/connectors/kafka/test_kafka_conformance.py::TestKafkaSink"),
    **_weaker("tests/connectors/test_conformance.py::TestToNats"),
    **_crashes(
        "tests/connectors/kafka/test_kafka_conformance.py::TestKafkaSinkExactlyOnce",
        "tests/connectors/postgres/test_jdbc_servers.py::TestSink",
        "tests/connectors/postgres/test_jdbc_servers.py::TestExactlyOnceSink",
        "tests/connectors/test_conformance.py::TestToNatsExactlyOnce",
        "tests/connectors/test_conformance.py::TestToJsonFiles",
        "tests/connectors/test_conformance.py::TestToParquetFiles",
        "tests/connectors/test_delta.py::TestDeltaSink",
        "tests/connectors/web/test_rabbitmq.py::TestSink",
        "tests/connectors/test_iceberg.py::TestIcebergSink",
    ),
    # A second server of the same connector, and a second statement of the same state of affairs.
    **_cases("tests/connectors/postgres/test_jdbc_servers.py::test_rows_of_a_server_are_updated_and_deleted", ("mariadb",),
        "postgresql"),
    **_cases("tests/connectors/mysql/test_mysql_cdc.py::test_the_rows_and_all_changes_come_exactly_once_over_restores",
        ("mariadb-2-5",), "mariadb-1-32"),
    "tests/connectors/mysql/test_mysql_cdc.py::TestMySqlCdcSnapshot::test_a_restore_at_every_row_goes_on_exactly_there":
        "tests/connectors/postgres/test_postgres_cdc.py::TestPostgresCdcSnapshot::"
        "test_a_restore_at_every_row_goes_on_exactly_there",
    "tests/connectors/kafka/test_kafka_source.py::test_a_broker_that_is_killed_is_waited_for":
        "tests/e2e/test_kafka.py::test_killed_slots_and_a_killed_broker_lose_and_double_nothing",
    **_cases("tests/connectors/kafka/test_kafka_exactly_once.py::"
        "test_a_call_of_the_client_that_never_returns_does_not_hold_up_the_commit", ("send_offsets_to_transaction",),
        "commit_transaction"),
    # Programs, examples and commands: one of each kind on a cluster.
    "tests/e2e/test_small_examples.py::test_an_upgrade_keeps_the_counts_and_is_rolled_back":
        "tests/cli/test_dev.py::test_saved_versions_go_on_with_their_state",
    **_cases("tests/e2e/test_small_examples.py::test_the_service_answers_with_the_balance", ("words1-750",), "words0--150"),
    "tests/services/jobmanager/test_cluster.py::test_a_third_job_waits_for_slots_and_a_cancelled_one_frees_them":
        "tests/e2e/test_resource_provider.py::test_workers_come_for_a_job_and_go_when_it_has_ended",
    "tests/test_costs.py::test_a_run_with_workers_tells_it": "tests/test_costs.py::test_the_dearest_are_named_first",
    "tests/e2e/test_savepoints.py::test_damage_in_what_all_retained_checkpoints_share":
        "tests/e2e/test_savepoints.py::test_a_damaged_checkpoint_gives_way_to_the_one_before",
    "tests/e2e/test_wheel.py::test_a_cluster_starts_beside_a_package_named_services":
        "tests/e2e/test_user_package.py::test_a_package_named_services",
    "tests/cli/test_init.py::test_the_job_of_a_new_project_runs": "tests/cli/test_init.py::test_the_test_of_a_new_project_passes",
    **_cases("tests/extending/test_extending.py::test_a_real_cluster_runs_the_job", ("acme-polled",), "acme-journal"),
    **_cases("tests/api/test_shipped_code.py::test_shipped_classes_are_one_class_in_records_keys_and_state", ("folder",),
        "zip"),
    "tests/simulation/test_runs.py::test_a_run_is_the_same_in_another_process":
        "tests/services/jobmanager/test_simulated.py::test_a_seed_is_one_run_whatever_the_hashes_of_the_process_are",
    **_cases("tests/fuzz/test_queries.py::test_engines_agree_with_duckdb", ("1010", "1020"), "1000"),
    "tests/api/test_public_names.py::test_a_misspelt_name_is_an_error_for_a_type_checker":
        "tests/api/test_public_names.py::test_type_checkers_and_programs_find_the_same_names",
    # How a function of a user ends: one that raises, and one that ends its process.
    **_cases("tests/e2e/test_bad_input.py::test_functions_that_go_wrong",
        ("sys.exit(4)-words1", "os.kill(os.getpid(), 11)-words3", r"pass\n    raise KeyError(x)-words5"),
        "os._exit(3)-words2"),
    **_cases("tests/e2e/test_python_steps.py::test_how_a_step_may_end_badly", ("ends_a_worker-said1", "raises_in_spark-said2"),
        "leaves-said0"),
    # Memory as it is measured: the same rows from disk are proved at a tiny limit (tests/state/test_eviction*.py).
    **_cases(f"{_STATE}/test_resident_memory.py::test_ten_times_the_limit", ("aggregate", "windows", "join"), "process-half"),
    **_cases(
        f"{_STATE}/test_waiting_memory.py::test_ten_times_the_limit", ("temporal-join", "interval-join", "window-join"), "sort"
    ),
    **_cases(f"{_STATE}/test_eviction_windows.py::test_equals_what_stays_in_memory", ("0-hop, late rows allowed",
        "0-cumulate, late rows allowed"), "0-tumble, late rows allowed"),
    **_cases(f"{_STATE}/test_eviction_windows.py::test_equals_what_stays_in_memory", ("0-hop with retractions",),
        "0-tumble with retractions"),
    # Long programs: each form once.
    **_cases("tests/sql/test_long_queries.py::test_chains_of_operators", ("joined",), "wrapping"),
    **_cases("tests/sql/test_long_queries.py::test_conditions", ("or",), "and"),
    **_cases("tests/sql/test_long_queries.py::test_many_choices", ("not in", "in"), "searched case"),
    **_cases("tests/sql/test_long_queries.py::test_many_choices", ("case of a value",), "searched case"),
    "tests/e2e/test_dashboard.py::test_a_phone_scrolls_no_page_sideways":
        "tests/e2e/test_dashboard.py::test_every_page_is_without_errors_and_accessible[third]",
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
