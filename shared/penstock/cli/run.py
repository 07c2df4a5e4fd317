"""``penstock run``: runs a Python program, a SQL script or a job spec to its end."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.attached import Watching, ends_with_client, outlives_client
from penstock.api.client import raise_if_cancelled
from penstock.api.execution import defaults_of
from penstock.cli.jobs import ClusterAccess, Results, follow_job
from penstock.cli.leaving import attended, cancel_job
from penstock.cli.output import write_rows
from penstock.cli.project import is_project, run_project
from penstock.cli.savepoint_paths import locate
from penstock.cli.sql import FORMATS, read_script, run_sql
from penstock.config import PIPELINE_NAME
from penstock.errors import PenstockError, SpecError, nearest, nested_too_deeply
from penstock.jobgraph.plain_secrets import plain_secrets
from penstock.plan.compiled import VERSION_FIELD

if TYPE_CHECKING:
    from penstock.api.client import ClusterClient
    from penstock.jobgraph import JobGraph
    from penstock.jobgraph.specs import SinkSpec
    from penstock.messages.cluster import JobSpec

KINDS = (".py", ".sql", ".yaml", ".yml", ".json")
#: Code packages.
PACKAGES = (".zip", ".whl")


def job_file(file: Path | None, python: Path | None) -> tuple[Path, Path | None]:
    """(the job, the module of its functions or None) of ``run FILE``, ``run -py MODULE.py FILE.sql`` and, as in
    Flink, ``run -py JOB.py``. Raises SpecError for anything else."""
    if file is None:
        if python is None:
            raise SpecError(
                "there is nothing to run", expected="penstock run FILE", got="no FILE",
                remedy="name a job: a file " + ", ".join((*KINDS, *PACKAGES)),
            )  # fmt: skip
        return python, None
    if python is not None and file.suffix != ".sql":
        raise SpecError(
            "-py names the module whose functions a script calls",
            expected="FILE.sql",
            got=file.name,
            where="-py",
            remedy="leave it out: a Python job imports what it needs, a spec names folders under 'files'",
        )
    return file, python


def run_file(
    file: Path,
    python: Path | None = None,
    *,
    args: list[str],
    cluster: str | None,
    config: dict[str, str],
    detached: bool,
    format_: str,
    entry: str | None = None,
) -> None:
    """Run a file on ``cluster``, or on an embedded cluster that ends with the job.

    Raises SpecError for an unknown kind of file, an unknown format, or ``detached`` without a cluster.
    """
    if file.suffix in PACKAGES or entry is not None:
        run_package(file, entry, args=args, cluster=cluster, config=config, detached=detached)
        return
    if file.suffix not in KINDS:
        raise SpecError(
            "cannot tell what kind of job this is",
            expected="a file " + ", ".join((*KINDS, *PACKAGES)),
            got=str(file),
            remedy="name a file, and give it the ending of its kind",
        )
    if format_ not in FORMATS:
        raise SpecError("unknown format", expected=" | ".join(FORMATS), got=repr(format_), where="--format")
    if detached and cluster is None:
        raise SpecError(
            "--detached needs a cluster that keeps running",
            expected="--cluster URL",
            remedy="start one with 'penstock up'",
        )
    text = read_script(file)
    if file.suffix == ".sql" and not detached:
        run_sql(
            file=file, text=None, init=None, python=python, cluster=cluster, config=config, format_=format_
        )
    elif file.suffix == ".py":
        _run_program(file, text, args, cluster, config, detached=detached)
    elif is_project(file, text):
        run_project(file, text, cluster=cluster, config=config, detached=detached)
    else:
        spec = _with_defaults(spec_of(file, text, args, config), cluster)
        if python is not None:
            spec = _with_functions(spec, file, text, python)
        _run_spec(file, spec, cluster, detached, format_)


def run_package(
    file: Path,
    entry: str | None,
    *,
    args: list[str],
    cluster: str | None,
    config: dict[str, str],
    detached: bool,
) -> None:
    """Upload a zip or wheel of Python and run ``entry`` of it: a module, or ``module:function``."""
    if file.suffix not in PACKAGES:
        raise SpecError(
            "--entry names what runs in a code package",
            expected="a file " + " or ".join(PACKAGES), got=str(file), remedy="leave --entry out",
        )  # fmt: skip
    if detached and cluster is None:
        raise SpecError(
            "--detached needs a cluster that keeps running",
            expected="--cluster URL",
            remedy="start one with 'penstock up'",
        )
    try:
        content = file.read_bytes()
    except OSError as err:
        raise SpecError(f"{file} cannot be read: {err.strerror}", got=str(file)) from err
    asked = {"programArgsList": args, "flinkConfiguration": {PIPELINE_NAME.key: file.stem, **config}}
    if entry is not None:
        asked["entryClass"] = entry
    parallelism = int(config.get("parallelism.default", "1"))
    with ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=sys.stdout) as access:
        access.prepare()
        client = access.client
        job_id = client.run_package(client.upload_package(file.name, content), asked)
        if detached:
            print(job_id)
            return
        _say_logs(cluster, job_id)
        job = _follow(client, job_id)
        raise_if_cancelled(job, job_id, job["name"])


def run_plan(path: str, *, cluster: str | None, config: dict[str, str], detached: bool, format_: str) -> None:
    """Run the job whose plan a savepoint contains. ``path`` is the value of ``-s``."""
    spec = _with_defaults(_spec_of_plan(locate(path, cluster), config), cluster)
    _run_spec(Path.cwd() / "plan", spec, cluster, detached, format_)


def _spec_of_plan(location: str, config: dict[str, Any]) -> JobSpec:
    from penstock.messages.cluster import JobSpec

    quoted = location.replace("'", "''")
    return JobSpec(sql=f"EXECUTE PLAN '{quoted}'", config=config)


# -- programs ------------------------------------------------------------------------------


def _run_program(
    file: Path, text: str, args: list[str], cluster: str | None, config: dict[str, str], *, detached: bool
) -> None:
    """Run the program in this process, as ``python FILE`` would; its jobs run on the cluster. ``detached``: print
    their ids, and do not wait for them."""
    import runpy

    from penstock.api import execution, settings
    from penstock.api.planner import program_lines, program_raised
    from penstock.compat import pyflink

    def follow(client: ClusterClient, job_id: str) -> dict[str, Any]:
        _say_logs(cluster, job_id)
        return _follow(client, job_id)

    parallelism = int(config.get("parallelism.default", "1"))
    with ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=sys.stdout) as access:
        access.prepare()
        try:
            compile(text, str(file), "exec")  # a syntax error is reported before anything runs
        except (SyntaxError, ValueError) as err:
            raise program_raised(err, str(file)) from err
        os.environ[execution.CLUSTER_VARIABLE] = access.client.url
        settings.set_defaults({**access.defaults(), **config})
        execution.wait_with(follow)
        if detached:
            execution.detach(lambda job_id: print(job_id, flush=True))
        pyflink.install()
        sys.argv = [str(file), *args]
        sys.path.insert(0, str(file.absolute().parent))
        before = execution.submitted()
        try:
            runpy.run_path(str(file), run_name="__main__")
        except PenstockError as err:
            if err.user_traceback is None:
                err.user_traceback = program_lines(err, str(file))
            raise
        except Exception as err:
            raise program_raised(err, str(file)) from err
        if execution.submitted() == before:
            raise SpecError(
                "the program executed no job",
                expected="a call of execute(), or of what executes: execute_sql('INSERT …'), execute_insert, collect",
                got="none",
                where=str(file),
                remedy="call env.execute() at the end of the program; one that only prints a plan is run by python",
            )


def _say_logs(cluster: str | None, job_id: str) -> None:
    """Say where the job's output is read. A cluster of this process prints it here; a standing one keeps it."""
    if cluster is not None:
        print(f"[job {job_id} runs; its output: penstock logs {job_id[:8]} -f]", file=sys.stderr, flush=True)


def _follow(client: ClusterClient, job_id: str) -> dict[str, Any]:
    try:
        job = follow_job(client, job_id, client.job(job_id)["name"])
    except (KeyboardInterrupt, SystemExit):
        cancel_job(client, job_id, client.job(job_id)["name"])
        raise
    text = f"[job {job_id} ({job['name']}): {job['state'].lower()}, {job['duration'] / 1000:.1f} s]"
    print(text, file=sys.stderr)
    return job


# -- specs ---------------------------------------------------------------------------------


def spec_of(file: Path, text: str, args: list[str], config: dict[str, str]) -> JobSpec:
    """The job spec of a SQL script, a Python program or a spec file, under ``config``. The file's name is the
    default name."""
    from penstock.messages.cluster import JobSpec

    if file.suffix == ".sql":
        spec = JobSpec(sql=text)
    elif file.suffix == ".py":
        spec = JobSpec(python=text, args=args, files=[str(file.absolute().parent)])
    else:
        spec = _read_spec(file, text)
    # The file's name is the job's name unless its configuration has one.
    return msgspec.structs.replace(spec, config={PIPELINE_NAME.key: file.stem, **spec.config, **config})


def _with_defaults(spec: JobSpec, cluster: str | None) -> JobSpec:
    """The spec, which is planned in this process, over the cluster's defaults."""
    if cluster is None:
        return spec
    return msgspec.structs.replace(spec, config={**defaults_of(cluster), **spec.config})


def _with_functions(spec: JobSpec, file: Path, text: str, python: Path) -> JobSpec:
    """The script, planned with the functions of a module."""
    from penstock.api.planner import configuration
    from penstock.spark.support import spark_support
    from penstock.sql.functions import register_module
    from penstock.sql.scripts import plan_in
    from penstock.sql.session import SqlSession

    folder = str(python.absolute().parent)
    session = SqlSession(
        configuration(spec), python_path=[folder], spark=spark_support(), folder=str(file.absolute().parent)
    )
    register_module(session.catalog.functions, python)
    graph = plan_in(session, text).job_graph
    return msgspec.structs.replace(spec, sql=None, job_graph=msgspec.to_builtins(graph))


def _read_spec(file: Path, text: str) -> JobSpec:
    from penstock.messages.cluster import JobSpec

    if file.suffix == ".json":
        try:
            data = json.loads(text)
        except json.JSONDecodeError as err:
            where = f"{file}, line {err.lineno}, column {err.colno}"
            raise SpecError(f"the spec is not JSON: {err.msg}", where=where) from err
        except RecursionError as err:
            raise nested_too_deeply("job spec", str(file)) from err
        except ValueError as err:  # a number with more digits than Python reads
            raise SpecError(f"the spec is not JSON: {err}", where=str(file)) from err
    else:
        import yaml

        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as err:
            mark = getattr(err, "problem_mark", None)
            where = f"{file}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(file)
            raise SpecError(
                f"the spec is not YAML: {getattr(err, 'problem', err)}",
                expected="fields and their values, as 'name: value'",
                got=_line_of(text, mark.line) if mark else None,
                where=where,
                remedy="correct the line; docs/operations.md shows specs",
            ) from err
        except RecursionError as err:
            raise nested_too_deeply("job spec", str(file)) from err
        except (ValueError, OverflowError) as err:  # an impossible date or number
            raise SpecError(f"the spec holds a value that cannot be read: {err}", where=str(file)) from err
    if isinstance(data, dict) and VERSION_FIELD in data:
        return _spec_of_plan(str(file.absolute()), {})
    fields = JobSpec.__struct_fields__
    for name in data if isinstance(data, dict) else ():
        if name not in fields:
            raise SpecError(
                f"unknown field '{name}' in the job spec",
                expected="the fields " + ", ".join(fields),
                got=repr(name),
                where=_place_of(name, text, file),
                remedy=nearest(str(name), fields) or "correct that field; docs/operations.md shows specs",
            )
    try:
        return msgspec.convert(data, JobSpec)
    except msgspec.ValidationError as err:
        raise SpecError(
            f"a malformed job spec: {err}",
            expected="the fields " + ", ".join(fields),
            where=str(file),
            remedy="correct that field; docs/operations.md shows specs",
        ) from err


def _line_of(text: str, number: int) -> str | None:
    """A line of a spec, counted from 0."""
    lines = text.splitlines()
    return repr(lines[number].strip()[:80]) if number < len(lines) else None


def _place_of(name: object, text: str, file: Path) -> str:
    """Where a spec names a field of its own: the first line that begins with it."""
    found = re.search(rf"^[{{\s]*[\"']?{re.escape(str(name))}[\"']?\s*:", text, re.MULTILINE)
    return f"{file}, line {text.count(chr(10), 0, found.end()) + 1}" if found else str(file)


def plan_file(file: Path, spec: JobSpec) -> JobGraph:
    """The job graph of ``spec``, which was made from ``file``. Errors name lines of that file."""
    from penstock.api.planner import PROGRAM, plan_spec

    try:
        return plan_spec(spec, str(file.absolute().parent))
    except PenstockError as err:
        if spec.python is not None and file.suffix == ".py":
            if err.user_traceback:
                err.user_traceback = err.user_traceback.replace(f'"{PROGRAM}"', f'"{file}"')
            err.where = str(file) if err.where == PROGRAM else err.where
        err.where = err.where or str(file)
        raise


def _run_spec(file: Path, spec: JobSpec, cluster: str | None, detached: bool, format_: str) -> None:
    """Plan the spec in this process, so that errors come at once and a SELECT's columns are known; then run it."""
    from penstock.jobgraph.specs import SinkSpec

    parallelism = spec.parallelism or int(spec.config.get("parallelism.default", 1))
    with ClusterAccess(cluster, slots=max(8, 4 * parallelism), slot_output=sys.stdout) as access:
        access.prepare()
        graph = plan_file(file, spec)
        for words in plain_secrets(graph):
            print(f"warning: {words}", file=sys.stderr, flush=True)
        specs = [o.spec for v in graph.vertices for o in v.operators]
        sinks = [spec for spec in specs if isinstance(spec, SinkSpec)]
        collect = next((s for s in sinks if s.connector == "collect"), None)
        if detached:
            graph = outlives_client(graph)
        elif collect is not None:
            graph = ends_with_client(graph)
        client = access.client
        submission = {"name": graph.name, "job_id": spec.job_id, "job_graph": msgspec.to_builtins(graph)}
        if detached:
            print(client.submit(submission))
            return

        def wait(job_id: str) -> None:
            if collect is None:
                _say_logs(cluster, job_id)
            with Watching(client, job_id, graph.config):
                _await(client, graph, collect, job_id, format_)

        attended(client, submission, wait)


def _await(
    client: ClusterClient, graph: JobGraph, collect: SinkSpec | None, job_id: str, format_: str
) -> None:
    if collect is not None:
        keys = collect.keys if collect.mode == "upsert" else None
        results = Results(client, job_id, collect.schema, keys)
        rows = results.final()
        raise_if_cancelled(client.job(job_id), job_id, graph.name)
        write_rows(collect.schema, rows, format_, config=graph.config)
    else:
        job = follow_job(client, job_id, graph.name)
        raise_if_cancelled(job, job_id, graph.name)
        print(f"[job {job_id} ({graph.name}): {job['state'].lower()}, {job['duration'] / 1000:.1f} s]")
