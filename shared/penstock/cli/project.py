"""A project: a spec of several jobs that run one after the other and share their tables.

::

    name: flights
    config: {parallelism.default: 2}
    steps:
      - name: history          # all inputs bounded: runs on Spark
        sql: history.sql
      - name: model
        python: train.py       # its function run(step), given Spark and the tables so far
      - name: live
        sql: [board.sql, unusual.sql]
        config: {execution.checkpointing.interval: 2 s}

Paths are relative to the spec. The INSERTs of a step are one job; a Python function is one job. A step is planned
when the step before it has finished, so it may read the tables that that step wrote.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Union

import msgspec

from penstock.api.client import raise_if_cancelled
from penstock.cli.jobs import ClusterAccess, follow_job
from penstock.cli.leaving import attended
from penstock.cli.sql import read_script
from penstock.errors import SpecError, SqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.api.client import ClusterClient
    from penstock.sql.results import PlannedJob
    from penstock.sql.session import SqlSession


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job. ``config`` overrides the project's configuration from this step on.

    ``python`` names a function (``file.py`` or ``file.py:function``); ``sql`` then may only declare tables.
    """

    name: str
    sql: Union[str, tuple[str, ...]] = ()
    python: str | None = None
    config: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.files and self.python is None:
            raise ValueError(f"step '{self.name}' has neither sql nor python")

    @property
    def files(self) -> tuple[str, ...]:
        """The SQL files."""
        return (self.sql,) if isinstance(self.sql, str) else self.sql


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A project spec: the steps, and the configuration of all of them."""

    name: str
    steps: tuple[Step, ...]
    config: dict[str, Any] = {}


def is_project(file: Path, text: str) -> bool:
    """Whether a file's text is a project spec: YAML with ``steps``."""
    if file.suffix not in (".yaml", ".yml"):
        return False
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return False  # the reader of job specs then reports the error
    return isinstance(data, dict) and "steps" in data


def read_project(file: Path, text: str) -> Project:
    """The project in ``text``. Raises SpecError, which names the field that is wrong."""
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(text), Project)
    except msgspec.ValidationError as err:
        raise SpecError(
            f"a malformed project: {err}",
            expected="name, steps (each: name, sql or python, config) and config",
            where=str(file),
            remedy="see 'Projects' in docs/spark.md",
        ) from err


def planned_steps(
    file: Path, project: Project, config: Mapping[str, str], replace: Mapping[str, str] | None = None
) -> Iterator[tuple[Step, PlannedJob]]:
    """The steps, each with its job, which is planned when the iterator reaches it.

    An error that no step can avoid is raised before the first step. ``replace`` maps texts in the scripts to
    others.
    """
    from penstock.cli.python_step import check_beginning, plan_python_step
    from penstock.config import check_job, texts
    from penstock.spark.support import spark_support
    from penstock.sql.scripts import plan_in
    from penstock.sql.session import SqlSession

    check_job(project.config)
    spark = spark_support()
    settings = {**texts(project.config), "pipeline.name": project.name, **config}
    given = dict(settings)
    for step in project.steps:
        check_job(step.config)
        given |= {**texts(step.config), **config}
        if step.python is not None:
            check_beginning(step.name, given)
    folder = file.absolute().parent
    session = SqlSession(settings, python_path=[str(folder)], spark=spark, folder=str(folder))
    for step in project.steps:
        session.config.update({**texts(step.config), **config})
        script = "\n".join(read_script(file.parent / name) for name in step.files)
        for old, new in (replace or {}).items():
            script = script.replace(old, new)
        try:
            with importable(folder):
                if step.python is None:
                    planned = plan_in(session, script)
                else:
                    declare(session, script, step.name)
                    planned = plan_python_step(session, spark, folder, step.name, step.python)
        except SqlError as err:
            err.where = f"step '{step.name}' ({', '.join(step.files)}), {err.where or 'the script'}"
            raise
        yield step, planned


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """While the block runs, the project's modules, which CREATE FUNCTION names, can be imported."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def declare(session: SqlSession, script: str, step: str) -> None:
    """Run a script that must start no job. Raises SpecError if it does."""
    for result in session.run_script(script):
        if result.kind == "job":
            raise SpecError(
                f"step '{step}' has a job beside its Python function",
                expected="sql that only declares (CREATE …, SET …)",
                got="INSERT or SELECT",
                where=str(result.position),
                remedy="make it a step of its own",
            )


def run_project(
    file: Path, text: str, *, cluster: str | None, config: dict[str, str], detached: bool
) -> None:
    """Run the steps one after the other. The first error ends the project."""
    if detached:
        raise SpecError(
            "a project cannot run detached: each step is submitted when the step before it has finished",
            expected="run without --detached",
            got="--detached",
            where=str(file),
            remedy="leave --detached out; `nohup penstock run …` continues without its terminal",
        )
    project = read_project(file, text)
    parallelism = int(config.get("parallelism.default", project.config.get("parallelism.default", 1)))
    with ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=sys.stdout) as access:
        access.prepare()
        under = msgspec.structs.replace(project, config={**access.defaults(), **project.config})
        for step, planned in planned_steps(file, under, config):
            graph = msgspec.structs.replace(planned.job_graph, name=f"{project.name}: {step.name}")
            if planned.kind == "select":
                raise SpecError(
                    "a step that only shows rows",
                    expected="INSERT INTO …",
                    got="SELECT …",
                    where=f"step '{step.name}'",
                    remedy="insert them into a table, or show them with `penstock sql -f FILE`",
                )
            spec = {"name": graph.name, "job_graph": msgspec.to_builtins(graph)}
            attended(access.client, spec, partial(_await, access.client, graph.name))


def _await(client: ClusterClient, name: str, job_id: str) -> None:
    job = follow_job(client, job_id, name)
    raise_if_cancelled(job, job_id, name)
    print(f"[job {job_id} ({name}): {job['state'].lower()}, {job['duration'] / 1000:.1f} s]")
