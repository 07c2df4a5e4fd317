"""The commands on existing jobs and clusters. Each imports the module that does its work when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CLUSTER, Cluster, Config, TableFormat, TextFormat, parse_config
from penstock.errors import SpecError


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
    format: TableFormat = "table",
) -> None:
    """Savepoints: take, inspect, diff, dispose."""
    from penstock.cli import savepoint as command

    if verify and words[0] != "inspect":
        raise SpecError(
            "--verify is an option of 'savepoint inspect'", expected="savepoint inspect --verify PATH",
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
                f"'savepoint {word}' needs the path of a savepoint", expected=f"savepoint {word} PATH", got="no PATH",
                remedy="name its folder or URL: what `penstock savepoint JOB_ID` printed",
            )  # fmt: skip
        case ["diff"] | ["diff", _]:
            raise SpecError(
                "'savepoint diff' needs the path of a savepoint and a job",
                expected="savepoint diff PATH FILE|JOB (a file, or a job's id)",
                got="neither PATH nor JOB" if len(words) == 1 else f"no JOB behind {words[1]}",
                remedy="name both: savepoint diff PATH FILE, or savepoint diff PATH JOB_ID --cluster URL",
            )
        case [job_id]:
            command.take_savepoint(cluster or DEFAULT_CLUSTER, job_id, None, format)
        case [job_id, directory] if job_id not in ("inspect", "diff", "dispose"):
            command.take_savepoint(cluster or DEFAULT_CLUSTER, job_id, directory, format)
        case _:
            raise SpecError(
                "malformed 'savepoint'",
                expected="savepoint JOB_ID [DIR], inspect PATH, diff PATH FILE|JOB, or dispose PATH",
                got=" ".join(words),
                remedy="give one of these, with as many words; `penstock savepoint --help` says what they do",
            )


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
    format: TextFormat = "text",
) -> None:
    """Stop a job with a savepoint; prints where it lies."""
    from penstock.cli.savepoint import stop_job

    stop_job(cluster or DEFAULT_CLUSTER, job_id, savepoint_path, drain=drain, format_=format)


def checkpoint(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    full: Annotated[
        bool, typer.Option("--full", help="Write the whole state, not only what changed.")
    ] = False,
    cluster: Cluster = None,
    format: TextFormat = "text",
) -> None:
    """Take a checkpoint of a job now."""
    from penstock.cli.savepoint import take_checkpoint

    take_checkpoint(cluster or DEFAULT_CLUSTER, job_id, full=full, format_=format)


def list_(
    every: Annotated[
        bool, typer.Option("--all", help="Also the queries (SELECT) of clients that have ended.")
    ] = False,
    cluster: Cluster = None,
    format: TableFormat = "table",
) -> None:
    """List the jobs of a cluster."""
    from penstock.cli.inspect import list_jobs

    list_jobs(cluster or DEFAULT_CLUSTER, format, every=every)


def cancel(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or the beginning of the id.")],
    cluster: Cluster = None,
    format: TextFormat = "text",
) -> None:
    """Cancel a job and wait until it is cancelled."""
    from penstock.cli.inspect import cancel_job

    cancel_job(cluster or DEFAULT_CLUSTER, job_id, format)


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
    format: TableFormat = "table",
) -> None:
    """Show the cluster's processes (services and slots, with their ids), or one job."""
    from penstock.cli.checkpoints import show_checkpoint, show_checkpoints
    from penstock.cli.inspect import show_cluster, show_job

    url = cluster or DEFAULT_CLUSTER
    if job_id is None:
        if checkpoints or checkpoint is not None:
            raise SpecError("checkpoints are shown for one job", expected="a job's id (or the start of it)")
        show_cluster(url, format)
    elif checkpoint is not None:
        show_checkpoint(url, job_id, checkpoint, format)
    elif checkpoints:
        show_checkpoints(url, job_id, format)
    else:
        show_job(url, job_id, format)


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


def dead_letters(
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="[replay] JOB_ID",
            help="Id of the job, or the beginning of the id. With 'replay' before it: send the letters again, each once.",
        ),
    ],
    replayed: Annotated[str, typer.Argument(hidden=True)] = "",
    show: Annotated[int | None, typer.Option("--show", metavar="N", help="One of them, whole.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="With --show: the record's bytes, nothing else.")
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="JOB_ID", help="With replay: the job that sends them; else the job itself."
        ),
    ] = None,
    cluster: Cluster = None,
    format: TableFormat = "table",
) -> None:
    """List the records that on-error = dead-letter has set aside, with their position and the reason, or replay them."""
    from penstock.cli.dead_letters import replay_dead_letters, show_dead_letters

    if job_id == "replay":
        replay_dead_letters(cluster or DEFAULT_CLUSTER, replayed, into, format)
        return
    if replayed or into is not None:
        raise SpecError(
            "unknown arguments of dead-letters",
            expected="JOB_ID, or replay JOB_ID [--into JOB_ID]",
            got=" ".join(filter(None, [job_id, replayed, f"--into {into}" if into else ""])),
        )
    show_dead_letters(cluster or DEFAULT_CLUSTER, job_id, format, show, raw=raw)


def token(
    name: Annotated[str, typer.Argument(help="Whose token it is; the audit log shows the name.")],
    role: Annotated[str, typer.Option("--role", help="read, operate, submit (runs code) or admin.")] = "read",
    format: TextFormat = "text",
) -> None:
    """Make a bearer token for a cluster's REST API, and the entry with its hash for security.rest.tokens-file."""
    from penstock.cli.token import make_token

    make_token(name, role, format)


def schema(
    what: Annotated[str, typer.Argument(help="job: the schema of a job spec.")] = "job",
) -> None:
    """Print the JSON Schema of a job spec, for editors and checks."""
    from penstock.errors import SpecError
    from penstock.messages.spec_schema import text

    if what != "job":
        raise SpecError("no such schema", expected="job", got=repr(what))
    typer.echo(text(), nl=False)


def init(
    folder: Annotated[str, typer.Argument(help="Folder of the project; made if it is not there.")] = ".",
) -> None:
    """Make a new project: a job that runs, its test, and a pyproject.toml."""
    from penstock.cli.new_project import new_project

    new_project(folder)


def health(
    url: Annotated[str, typer.Argument(help="REST address of a dispatcher.")] = DEFAULT_CLUSTER,
) -> None:
    """Exit 0 when the dispatcher answers (for health checks)."""
    from penstock.api.client import ClusterClient

    with ClusterClient(url, patience_s=0) as client:
        overview = client.overview()
    typer.echo(f"ok: {overview['taskmanagers']} task managers, {overview['slots-total']} slots")


def status(
    job_id: Annotated[
        str | None, typer.Argument(help="Id of a job, or its beginning; without it the cluster is looked at.")
    ] = None,
    cluster: Cluster = None,
    format: TextFormat = "text",
) -> None:
    """Say in a line how a job or the cluster is. Exit codes: 0 runs, finished or healthy; 3 failed; 4 cancelled;
    5 not running yet; 6 not healthy."""
    from penstock.cli.status import show_status

    raise typer.Exit(show_status(cluster or DEFAULT_CLUSTER, job_id, format))


def why(
    job_id: Annotated[
        str | None,
        typer.Argument(help="Id of a job, or its beginning; without it all that run or failed within a day."),
    ] = None,
    cluster: Cluster = None,
    format: TextFormat = "text",
) -> None:
    """Say what is wrong with a job, why, and what to do: no output, slow, skewed, late, failing. Exit code 3 if
    something is wrong."""
    from penstock.cli.why import show_why

    raise typer.Exit(show_why(cluster or DEFAULT_CLUSTER, job_id, format))


def tap(
    job_id: Annotated[str, typer.Argument(help="Id of the job, or its beginning.")],
    edge: Annotated[
        str | None, typer.Argument(help="Name of an edge (e1); without it the edges are listed.")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", min=1, help="End after so many rows.")] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, max=100, help="The most rows a second.")] = 20,
    cluster: Cluster = None,
    format: TableFormat = "table",
) -> None:
    """Show rows that pass over an edge of a running job, as they come: a sample."""
    from penstock.cli.tap import list_edges, show_tap

    if edge is None:
        list_edges(cluster or DEFAULT_CLUSTER, job_id, format)
    else:
        show_tap(cluster or DEFAULT_CLUSTER, job_id, edge, format, rows=rows, limit=limit)


def top(
    job_id: Annotated[
        str | None, typer.Argument(help="Id of a job, or its beginning; without it all running jobs.")
    ] = None,
    interval: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    cluster: Cluster = None,
    format: Annotated[str, typer.Option("--format", help="table or json (one look).")] = "table",
) -> None:
    """Show the vertices of running jobs with their rates, the busiest first."""
    from penstock.cli.top import show_top

    show_top(cluster or DEFAULT_CLUSTER, job_id, format, interval_s=interval, once=once)


def doctor(
    cluster: Cluster = None,
    format: TextFormat = "text",
) -> None:
    """Look for what keeps Penstock from working: packages, servers, Java, limits, the cluster. Exit code 1 if
    something fails."""
    from penstock.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(cluster, format))


def open_(
    job_id: Annotated[str | None, typer.Argument(help="Id of a job, or its beginning.")] = None,
    cluster: Cluster = None,
) -> None:
    """Open the dashboard in a browser and print its address."""
    from penstock.cli.showing import dashboard_url

    url = dashboard_url(cluster or DEFAULT_CLUSTER, job_id)
    typer.echo(url)
    typer.launch(url)
