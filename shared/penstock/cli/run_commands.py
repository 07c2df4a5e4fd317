"""The commands that start a cluster, SQL or a job. Each imports the module that does its work when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Backfill, Cluster, Config, Engine, Parallelism, job_config, parse_config


def up(
    taskmanagers: Annotated[int, typer.Option(min=1, help="Task managers to start.")] = 1,
    slots: Annotated[int, typer.Option(min=1, help="Slots of each task manager.")] = 2,
    jobmanagers: Annotated[int, typer.Option(min=1, help="Job managers to start; one leads each job.")] = 1,
    dispatchers: Annotated[int, typer.Option(min=1, help="Dispatchers to start.")] = 1,
    resourcemanagers: Annotated[int, typer.Option(min=1, help="Resource managers to start; one leads.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the REST API and dashboard; 0 = any.")
    ] = 8081,
    nats_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of NATS; 0 = any.")] = 0,
    data: Annotated[
        Path | None, typer.Option(help="Folder for jobs, state and streams; without it nothing is kept.")
    ] = None,
    config: Config = None,
) -> None:
    """Start a whole cluster on this machine; Ctrl-C stops it and leaves nothing behind."""
    from penstock.cli.up import run_up
    from penstock.config import check_cluster

    settings = parse_config(config)
    check_cluster(settings)
    run_up(
        taskmanagers=taskmanagers,
        slots=slots,
        jobmanagers=jobmanagers,
        dispatchers=dispatchers,
        resourcemanagers=resourcemanagers,
        rest_port=port,
        nats_port=nats_port,
        data_dir=data,
        config=settings,
    )


def sql(
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Script to run to its end.")] = None,
    init: Annotated[Path | None, typer.Option("-i", "--init", help="Script to run first.")] = None,
    execute: Annotated[str | None, typer.Option("-e", "--execute", help="Statements to run.")] = None,
    python: Annotated[
        Path | None, typer.Option("-py", "--python", help="Module whose functions SQL may call.")
    ] = None,
    cluster: Cluster = None,
    engine: Engine = None,
    backfill: Backfill = None,
    parallelism: Parallelism = None,
    config: Config = None,
    format: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Run SQL: a script with -f or -e, else an interactive shell."""
    from penstock.cli.sql import run_sql

    settings = job_config(config, engine, parallelism, backfill)
    run_sql(
        file=file, text=execute, init=init, python=python, cluster=cluster, config=settings, format_=format
    )


def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A job: FILE.py, FILE.sql, a spec FILE.yaml / FILE.json, a compiled plan FILE.json, or a code package FILE.zip / FILE.whl; "
            "without it, with -s: the savepoint's own job."
        ),
    ] = None,
    args: Annotated[list[str] | None, typer.Argument(help="Arguments for a Python job.")] = None,
    cluster: Cluster = None,
    engine: Engine = None,
    backfill: Backfill = None,
    parallelism: Parallelism = None,
    detached: Annotated[
        bool, typer.Option("-d", "--detached", help="Return when the job is submitted.")
    ] = False,
    savepoint: Annotated[
        str | None, typer.Option("-s", "--from-savepoint", help="Savepoint or checkpoint to start from.")
    ] = None,
    allow_dropped: Annotated[
        bool,
        typer.Option(
            "-n", "--allow-non-restored-state", help="Drop the state of operators that the job does not have."
        ),
    ] = False,
    keep_state: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-state",
            help="Uid of an operator whose state is restored although its meaning has changed; repeatable.",
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            "-py", "--python", help="Module whose functions FILE.sql may call; without FILE, the job itself."
        ),
    ] = None,
    entry: Annotated[
        str | None,
        typer.Option(
            "--entry", help="What runs in a code package: a module, or module:function; else its __main__."
        ),
    ] = None,
    config: Config = None,
    format: Annotated[str, typer.Option("--format", help="table, json or csv, for SELECT.")] = "table",
) -> None:
    """Run a job to its end on a cluster (or on one of its own)."""
    from penstock.cli.run import job_file, run_file, run_plan
    from penstock.config import RECOVERY_IGNORE_UNCLAIMED, RECOVERY_KEEP_STATE, RECOVERY_PATH

    settings = job_config(config, engine, parallelism, backfill)
    if savepoint is not None:
        from penstock.cli.savepoint_paths import addressed, local_folder

        here = Path(savepoint)
        settings[RECOVERY_PATH.key] = (
            local_folder(savepoint).as_uri() if here.exists() else addressed(savepoint)
        )
    if allow_dropped:
        settings[RECOVERY_IGNORE_UNCLAIMED.key] = "true"
    if keep_state:
        settings[RECOVERY_KEEP_STATE.key] = ";".join(keep_state)
    if file is None and python is None and savepoint is not None:
        run_plan(savepoint, cluster=cluster, config=settings, detached=detached, format_=format)
        return
    run_file(
        *job_file(file, python),
        args=args or [],
        cluster=cluster,
        config=settings,
        detached=detached,
        format_=format,
        entry=entry,
    )


def dev(
    file: Annotated[Path, typer.Argument(help="A job: FILE.py or FILE.sql.")],
    cluster: Cluster = None,
    engine: Engine = None,
    parallelism: Parallelism = None,
    reload: Annotated[
        bool, typer.Option("--reload/--no-reload", help="Start the next version when the file is saved.")
    ] = True,
    config: Config = None,
) -> None:
    """Run a job while you write it: a saved file is its next version, with the state of what did not change."""
    from penstock.cli.dev import run_dev

    run_dev(file, cluster=cluster, config=job_config(config, engine, parallelism, None), reload=reload)
