"""Why tests of PyFlink's own fail: by a part of the test's name."""

_CHECKPOINTS = "Penstock takes checkpoints every 10 s and keeps them when a job is cancelled, unless a program says otherwise"
_PYTHON = (
    "the Python of a slot is the cluster's; requirements, archives and another interpreter are not there yet"
)
_TIME = "`TIME` is `TIME(0)`: what is below the second is cut off; PyFlink keeps milliseconds in it"
_ROWS = "rows of a result have the names of their columns, and PyFlink's have none when they are shown"
_TYPES = (
    "a type here is a `DataType` around the engine's type, without PyFlink's conversions to its wire format"
)
_COUNTS = "windows of a group by a number of rows are not there; `count_window` of a stream, or `preceding(row_interval(n))`"
_PLAN = "the test looks for Flink's words in a plan"
_MODULES = "there is one module, `core`"
_JAVA_WINDOW = "the test groups a BIGINT in windows of time, which is refused, to look at Java's objects"
_CHANGELOG = "a setting of Flink's changelog state backend: checkpoints here are incremental anyhow"

REASONS: dict[str, str] = {
    "test_run_async_function_in_thread_mode": "the test wants a refusal; asynchronous functions work in every mode here",
    "test_get_set_checkpoint_interval": _CHECKPOINTS,
    "test_get_set_externalized_checkpoints_retention": _CHECKPOINTS,
    "test_is_checkpointing_enabled": _CHECKPOINTS,
    "test_is_unaligned_checkpointing_enabled": "`set_force_unaligned_checkpoints` is for iterations, which are not there",
    "CheckpointStorageTests": "nothing of PyFlink 2.3 takes these objects: set `execution.checkpointing.dir`",
    "test_state_backend": "nothing of PyFlink 2.3 takes these objects: set `state.backend.type`",
    "test_execute_and_collect": "the test wants the key beside the record of a keyed stream; here a keyed stream has its records",
    "test_function_with_error": "the test wants Py4J's error of Java; a `FunctionError` is raised",
    "test_keyed_stream_union": "the plan has no steps for keys",
    "test_project": "a projection is called `Calc(Project)` in the plan",
    "test_shuffle": "`shuffle` deals out in turn, as `rebalance` does",
    "test_slot_sharing_group": "a collection is no step of a group's own",
    "test_union": "the stand-in of the test's sink is one step more in the plan",
    "test_add_custom_source": "`SourceFunction` wraps a class of Java",
    "test_add_python_archive": _PYTHON,
    "test_generate_stream_graph_with_dependencies": _PYTHON,
    "test_set_requirements": _PYTHON,
    "test_set_stream_env": _PYTHON,
    "changelog_state_backend": _CHANGELOG,
    "test_configure": "Flink's older key `pipeline.operator-chaining`; it is `pipeline.operator-chaining.enabled` now",
    "test_from_collection_with_data_types": "the test wants 43878 as a SHORT to become -21658; what does not fit is refused",
    "default_local_parallelism": "`set_parallelism` is for every cluster",
    "test_register_cached_file": "there is no cache of files: a path that all task managers reach, or `add_python_file`",
    "test_udf_without_arguments": "functions that are not deterministic are refused",
    "test_deterministic": "functions that are not deterministic are refused",
    "test_register_slot_sharing_group": "all slots of a cluster are alike: resources of a group are refused by name",
    "test_all_data_types": _TIME,
    "test_overwrite_builtin_function": "`+` is the operator, also when a function of the name `plus` is there",
    "test_udf_with_constant_params": "CAST(1.05 AS DECIMAL) is 1; the test wants the literal before its cast",
    "test_function_context_runtime_info": "the context of a function of SQL has no task: a slot opens a function once for all its tasks",
    "test_abc": "a class without `eval` is refused by `udf`, not when an object of it is made",
    "test_invalid_udf": "any object with `eval` is a function here",
    "test_compile_plan_sql": "the test wants Flink's own JSON of a plan",
    "StreamTableExplainTests": _PLAN,
    "test_sql_ddl": _PLAN,
    "test_using_decorator": _PLAN,
    "test_expression": "the text of an expression is SQL; the test wants Java's",
    "test_get_set_max_generated_code_length": "no code is generated",
    "test_get_set_sql_dialect": "Hive's dialect is refused",
    "TableSchemaTests.test_copy": "the test changes an object of Java within the schema",
    "over_count": _COUNTS,
    "BatchTableWindowTests": _JAVA_WINDOW,
    "StreamTableWindowTests": "over rows of a collection, which is bounded, a window may be ordered by any column",
    "test_check_result_type": "a function of Series may give any type",
    "test_invalid_pandas_udf": "refused with other words: the function returned 2 values for 3 rows",
    "test_non_exist_func_type": "refused with a `SpecError`, which is no `ValueError`",
    "test_async_udf_with_pandas": "refused with a `SpecError`, which is no `ValueError`",
    "test_load_module": _MODULES,
    "unload": _MODULES,
    "test_use_": _MODULES,
    "test_from_data_stream_with_schema": _ROWS,
    "test_side_output_stream_to_table": _ROWS,
    "test_collect_for_all_data_types": _ROWS,
    "test_to_retract_stream": "the rows of a collection are one batch, and a batch gives one change of a group; the test wants each",
    "test_collect_with_retract": "the rows of a collection are one batch, and a batch gives one change of a group; the test wants each",
    "test_set_sys_executable": "the test reads a setting of Java's",
    "test_from_data_stream_atomic": "the type of records without a declared type is found from the values; PyFlink's is RAW",
    "test_row_form_consistency": "refused with a `SpecError`, which is no `TypeError`",
    "test_from_and_to_changelog_stream_event_time": "kinds of rows are lost in a stream with a declared type, so the call is refused",
    "TypesTests": _TYPES,
    "test_execute_sql": "the connector COLLECTION is a class of Flink's test JAR",
    "test_shell": "there is no `pyflink.shell`",
    "ShellExampleTests": "there is no `pyflink.shell`",
    "test_set_environment": "the Python of a slot is the cluster's; requirements, archives and another interpreter are not there yet",
    "test_async_function_with_retry_logic": "retries of an asynchronous function of SQL are not there; `AsyncDataStream` has them",
    "test_from_element": "a `Row` of a template, and objects of a type of the program within maps, are not taken as elements",
    "PandasConversionTests.test_from_pandas": "refused or shown otherwise: text of a value with several lines, and the words of the error",
    "test_to_pandas_with_event_time": "times come in microseconds, the test wants nanoseconds",
    "test_group_aggregate_with_aux_group": "a function of Series has no metrics, and `open` of an aggregate is not called",
    "test_slide_group_window": "a function of Series has no metrics, and `open` of an aggregate is not called",
    "test_over_window_aggregate": "a function of Series has no metrics, and `open` of an aggregate is not called",
    "test_proc_time_over_rows": "the file has a column more than the table, which is refused",
    "test_to_string": "the options have another order",
    "test_to_append_stream": "the test adds texts with `+`",
    "test_to_data_stream_local_time": "the stand-in of the test's sink shows times as a stream's",
    "test_create_table_ignore_if_exists": "refused with other words: the table exists",
    "test_mixed_with_built_in": "STDDEV and VAR of a FLOAT are a FLOAT in the test, and a DOUBLE here",
}
