"""Why tests of PyFlink's own fail: by a part of the test's name."""

_CHECKPOINTS = "Penstock takes checkpoints every 10 s and keeps them when a job is cancelled, unless a program says otherwise"
_ROWS = "rows of a result have the names of their columns, and PyFlink's have none when they are shown"
_TYPES = (
    "a type here is a `DataType` around the engine's type, without PyFlink's conversions to its wire format"
)
_MODULES = "there is one module, `core`"
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
    "test_union": "the stand-in of the test's sink is one step more in the plan",
    "changelog_state_backend": _CHANGELOG,
    "test_configure": "Flink's older key `pipeline.operator-chaining`; it is `pipeline.operator-chaining.enabled` now",
    "test_from_collection_with_data_types": "the test wants 43878 as a SHORT to become -21658; what does not fit is refused",
    "default_local_parallelism": "`set_parallelism` is for every cluster",
    "test_overwrite_builtin_function": "`+` is the operator, also when a function of the name `plus` is there",
    "test_udf_with_constant_params": "CAST(1.05 AS DECIMAL) is 1; the test wants the literal before its cast",
    "test_invalid_udf": "any object with `eval` is a function here",
    "test_expression": "the text of an expression is SQL; the test wants Java's",
    "test_get_set_max_generated_code_length": "no code is generated",
    "test_get_set_sql_dialect": "Hive's dialect is refused",
    "StreamTableWindowTests": "over rows of a collection, which is bounded, a window may be ordered by any column",
    "test_check_result_type": "a function of Series may give any type",
    "test_invalid_pandas_udf": "refused with other words: the function returned 2 values for 3 rows",
    "test_load_module": _MODULES,
    "unload": _MODULES,
    "test_use_": _MODULES,
    "test_from_data_stream_with_schema": _ROWS,
    "test_side_output_stream_to_table": _ROWS,
    "test_collect_for_all_data_types": _ROWS,
    "test_to_retract_stream": "the rows of a collection are one batch, and a batch gives one change of a group; the test wants each",
    "test_collect_with_retract": "the rows of a collection are one batch, and a batch gives one change of a group; the test wants each",
    "test_row_form_consistency": "refused with a `SpecError`, which is no `TypeError`",
    "test_from_and_to_changelog_stream_event_time": "kinds of rows are lost in a stream with a declared type, so the call is refused",
    "TypesTests": _TYPES,
    "test_execute_sql": "the connector COLLECTION is a class of Flink's test JAR",
    "test_shell": "there is no `pyflink.shell`",
    "ShellExampleTests": "there is no `pyflink.shell`",
    "test_async_function_with_retry_logic": "retries of an asynchronous function of SQL are not there; `AsyncDataStream` has them",
    "test_from_element": "a `Row` of a template, and objects of a type of the program within maps, are not taken as elements",
    "PandasConversionTests.test_from_pandas": "refused or shown otherwise: text of a value with several lines, and the words of the error",
    "test_to_pandas_with_event_time": "times come in microseconds, the test wants nanoseconds",
    "test_to_string": "the options have another order",
    "test_to_append_stream": "the test adds texts with `+`",
    "test_to_data_stream_local_time": "the stand-in of the test's sink shows times as a stream's",
    "test_create_table_ignore_if_exists": "refused with other words: the table exists",
    "test_mixed_with_built_in": "STDDEV and VAR of a FLOAT are a FLOAT in the test, and a DOUBLE here",
}

_FORMATS = "there are no readers and writers of this format for `FileSource` and `FileSink`; tables read and write it"
_SETTINGS = "a setting of Flink's own processes that `ExecutionConfig` here has not"
_KAFKA = "there is no `DynamicKafkaSource`; `KafkaSource` reads lists and patterns of topics"
REASONS |= {
    "test_csv: ": _FORMATS,
    "test_avro: ": _FORMATS,
    "test_orc": "the file needs Hadoop's classes of Java for its first import",
    "test_parquet": "the file needs Hadoop's classes of Java for its first import",
    "test_dynamic_kafka": _KAFKA,
    "test_execution_config": _SETTINGS,
    "test_stream_file_sink": "`StreamingFileSink`, which Flink has replaced by `FileSink`, is not there",
    "test_typeinfo": "type objects have no classes of their own here: `Types.ROW(…)` makes an engine's type",
    "test_add_all_to_dict": "values of a `Configuration` are texts, as in `to_dict`",
    "test_hash_equal_str": "`str` of a `Configuration` is a dictionary's",
    "test_state_ttl_config_proto": "the message in which PyFlink's worker gets the time to live from Java is not there",
    "test_process_mode_boot": "the test starts PyFlink's worker, which asks Flink's Java process for its work",
}

_PLANNER = "the expected text is a plan, or advice, that Flink's planner, a Java program, writes"
_EXECUTABLE = "the test reads an environment variable that Flink's Java process sets for its Python worker"

#: Why tests need Java, although they do not ask for it: by a part of the test's name.
NEED_JAVA: dict[str, str] = {
    "StreamTableExplainTests": _PLANNER,
    "test_sql_ddl": _PLANNER,
    "test_udaf: StreamTableAggregateTests.test_using_decorator": _PLANNER,
    "test_compile_plan_sql": "the expected text is the JSON in which Flink's planner, a Java program, writes its own nodes",
    "test_add_custom_source": "the source is a class of Java, `org.apache.flink.python.util.MyCustomSourceFunction`",
    "test_set_stream_env": _EXECUTABLE,
    "test_from_data_stream_atomic": "the expected type is `RAW('[B', '...')`: a class of Java and its serializer",
}
