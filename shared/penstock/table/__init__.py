"""The Table API: queries that a program builds, with PyFlink's names. ``docs/table-api.md`` describes it.

A module is imported when one of its names is first used, as in ``penstock.api``. The imports below are for
type checkers and editors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.api.results import CloseableIterator
    from penstock.table.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogDescriptor
    from penstock.table.columns import Column, ComputedColumn, MetadataColumn, PhysicalColumn
    from penstock.table.data_view import ListView, MapView
    from penstock.table.descriptors import FormatDescriptor, Schema, TableDescriptor
    from penstock.table.environment import TableEnvironment
    from penstock.table.expression import Expression
    from penstock.table.grouping import (
        AggregatedTable,
        GroupedTable,
        GroupWindowedTable,
        OverWindowedTable,
        WindowGroupedTable,
    )
    from penstock.table.identifiers import ObjectIdentifier, ObjectPath
    from penstock.table.plans import CompiledPlan, PlanReference
    from penstock.table.results import ResolvedSchema, TableResult
    from penstock.table.rows import Row, RowKind
    from penstock.table.settings import (
        EnvironmentSettings,
        ExplainDetail,
        ResultKind,
        SqlDialect,
        TableConfig,
    )
    from penstock.table.statement_set import StatementSet, TablePipeline
    from penstock.table.stream_environment import ChangelogMode, StreamTableEnvironment
    from penstock.table.table import Table
    from penstock.table.table_schema import TableSchema
    from penstock.table.types import DataType, DataTypes, RowType, UserDefinedType
    from penstock.table.udf import (
        AggregateFunction,
        AsyncScalarFunction,
        ScalarFunction,
        TableAggregateFunction,
        TableFunction,
        UserDefinedFunction,
    )

__all__ = [
    "AggregateFunction",
    "AggregatedTable",
    "AsyncScalarFunction",
    "Catalog",
    "CatalogBaseTable",
    "CatalogDatabase",
    "CatalogDescriptor",
    "ChangelogMode",
    "CloseableIterator",
    "Column",
    "CompiledPlan",
    "ComputedColumn",
    "DataType",
    "DataTypes",
    "EnvironmentSettings",
    "ExplainDetail",
    "Expression",
    "FormatDescriptor",
    "GroupWindowedTable",
    "GroupedTable",
    "ListView",
    "MapView",
    "MetadataColumn",
    "ObjectIdentifier",
    "ObjectPath",
    "OverWindowedTable",
    "PhysicalColumn",
    "PlanReference",
    "ResolvedSchema",
    "ResultKind",
    "Row",
    "RowKind",
    "RowType",
    "ScalarFunction",
    "Schema",
    "SqlDialect",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableAggregateFunction",
    "TableConfig",
    "TableDescriptor",
    "TableEnvironment",
    "TableFunction",
    "TablePipeline",
    "TableResult",
    "TableSchema",
    "UserDefinedFunction",
    "UserDefinedType",
    "WindowGroupedTable",
]

_MODULES = {
    "penstock.api.results": "CloseableIterator",
    "penstock.table.catalog": "Catalog CatalogBaseTable CatalogDatabase CatalogDescriptor",
    "penstock.table.columns": "Column ComputedColumn MetadataColumn PhysicalColumn",
    "penstock.table.data_view": "ListView MapView",
    "penstock.table.identifiers": "ObjectIdentifier ObjectPath",
    "penstock.table.plans": "CompiledPlan PlanReference",
    "penstock.table.descriptors": "FormatDescriptor Schema TableDescriptor",
    "penstock.table.environment": "TableEnvironment",
    "penstock.table.expression": "Expression",
    "penstock.table.grouping": (
        "AggregatedTable GroupedTable GroupWindowedTable OverWindowedTable WindowGroupedTable"
    ),
    "penstock.table.results": "ResolvedSchema TableResult",
    "penstock.table.table_schema": "TableSchema",
    "penstock.table.rows": "Row RowKind",
    "penstock.table.settings": "EnvironmentSettings ExplainDetail ResultKind SqlDialect TableConfig",
    "penstock.table.statement_set": "StatementSet TablePipeline",
    "penstock.table.stream_environment": "ChangelogMode StreamTableEnvironment",
    "penstock.table.table": "Table",
    "penstock.table.types": "DataType DataTypes RowType UserDefinedType",
    "penstock.table.udf": (
        "AggregateFunction AsyncScalarFunction ScalarFunction TableAggregateFunction TableFunction UserDefinedFunction"
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
