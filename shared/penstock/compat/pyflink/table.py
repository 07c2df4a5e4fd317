"""The names of ``pyflink.table`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api.results": ("CloseableIterator",),
    "penstock.api.configuration": ("Configuration",),
    "penstock.table": (
        "AggregateFunction", "AggregatedTable", "AsyncScalarFunction", "ChangelogMode", "DataType", "DataTypes", "EnvironmentSettings",
        "ExplainDetail", "Expression", "FormatDescriptor", "GroupWindowedTable", "GroupedTable", "OverWindowedTable",
        "ResolvedSchema", "ResultKind", "Row", "RowKind", "ScalarFunction", "Schema", "SqlDialect", "StatementSet",
        "StreamTableEnvironment", "Table",
        "TableAggregateFunction", "TableConfig", "TableDescriptor", "TableEnvironment", "TableFunction", "TablePipeline",
        "TableResult", "TableSchema", "WindowGroupedTable",
    ),
    "penstock.operators.user_code": ("FunctionContext=RuntimeContext",),
    "penstock.table.udf": ("udaf", "udf", "udtaf", "udtf"),
    "penstock.table.windows": ("GroupWindow", "Over", "OverWindow", "Session", "Slide", "Tumble"),
}  # fmt: skip
_JAVA = "it wraps an object of Java, and there is no Java here"
_ONE = ("there is one catalog, default_catalog", "CREATE TABLE in the program")
_PLANS = ("plans are statements", "execute_sql(\"COMPILE PLAN 'plan.json' FOR …\"), EXECUTE PLAN 'plan.json'")
_MODELS = ("there are no models", "call the model in an udf")
_ABSENT = {
    "Catalog": _ONE,
    "CatalogDescriptor": _ONE,
    "HiveCatalog": _ONE,
    "JdbcCatalog": _ONE,
    "ObjectPath": _ONE,
    "CompiledPlan": _PLANS,
    "PlanReference": _PLANS,
    "ModelDescriptor": _MODELS,
    "Module": ("there is one module, core", "register functions by create_temporary_function"),
    "ModuleEntry": ("there is one module, core", "list_modules()"),
    "HiveModule": (_JAVA, "register functions by create_temporary_function"),
    "DataView": ("an accumulator is any object that pickles", "a list or a dictionary"),
    "ListView": ("an accumulator is any object that pickles", "a list"),
    "MapView": ("an accumulator is any object that pickles", "a dictionary"),
    "UserDefinedType": ("a type of one's own", "DataTypes.ROW(…) or DataTypes.BYTES()"),
}

__getattr__, __all__ = finder(__name__, _WHERE, _ABSENT)


def __dir__() -> list[str]:
    return __all__
