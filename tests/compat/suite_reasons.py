"""Why tests of PyFlink's own fail: by a part of the test's name."""

_LEGACY = "names of PyFlink's tables that are not there yet"
_CHECKPOINTS = "Penstock takes checkpoints every 10 s and keeps them when a job is cancelled, unless a program says otherwise"
_PYTHON = (
    "the Python of a slot is the cluster's; requirements, archives and another interpreter are not there yet"
)
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
    "TableConfigTests": f"{_LEGACY}: `TableConfig.get_default`",
    "test_catalog": f"{_LEGACY}: catalogs of a program's own classes",
    "CompiledPlanTest": "plans are statements: COMPILE PLAN, EXECUTE PLAN",
    "create_java": "it names a class of Java",
    "CorrelateTests": "the table function of these tests is a class of Java",
    "test_flat_aggregate": "table aggregate functions are not there yet",
    "test_map_with_pandas_udf": "pandas functions over whole rows are not there yet",
    "test_aggregate_with_pandas_udaf": "pandas functions over whole rows are not there yet",
    "test_udf_without_arguments": "functions that are not deterministic are refused",
    "StreamRowBasedOperationITTests.test_aggregate": "a row does not change: `row[…] = …` is refused",
    "test_register_slot_sharing_group": "all slots of a cluster are alike: resources of a group are refused by name",
}
