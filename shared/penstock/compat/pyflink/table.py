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
    "penstock.table.catalog": ("Catalog", "CatalogBaseTable", "CatalogDatabase", "CatalogDescriptor"),
    "penstock.table.columns": ("Column", "ComputedColumn", "MetadataColumn", "PhysicalColumn"),
    "penstock.table.data_view": ("DataView", "ListView", "MapView"),
    "penstock.table.identifiers": ("ObjectIdentifier", "ObjectPath"),
    "penstock.table.plans": ("CompiledPlan", "PlanReference"),
    "penstock.operators.user_code": ("FunctionContext=RuntimeContext",),
    "penstock.table.types": ("RowField", "RowType", "UserDefinedType"),
    "penstock.table.udf": ("udaf", "udf", "udtaf", "udtf"),
    "penstock.table.windows": ("GroupWindow", "Over", "OverWindow", "Session", "Slide", "Tumble"),
}  # fmt: skip
_JAVA = "it wraps an object of Java, and there is no Java here"
_ONE = ("there is one catalog, default_catalog", "CREATE TABLE in the program")
_COLUMNS = ("a resolved schema has names and types", "get_column_names() and get_column_data_types()")
_TYPES = ("types are made by DataTypes", "DataTypes.ROW(…), DataTypes.ARRAY(…) …")
_MODELS = ("there are no models", "call the model in an udf")
_ABSENT = {
    "CatalogColumnStatistics": _ONE,
    "CatalogFunction": _ONE,
    "CatalogModel": _ONE,
    "CatalogPartition": _ONE,
    "CatalogPartitionSpec": _ONE,
    "CatalogTableStatistics": _ONE,
    "Constraint": _COLUMNS,
    "UniqueConstraint": _COLUMNS,
    "WatermarkSpec": _COLUMNS,
    "ArrayType": _TYPES,
    "BigIntType": _TYPES,
    "LocalZonedTimestampType": _TYPES,
    "MapType": _TYPES,
    "VarCharType": _TYPES,
    "ZonedTimestampType": _TYPES,
    "HiveCatalog": _ONE,
    "JdbcCatalog": _ONE,
    "ModelDescriptor": _MODELS,
    "Module": ("there is one module, core", "register functions by create_temporary_function"),
    "ModuleEntry": ("there is one module, core", "list_modules()"),
    "HiveModule": (_JAVA, "register functions by create_temporary_function"),
}

__getattr__, __all__ = finder(__name__, _WHERE, _ABSENT)


def __dir__() -> list[str]:
    return __all__
