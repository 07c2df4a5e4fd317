"""A project's Python step as a job: the function to call, and the tables that it can read and write."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.cli.sql import read_script
from penstock.config import ENGINE, NOT_NULL_ENFORCER, RECOVERY_PATH, TYPE_LENGTH_ENFORCER
from penstock.errors import PenstockError, SpecError, UnsupportedError, nearest
from penstock.jobgraph.graph import FunctionArtifact
from penstock.jobgraph.specs import SinkSpec, SparkProgramSpec, SparkQuerySpec
from penstock.plan.engine import program_graph
from penstock.sql.catalog import sink_ref
from penstock.sql.results import PlannedJob
from penstock.sql.session import SqlSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.jobgraph.graph import JobGraph
    from penstock.plan.engine import SparkSupport

#: The name of a file's function, unless the step names another one (``train.py:fit``).
DEFAULT_FUNCTION = "run"


def plan_python_step(
    session: SqlSession, spark: SparkSupport, folder: Path, name: str, python: str
) -> PlannedJob:
    """The job of a Python step. ``python`` is ``file.py`` or ``file.py:function``, relative to ``folder``.

    The function is not loaded here. Raises SpecError if there is no such function or the step is given a
    savepoint, and UnsupportedError if Spark is missing.
    """
    check_beginning(name, session.config)
    if spark.missing is not None:
        raise UnsupportedError(
            f"step '{name}' is Python and runs on Spark",
            expected="a Penstock with Spark",
            got=spark.missing,
            remedy="pip install 'penstock[spark]'",
        )
    artifact = FunctionArtifact(module=_module(python), qualname=_function(folder, name, python))
    tables, refused, functions = _tables(session)
    key = f"step {name}"
    spec = SparkProgramSpec(
        function=key, folder=str(folder), tables=tables, refused=refused, sinks=_sinks(session)
    )
    graph = program_graph(
        f"step '{name}' ({python})",
        spec,
        {**session.config, ENGINE.key: "spark"},
        {**functions, key: artifact},
        tuple(session.python_path),
    )
    return PlannedJob(graph, "insert", bounded=True)


def check_beginning(name: str, config: Mapping[str, str]) -> None:
    """Raise SpecError if a Python step is given a savepoint: it runs on Spark, which keeps no state."""
    path = RECOVERY_PATH.read(config)
    if path:
        raise SpecError(
            f"step '{name}' is Python and cannot begin from a savepoint, which is state of the streaming engine",
            expected="the savepoint given only to the step whose job it was taken from",
            got=f"{RECOVERY_PATH.key} = {path} (-s gives it to every step)",
            where=f"step '{name}'",
            remedy=f"leave -s out and write {RECOVERY_PATH.key} into that step's config; later steps that "
            "start without state set it to ''",
        )


def _module(python: str) -> str:
    return python.partition(":")[0].removesuffix(".py").replace("/", ".")


def _function(folder: Path, name: str, python: str) -> str:
    """The function's name. Raises SpecError if its file does not define it."""
    file, _, function = python.partition(":")
    function = function or DEFAULT_FUNCTION
    path = folder / file
    if path.suffix != ".py":
        raise SpecError(
            f"step '{name}' names no Python file",
            expected="file.py or file.py:function",
            got=python,
            where=f"step '{name}', python",
            remedy="name a Python file beside the project's, or write the step's statements as sql: FILE.sql",
        )
    try:
        tree = ast.parse(read_script(path), str(path))
    except SyntaxError as err:
        raise SpecError(
            f"step '{name}' is not Python: {err.msg}",
            expected="a Python file",
            where=f"{path}, line {err.lineno}",
            got=(err.text or "").strip(),
            remedy=f"correct the file; `python -m py_compile {path}` says whether it is right",
        ) from err
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if function not in defined:
        raise SpecError(
            f"step '{name}' finds no function '{function}'",
            expected=f"def {function}(step): … in {file}",
            got="functions " + ", ".join(defined) if defined else "no function",
            where=str(path),
            remedy=nearest(function, defined)
            or f"write it, or name another one: python: {file}:{defined[0] if defined else 'FUNCTION'}",
        )
    return function


def _tables(session: SqlSession) -> tuple[dict[str, str], dict[str, str], dict[str, FunctionArtifact]]:
    """(job graphs of the tables and views that are bounded, the reason for each other table, the functions of
    all of them)."""
    tables: dict[str, str] = {}
    refused: dict[str, str] = {}
    functions: dict[str, FunctionArtifact] = {}
    for name in session.catalog.names():
        try:
            # The streaming engine runs every table, so its answer gives the true reason.
            if not _rows(session, name, "streaming").bounded:
                refused[name] = "it does not end"
                continue
            graph = _rows(session, name, "spark")
        except PenstockError as err:
            refused[name] = err.message
            continue
        specs = (o.spec for v in graph.vertices for o in v.operators)
        tables[name] = next(spec.graph for spec in specs if isinstance(spec, SparkQuerySpec))
        functions |= graph.functions
    return tables, refused, functions


def _rows(session: SqlSession, table: str, engine: str) -> JobGraph:
    before = dict(session.config)
    session.config[ENGINE.key] = engine
    try:
        job = session.execute("SELECT * FROM `{}`".format(table.replace("`", "``"))).job
    finally:
        session.config = before
    assert job is not None
    return job.job_graph


def _sinks(session: SqlSession) -> dict[str, SinkSpec]:
    """The tables into which rows can be inserted."""
    sinks = {}
    for name, table in session.catalog.tables.items():
        try:
            ref = sink_ref(table)
        except PenstockError:
            continue  # the step gets an error if it uses the table
        sinks[name] = SinkSpec(
            connector=ref.connector,
            options=ref.options,
            schema=ref.schema,
            metadata=tuple(column.key for column in ref.metadata),
            keys=tuple(ref.schema.names.index(c) for c in ref.primary_key),
            on_error=ref.options.get("on-error", "fail"),  # type: ignore[arg-type]
            not_null=NOT_NULL_ENFORCER.read(session.config),  # type: ignore[arg-type]
            type_length=TYPE_LENGTH_ENFORCER.read(session.config),  # type: ignore[arg-type]
        )
    return sinks
