"""``penstock``: the command line. Thin: every command's work is in a module of its own,
imported when the command runs, so that ``penstock --help`` stays quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.errors import PenstockError, SpecError, nested_too_deeply

app = typer.Typer(
    name="penstock",
    help="A stream processor with Flink's architecture and words, native to Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar="PENSTOCK_CLUSTER",
        help="REST address of a running cluster (http://127.0.0.1:8081).",
    ),
]
Config = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A configuration value; repeatable.")
]
Engine = Annotated[str | None, typer.Option("--engine", help="auto, streaming or spark.")]
Backfill = Annotated[
    str | None,
    typer.Option(
        "--backfill", help="Engine that reads the history of a hybrid table: auto, spark or none (streaming)."
    ),
]
Parallelism = Annotated[
    int | None, typer.Option("-p", "--parallelism", min=1, help="Parallelism of the job.")
]

DEFAULT_CLUSTER = "http://127.0.0.1:8081"


def job_config(
    pairs: list[str] | None, engine: str | None, parallelism: int | None, backfill: str | None = None
) -> dict[str, str]:
    """-D values of a job, with the options that have a name of their own over them."""
    from penstock.config import check_job

    settings = parse_config(pairs)
    if engine is not None:
        settings["execution.engine"] = engine
    if backfill is not None:
        settings["execution.backfill.engine"] = backfill
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    check_job(settings)
    return settings


def parse_config(pairs: list[str] | None) -> dict[str, str]:
    """``-D key=value`` pairs. SpecError for a malformed pair or an unknown key."""
    from penstock.config import check_keys

    config = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise SpecError("malformed -D", expected="-D key=value", got=f"-D {pair}")
        config[key.strip()] = value.strip()
    check_keys(config)
    return config


@app.command()
def up(
    taskmanagers: Annotated[int, typer.Option(min=1, help="Task managers to start.")] = 1,
    slots: Annotated[int, typer.Option(min=1, help="Slots of each task manager.")] = 2,
    jobmanagers: Annotated[int, typer.Option(min=1, help="Job managers to start; one leads each job.")] = 1,
    dispatchers: Annotated[int, typer.Option(min=1, help="Dispatchers to start.")] = 1,
    resourcemanagers: Annotated[int, typer.Option(min=1, help="Resource managers to start; one leads.")] = 1,
    port: Annotated[int, typer.Option(help="Port of the REST API and dashboard; 0 = any.")] = 8081,
    nats_port: Annotated[int, typer.Option(help="Port of NATS; 0 = any.")] = 0,
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


@app.command()
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


@app.command()
def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A job: FILE.py, FILE.sql, a spec FILE.yaml / FILE.json, or a compiled plan FILE.json; "
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
    )


@app.command()
def savepoint(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB_ID [DIR] | inspect PATH | diff PATH FILE|JOB | dispose PATH",
            help="Take a savepoint of a job; or look into one, say what of it a job (a file or a job's id) "
            "would restore, delete one.",
        ),
    ],
    cluster: Cluster = None,
    config: Config = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="For inspect: read the whole savepoint and check every block.")
    ] = False,
    format: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Savepoints: take, inspect, diff, dispose."""
    from penstock.cli import savepoint as command

    if verify and words[0] != "inspect":
        raise SpecError(
            "--verify is for looking into a savepoint", expected="savepoint inspect --verify PATH",
            got=f"savepoint {' '.join(words)} --verify", remedy="leave --verify out",
        )  # fmt: skip
    match words:
        case ["inspect", path]:
            command.inspect(path, cluster or DEFAULT_CLUSTER, format, every_block=verify)
        case ["diff", path, job]:
            command.diff(path, job, cluster or DEFAULT_CLUSTER, parse_config(config), format)
        case ["dispose", path]:
            command.dispose(path, cluster or DEFAULT_CLUSTER)
        case [("inspect" | "dispose") as word]:
            raise SpecError(
                f"'{word}' of which savepoint?", expected=f"savepoint {word} PATH", got="no PATH",
                remedy="name its folder or URL: what `penstock savepoint JOB_ID` printed",
            )  # fmt: skip
        case ["diff"] | ["diff", _]:
            raise SpecError(
                "'diff' of which savepoint and which job?",
                expected="savepoint diff PATH FILE|JOB (a file, or a job's id)",
                got="neither PATH nor JOB" if len(words) == 1 else f"no JOB behind {words[1]}",
                remedy="name both: savepoint diff PATH FILE, or savepoint diff PATH JOB_ID --cluster URL",
            )
        case [job_id]:
            command.take_savepoint(cluster or DEFAULT_CLUSTER, job_id, None)
        case [job_id, directory] if job_id not in ("inspect", "diff", "dispose"):
            command.take_savepoint(cluster or DEFAULT_CLUSTER, job_id, directory)
        case _:
            raise SpecError(
                "malformed 'savepoint'",
                expected="savepoint JOB_ID [DIR], inspect PATH, diff PATH FILE|JOB, or dispose PATH",
                got=" ".join(words),
                remedy="give one of these, with as many words; `penstock savepoint --help` says what they do",
            )


@app.command()
def stop(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    savepoint_path: Annotated[
        str | None,
        typer.Option("-p", "--savepoint-path", "--savepointPath", help="Folder for the savepoint."),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "-d", "--drain", help="First let event time reach its end: all windows and timers fire."
        ),
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Stop a job with a savepoint; prints where it lies."""
    from penstock.cli.savepoint import stop_job

    stop_job(cluster or DEFAULT_CLUSTER, job_id, savepoint_path, drain=drain)


@app.command()
def checkpoint(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    full: Annotated[
        bool, typer.Option("--full", help="Write the whole state, not only what changed.")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Take a checkpoint of a job now."""
    from penstock.cli.savepoint import take_checkpoint

    take_checkpoint(cluster or DEFAULT_CLUSTER, job_id, full=full)


@app.command("list")
def list_(cluster: Cluster = None, format: Annotated[str, typer.Option("--format")] = "table") -> None:
    """List the jobs of a cluster."""
    from penstock.cli.inspect import list_jobs

    list_jobs(cluster or DEFAULT_CLUSTER, format)


@app.command()
def cancel(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    cluster: Cluster = None,
) -> None:
    """Cancel a job and wait until it is cancelled."""
    from penstock.cli.inspect import cancel_job

    cancel_job(cluster or DEFAULT_CLUSTER, job_id)


@app.command()
def info(
    job_id: Annotated[
        str | None, typer.Argument(help="Id of a job; without it the cluster is shown.")
    ] = None,
    cluster: Cluster = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="The job's last checkpoints, and what delayed each.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="ID", help="What each subtask did for this checkpoint."),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Show the cluster's processes (services and slots, with their ids), or one job."""
    from penstock.cli.checkpoints import show_checkpoint, show_checkpoints
    from penstock.cli.inspect import show_cluster, show_job

    url = cluster or DEFAULT_CLUSTER
    if job_id is None:
        if checkpoints or checkpoint is not None:
            raise SpecError("whose checkpoints?", expected="a job's id (or the start of it)")
        show_cluster(url, format)
    elif checkpoint is not None:
        show_checkpoint(url, job_id, checkpoint, format)
    elif checkpoints:
        show_checkpoints(url, job_id, format)
    else:
        show_job(url, job_id, format)


@app.command()
def logs(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing until the job has ended (Ctrl-C stops).")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Print what the slots of a job have printed: rows of 'print', print() of Python code, warnings."""
    from penstock.cli.logs import show_logs

    show_logs(cluster or DEFAULT_CLUSTER, job_id, follow=follow)


@app.command()
def health(
    url: Annotated[str, typer.Argument(help="REST address of a dispatcher.")] = DEFAULT_CLUSTER,
) -> None:
    """Exit 0 when the dispatcher answers (for health checks)."""
    from penstock.api.client import ClusterClient

    with ClusterClient(url, patience_s=0) as client:
        overview = client.overview()
    typer.echo(f"ok: {overview['taskmanagers']} task managers, {overview['slots-total']} slots")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _service(role: str) -> None:
    @app.command(
        role,
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": [],
        },
        help=f"Run one {role} process (the options of 'python -m penstock_services.{role}').",
    )
    def run_service(ctx: typer.Context) -> None:
        # A service is a process of its own: this one becomes it.
        os.execv(sys.executable, [sys.executable, "-P", "-m", f"penstock_services.{role}", *ctx.args])


for _role in ("dispatcher", "jobmanager", "resourcemanager", "taskmanager"):
    _service(_role)


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 an error (on stderr), 2 wrong usage, 130 Ctrl-C,
    143 SIGTERM."""
    from penstock.cli.output import print_error
    from penstock.cli.signals import leave_on_signals

    leave_on_signals()
    try:
        app()
    except PenstockError as err:
        print_error(err)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except RecursionError:
        print_error(nested_too_deeply("program"))
        sys.exit(1)
    except Exception as err:
        import traceback

        from penstock.errors import InternalError

        text = traceback.format_exc()
        message = f"{type(err).__name__}: {err}"
        print_error(
            InternalError(
                message,
                remedy="this is a mistake of ours: please report it with the lines above",
                user_traceback=text,
            )
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
