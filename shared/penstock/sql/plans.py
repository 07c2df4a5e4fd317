"""Checks that a compiled plan can run here, and gives its job the session's settings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import (
    DML_SYNC,
    ENGINE,
    EXPLAIN_SPARK,
    MAX_PARALLELISM,
    OBJECT_REUSE_CHAINING,
    OPTIONS,
    PARALLELISM,
    PIPELINE_NAME,
    PLAN_FORCE_RECOMPILE,
    RECOVERY_PATH,
    RUNTIME_MODE,
)
from penstock.connectors.registry import get_connector
from penstock.errors import PenstockError, SpecError, UnsupportedError
from penstock.functions.aggregates import is_aggregate, is_window_function, known_aggregates
from penstock.functions.expr import AggregateCall, Call, PythonCall
from penstock.functions.registry import lookup
from penstock.jobgraph.graph import runs_on_spark
from penstock.jobgraph.specs import SparkQuerySpec
from penstock.jobgraph.text import execution_plan
from penstock.plan.engine import decode_content, explained
from penstock.sql.partitions import read_partitions
from penstock.sql.plan_files import waited

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.jobgraph.graph import JobGraph
    from penstock.plan.engine import SparkSupport


def explanation(
    graph: JobGraph, spark: SparkSupport | None, details: Sequence[str], warnings: Sequence[str] = ()
) -> str:
    """The text of EXPLAIN for a planned job, with ``warnings``. ``details``: names of what to print besides the plans."""
    text = explained(graph, spark, cost="ESTIMATED_COST" in details)
    text += read_partitions(graph)
    text += "".join(f"\nwarning: {words}" for words in dict.fromkeys(warnings))
    if "JSON_EXECUTION_PLAN" in details:
        text += "\n== Physical Execution Plan ==\n" + execution_plan(graph)
    return text


#: Settings of the client, which do not shape a plan.
_CLIENT = frozenset((DML_SYNC.key, EXPLAIN_SPARK.key, PLAN_FORCE_RECOMPILE.key))
_PLANNED = frozenset((PARALLELISM.key, MAX_PARALLELISM.key, RUNTIME_MODE.key, OBJECT_REUSE_CHAINING.key))

_OTHERWISE = "run the plan with the version of Penstock that wrote it, or compile the statement again"


def runnable(
    graph: JobGraph,
    config: Mapping[str, str],
    *,
    python_path: Sequence[str],
    spark: SparkSupport | None,
    where: str,
) -> JobGraph:
    """The job of a compiled plan, with the session's settings. Raises an error that names a part which this
    Penstock lacks, or a setting that differs from the plan's."""
    _check_settings(graph, config, spark, where)
    path = (*python_path, *(p for p in graph.python_path if p not in python_path))
    graph = msgspec.structs.replace(
        graph,
        name=PIPELINE_NAME.read(config) or graph.name,
        config={**graph.config, **config},
        python_path=path,
    )
    _check_parts(graph, where)
    return graph


def _check_settings(
    graph: JobGraph, config: Mapping[str, str], spark: SparkSupport | None, where: str
) -> None:
    for key in sorted(config):
        option = OPTIONS.get(key)
        planned = key in _PLANNED or (key.startswith("table.") and key not in _CLIENT)
        if option is None or not planned:
            continue
        own, stored = option.read(config), option.read(graph.config)
        if own != stored:
            raise SpecError(
                f"the plan was compiled with another '{key}'",
                expected=str(stored),
                got=str(own),
                where=where,
                remedy=f"leave '{key}' out, or compile the statement again with it",
            )
    on_spark = runs_on_spark(graph)
    wanted = ENGINE.read(config)
    if wanted not in ("auto", "spark" if on_spark else "streaming"):
        raise SpecError(
            f"the plan was compiled for {'Spark' if on_spark else 'the streaming engine'}",
            expected=f"{ENGINE.key} = auto or {'spark' if on_spark else 'streaming'}",
            got=wanted,
            where=where,
            remedy=f"compile the statement again with {ENGINE.key} = {wanted}",
        )
    if not on_spark:
        return
    if RECOVERY_PATH.read(config):
        raise SpecError(
            "a job on Spark cannot begin from a savepoint: that is the streaming engine's state",
            expected="a plan for the streaming engine",
            got=f"a plan for Spark, {RECOVERY_PATH.key} = {RECOVERY_PATH.read(config)}",
            where=where,
            remedy=f"compile the statement again with {ENGINE.key} = streaming",
        )
    missing = "this session does not use Spark" if spark is None else spark.missing
    if missing is not None:
        raise UnsupportedError(
            "the plan was compiled for Spark",
            expected="a Penstock with Spark",
            got=missing,
            where=where,
            remedy="pip install 'penstock[spark]', or compile the statement again with "
            f"{ENGINE.key} = streaming",
        )


def _check_parts(graph: JobGraph, where: str) -> None:
    """Checks that this Penstock knows each connector and function of the plan."""
    called: set[str] = set()
    for part in _parts(_graphs(graph)):
        try:
            match part:
                case Call(function=name):
                    lookup(name)
                case AggregateCall(python=None, function=name):
                    _check_aggregate(name)
                case AggregateCall(python=str(name)) | PythonCall(function=name):
                    called.add(name)
                case msgspec.Struct():
                    connector = getattr(part, "connector", None)
                    if isinstance(connector, str):
                        get_connector(connector)
        except PenstockError as err:
            err.where = f"{where}: {err.where}" if err.where else where
            err.remedy = err.remedy or _OTHERWISE
            raise
    if absent := sorted(called - graph.functions.keys()):
        raise SpecError(
            f"the plan calls functions that it does not hold: {', '.join(absent)}",
            expected=", ".join(sorted(graph.functions)) or "no Python function",
            where=where,
            remedy="compile the statement again",
        )
    if graph.functions:
        waited(_load_functions(graph, where))


def _check_aggregate(name: str) -> None:
    if not is_aggregate(name) and not is_window_function(name):
        raise SpecError(
            f"unknown aggregate function {name}",
            expected="one of " + ", ".join(known_aggregates()),
            got=name,
            remedy=_OTHERWISE,
        )


async def _load_functions(graph: JobGraph, where: str) -> None:
    """Loads the functions as a slot does, so that a module which they import and
    which is missing is found here."""
    from penstock.runtime.artifacts import load_functions

    with tempfile.TemporaryDirectory() as folder:
        load = await load_functions(graph, None, Path(folder))
        for name in graph.functions:
            try:
                load(name)
            except PenstockError as err:
                err.where = f"{where}: {err.where}" if err.where else where
                raise


def _graphs(graph: JobGraph) -> Iterator[JobGraph]:
    """The job graph, and the graphs inside its Spark tasks."""
    yield graph
    contents = [
        node.spec.graph
        for vertex in graph.vertices
        for node in vertex.operators
        if isinstance(node.spec, SparkQuerySpec)
    ]
    for content in dict.fromkeys([*contents, graph.backfill]):
        if content:
            yield decode_content(content)


def _parts(value: Any) -> Iterator[Any]:
    """Every struct inside a value."""
    if isinstance(value, msgspec.Struct):
        yield value
        for name in value.__struct_fields__:
            yield from _parts(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _parts(item)
    elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for item in value:
            yield from _parts(item)
